"""Where the console looks: the backends and regions, this machine's runs, and what it was asked last."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from launch.all_jobs import CLIENTS
from launch.api import Client
from launch.console.actions import Actions
from launch.console.logs import Buffers
from trainer.errors import SettingsError, TrainerError

Answer = TypeVar("Answer")
KEPT = 200  # answers
SHARE = 3.0  # an answer that took t s is kept for at least 3 t, so that at most a quarter of the time goes into asking
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


class Cache:
    """Asks once, whoever needs the answer meanwhile.  For threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._locks: OrderedDict[Hashable, threading.Lock] = OrderedDict()
        self._answers: dict[Hashable, tuple[float, Any]] = {}  # until when it holds

    def get(self, key: Hashable, ask: Callable[[], Answer], seconds: float) -> Answer:
        """The answer of ask(), not older than `seconds`; its error counts as an answer.  Raises TrainerError."""
        with self._of(key):
            until, answer = self._answers.get(key, (0.0, None))
            began = self._clock()
            if began >= until:
                answer = _answer(ask)
                ended = self._clock()
                self._answers[key] = ended + max(seconds, SHARE * (ended - began)), answer
        if isinstance(answer, TrainerError):
            raise answer.with_traceback(None)
        return answer  # type: ignore[no-any-return]  # of ask()

    def forget(self) -> None:
        """Ask again for everything, as after an action."""
        self._answers.clear()

    def _of(self, key: Hashable) -> threading.Lock:
        with self._lock:
            if key not in self._locks and len(self._locks) >= KEPT:
                old, _ = self._locks.popitem(last=False)
                self._answers.pop(old, None)
            return self._locks.setdefault(key, threading.Lock())


def _answer(ask: Callable[[], Answer]) -> Answer | TrainerError:
    try:
        return ask()
    except TrainerError as error:
        return error


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

    def touch(self) -> None:
        """A page has asked for something."""
        self.seen_at = time.monotonic()

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
