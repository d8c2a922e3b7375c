"""What every page and every answer with data is made with."""

from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from launch.console.world import World


def world_of(request: Request) -> World:
    """The jobs that this console shows."""
    world: World = request.app.state.world
    return world


def page(request: Request, template: str, **values: Any) -> HTMLResponse:
    """A page of infra/console/`template`."""
    return HTMLResponse(filled(request, template, path=request.url.path, **values))


def filled(request: Request, template: str, **values: Any) -> str:
    """infra/console/`template`, filled in; all values are escaped."""
    return str(request.app.state.templates.get_template(f"console/{template}").render(**values))


def data(content: Any, status: int = 200) -> Response:
    """`content` as JSON: dataclasses by their fields, times in ISO 8601, infinite numbers as null."""
    text = to_json(content, inf_nan_mode="null", fallback=repr)
    return Response(text, status, media_type="application/json")
