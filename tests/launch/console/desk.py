"""A user at the console: a browser that has opened the printed address, without a network."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from launch.api import Client
from launch.console.actions import Actions
from launch.console.guard import CSRF, Keys
from launch.console.server import application
from launch.console.world import Cache, World
from launch.core.cli import Launcher
from tests.launch import job_worlds

PORT = 8123
BASE = f"http://127.0.0.1:{PORT}"


@dataclass(frozen=True)
class LaunchersClient(Client):
    """The functions of a backend whose launcher is another."""

    make: Callable[[], Launcher[Any, Any]]

    @property
    def launcher(self) -> Launcher[Any, Any]:
        return self.make()


def client_of(world: job_worlds.World) -> Client:
    return LaunchersClient(f"launch.{world.backend}", world.launcher)


@dataclass
class Ended:
    """A process that has ended."""

    exit_code: int


class Desk:
    """A console, its pages and what they ask for.  What it starts is typed in the job's world, at once."""

    def __init__(self, runs: Path, *worlds: job_worlds.World, clients: Sequence[Client] = ()) -> None:
        self.typed: list[str] = []
        self.worlds = {f"launch.{one.backend}": one for one in worlds}
        self.world = World(
            [*map(client_of, worlds), *clients],
            runs=runs,
            cache=Cache(patience_s=60),
            actions=Actions(start_alone=self._type),  # type: ignore[arg-type]
        )
        keys = Keys(PORT)
        self._csrf = keys.csrf
        self.browser = TestClient(application(self.world, keys), base_url=BASE)
        self.browser.get(f"/?token={keys.token}")

    def ask(self, what: str, code: int = 200, **given: Any) -> Any:
        """What the page gets of /data/WHAT."""
        self.world.cache.forget()
        answer = self.browser.get(f"/data/{what}", params=given)
        assert answer.status_code == code, answer.text
        return answer.json()

    def act(self, code: int = 200, **content: Any) -> Any:
        """What the page gets of an action."""
        answer = self.browser.post("/data/act", json=content, headers={CSRF: self._csrf})
        assert answer.status_code == code, answer.text
        return answer.json()

    def _type(self, command: Sequence[str], output: Path) -> Ended:
        module, *words = command[list(command).index("-m") + 1 :]
        self.typed.append(shlex.join([module, *words]))
        world = self.worlds[module]
        code = world.type(*words)
        output.write_text(world.text)
        return Ended(code)
