"""Where the console looks: the backends and regions, this machine's runs, and what it was asked last."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from launch.all_jobs import CLIENTS
from launch.api import Client
from launch.console.actions import Actions
from launch.console.cache import Cache
from launch.console.logs import Buffers
from trainer.errors import SettingsError

HERE = "here"  # what the runs of this machine are found under, beside the names of the backends


@dataclass(frozen=True)
class Place:
    """A backend, in a region if it has any."""

    client: Client
    region: str | None = None

    def asked(self, verb: str, **options: Any) -> tuple[Any, Any]:
        """The jobs here, and the options of a verb.  Raises TrainerError."""
        where = {"region": self.region} if self.region else {}
        return self.client.asked(verb, **options, **where)

    def command(self, verb: str, job: str) -> list[str]:
        """The words after `python` of the verb's command."""
        return ["-m", self.client.module, verb, job, *(["--region", self.region] if self.region else [])]

    def __str__(self) -> str:
        return self.client.module + (f" in {self.region}" if self.region else "")


def _utc() -> datetime:
    return datetime.now(UTC)


@dataclass
class World:
    """The jobs that a console shows, and where they are."""

    clients: Sequence[Client] = CLIENTS
    regions: Sequence[str] = ()  # empty: the one in the AWS configuration
    runs: Path = Path("runs")
    now: Callable[[], datetime] = _utc
    cache: Cache = field(default_factory=Cache)
    logs: Buffers = field(default_factory=Buffers)
    actions: Actions = field(default_factory=Actions)
    seen_at: float = field(default_factory=time.monotonic)  # when a page last asked for something (monotonic, s)

    def places(self, verb: str) -> Iterator[Place]:
        """Every backend with the verb, in each region if it has regions."""
        for client in self.clients:
            verbs = client.launcher.verbs
            if verb in verbs:
                has_regions = "region" in verbs[verb].options.model_fields
                yield from (Place(client, one) for one in (has_regions and self.regions) or (None,))

    def place(self, name: str, region: str | None) -> Place:
        """The backend of that name.  Raises SettingsError."""
        for client in self.clients:
            if client.name == name:
                return Place(client, region or None)
        raise SettingsError(f"no backend {name!r} has jobs to look for.")
