"""Where the console looks: the backends and regions, this machine's runs, and what it was asked last."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.all_jobs import CLIENTS
from launch.api import Client
from launch.console.cache import Cache


@dataclass
class World:
    """The jobs that a console shows, and where they are."""

    clients: Sequence[Client] = CLIENTS
    regions: Sequence[str] = ()  # empty: the one in the AWS configuration
    runs: Path = Path("runs")
    cache: Cache = field(default_factory=Cache)
    seen_at: float = field(default_factory=time.monotonic)  # when a page last asked for something (monotonic, s)

    def client(self, name: str) -> Client | None:
        """The backend of that name, if it has jobs to look for."""
        return next((one for one in self.clients if one.name == name), None)
