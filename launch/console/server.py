"""The server: on 127.0.0.1 only, until Ctrl-C or until no page has been in sight for a while."""

import asyncio
import logging
import os
import socket
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib.resources import files
from pathlib import Path
from tempfile import NamedTemporaryFile

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from launch.console.guard import ENTRY, Guard, Keys
from launch.console.options import ConsoleOptions
from launch.console.pages import PAGES, ROUTES
from launch.console.web import data
from launch.console.world import World
from launch.core.pages import environment
from launch.core.terminal import say
from trainer.contract import Exit
from trainer.errors import SettingsError, TrainerError

HOST = "127.0.0.1"
LOOK_EVERY_S = 1.0


def application(world: World, keys: Keys) -> Starlette:
    """The pages behind their guard."""
    own, shared = (StaticFiles(directory=str(files("infra").joinpath(name))) for name in ("console", "pages"))
    app = Starlette(
        routes=[*ROUTES, Mount("/static/pages", shared), Mount("/static", own)],
        middleware=[Middleware(Guard, keys=keys, passed=world.touch)],
        exception_handlers={TrainerError: _as_sentence},
    )
    templates = environment()
    templates.globals |= {"csrf": keys.csrf, "pages": PAGES}
    app.state.world, app.state.templates = world, templates
    return app


def _as_sentence(request: Request, error: Exception) -> Response:
    """What a user reads of an error: its sentence.  Data for the page, which shows it."""
    if request.url.path.startswith("/data/"):
        return data({"error": str(error)}, 400)
    return PlainTextResponse(str(error), 400)


def run(options: ConsoleOptions) -> int:
    """Serve the pages to the end; returns the exit code."""
    regions = _all_regions() if options.all_regions else options.region
    world = World(regions=regions, runs=options.runs)
    with listening(options.port) as listener:
        keys = Keys(listener.getsockname()[1])
        address = f"http://{HOST}:{keys.port}/?token={keys.token}"
        say(f"the console, until Ctrl-C; its address works once:\n  {address}")
        server = uvicorn.Server(config_of(world, keys))
        # uvicorn ends, and then raises the signal again
        entry_page = entry_file(options.runs, address) if options.open else nullcontext("")
        with entry_page as entry, suppress(KeyboardInterrupt):
            asyncio.run(_serve(server, listener, world, options, entry))
    for action in world.actions.close():
        say(f"this goes on, with its output in {action.output}:\n  {action.command}")
    return Exit.DONE


@contextmanager
def entry_file(runs: Path, address: str) -> Iterator[str]:
    """The address of a private file that leads to `address`: every user of the machine can read a browser's arguments.

    It is beside the runs if possible: a browser in a sandbox may not read the folder for temporary files.
    """
    folder = runs if os.access(runs, os.W_OK) else None
    with NamedTemporaryFile("w", dir=folder, prefix="console-", suffix=".html") as file:
        file.write(ENTRY.format(address))
        file.flush()
        yield Path(file.name).resolve().as_uri()


def config_of(world: World, keys: Keys) -> uvicorn.Config:
    """How the pages are served: in silence but for bugs, and at the end without waiting for browsers."""
    logging.getLogger("uvicorn.error").addFilter(lambda record: bool(record.exc_info))
    return uvicorn.Config(
        application(world, keys), log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=1,
        lifespan="off", ws="none",
    )  # fmt: skip


async def _serve(
    server: uvicorn.Server, listener: socket.socket, world: World, options: ConsoleOptions, entry: str
) -> None:
    """Serve until Ctrl-C, or until the console is idle."""
    serving = asyncio.create_task(server.serve([listener]))
    if entry:
        await asyncio.to_thread(webbrowser.open, entry)
    while not (await asyncio.wait([serving], timeout=LOOK_EVERY_S))[0]:
        if time.monotonic() - world.seen_at > options.idle_minutes * 60:
            say(f"no page was in sight for {options.idle_minutes:g} min, so the console ends")
            server.should_exit = True
            break
    await serving


def listening(port: int) -> socket.socket:
    """A socket of this machine only.  Raises SettingsError."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()  # a browser that is quicker than the server waits for it
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"--port {port} cannot be used ({error.strerror}); give another, or leave it out."
        ) from error
    return listener


def _all_regions() -> list[str]:
    from launch.aws.client import Aws
    from launch.aws.regions import regions_of

    return regions_of(Aws())
