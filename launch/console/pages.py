"""The addresses of the console: pages, and the data that they ask for."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from launch.console.web import page


def jobs(request: Request) -> Response:
    """All jobs."""
    return page(request, "jobs.html.j2")


PAGES = (("/", "Jobs"),)  # of the navigation
ROUTES = [Route("/", jobs)]
