"""The addresses of the console: pages, the data that they ask for, and actions."""

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from launch.console import compare, jobs, plan
from launch.console.leaks import leaks
from launch.console.logs import Buffer, log_of_files
from launch.console.web import data, filled, page, world_of
from launch.console.world import HERE, World
from launch.core.backend import find
from launch.core.drawing import curves as drawing
from launch.core.jobs import Log
from launch.core.pages import pictures
from trainer.errors import SettingsError

# Of a rehearsal's receipt: it allows its own script, and this keeps that from everything of the console.
SANDBOX = {"content-security-policy": "sandbox allow-scripts"}
VERBS = ("stop", "attach")  # of a job, that the page may run


def _asked(request: Request) -> tuple[str, str, str | None]:
    """The backend, the job and the region of an address."""
    given = request.query_params
    return given.get("on", ""), given.get("name", ""), given.get("region") or None


def job_page(request: Request) -> Response:
    on, name, region = _asked(request)
    return page(request, "job.html.j2", on=on, name=name, region=region or "")


def answer(ask: Callable[[World], object]) -> Callable[[Request], Response]:
    """Answers with what `ask` knows of all jobs."""
    return lambda request: data(ask(world_of(request)))


def one_job(request: Request) -> Response:
    world = world_of(request)
    job = jobs.job(world, *_asked(request))
    drawn = filled(request, "timeline.html.j2", **jobs.timeline(job.phases, world.now()))
    return data({"job": job, "timeline": drawn})


def curves(request: Request) -> Response:
    run = jobs.run_of(world_of(request), *_asked(request))
    drawn = pictures(drawing.curves(run.epochs)) if run else []
    return data({"pictures": drawn, "records": jobs.records(run), "settings": jobs.settings(run)})


def log(request: Request) -> Response:
    given, buffer = request.query_params, _buffer(world_of(request), *_asked(request))
    before = given.get("before", "")
    return data(
        buffer.window(given.get("q", ""), int(given.get("after", "-1")), int(before) if before.isdecimal() else None)
    )


def _buffer(world: World, on: str, name: str, region: str | None) -> Buffer:
    return world.logs.get((on, name, region), partial(_open_log, world, on, name, region))


def _open_log(world: World, on: str, name: str, region: str | None) -> Log:
    if on == HERE:
        run = jobs.run_here(world, name)
        return log_of_files([*run.folder.glob("logs/*.log"), *run.folder.glob("*.log")], run.state == "running")
    there, options = world.place(on, region).asked("logs", job=name)
    found: Log = there.log(options)
    return found


def receipt(request: Request) -> Response:
    run = jobs.run_here(world_of(request), _asked(request)[1])
    return FileResponse(run.folder / "receipt.html", headers=SANDBOX)


# ---- actions


def actions(request: Request) -> Response:
    """What was started, newest first, the one that is asked for with its output."""
    chosen = request.query_params.get("id", "")
    started = reversed(world_of(request).actions.started)
    rows = [
        {"number": one.number, "command": one.command, "code": one.code}
        | ({"lines": one.lines} if chosen == str(one.number) else {})
        for one in started
    ]
    return data(rows)


async def act(request: Request) -> Response:
    """Start what the user said yes to."""
    world, asked = world_of(request), await request.json()
    action = world.actions.start(_words(world, asked))
    world.cache.forget()
    return data({"number": action.number})


def _words(world: World, asked: Any) -> list[str]:
    """The command of an action.  Raises SettingsError for any other."""
    verb, on, name, region = (str(asked.get(word) or "") for word in ("verb", "on", "name", "region"))
    if verb == "doctor" and find(on).examination:
        return ["-m", "launch.doctor", "--for", on, *(["--region", region] if region else [])]
    if verb not in VERBS or not name or name.startswith("-"):
        raise SettingsError("the console has no such action.")
    return world.place(on, region).words(verb, name)


PAGES = (
    ("/", "Jobs"),
    ("/compare", "Compare"),
    ("/plan", "Plan"),
    ("/leaks", "Leaks and doctor"),
    ("/commands", "Commands"),
)  # of the navigation
ROUTES = [
    Route("/", partial(page, template="jobs.html.j2")),
    Route("/job", job_page),
    Route("/leaks", partial(page, template="leaks.html.j2")),
    Route("/commands", partial(page, template="commands.html.j2")),
    Route("/receipt", receipt),
    Route("/data/jobs", answer(jobs.listing)),
    Route("/data/here", answer(jobs.listing_here)),
    Route("/data/job", one_job),
    Route("/data/curves", curves),
    Route("/data/log", log),
    Route("/data/leaks", answer(leaks)),
    Route("/data/actions", actions),
    Route("/data/act", act, methods=["POST"]),
    *compare.ROUTES,
    *plan.ROUTES,
]
