"""Where the console looks: the backends and regions, this machine's runs, and what it was asked last."""

import shlex
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from launch.all_jobs import CLIENTS
from launch.api import Client
from launch.console.actions import Actions
from launch.console.logs import Buffers
from launch.core.cli import Launcher
from trainer.errors import SettingsError, TrainerError

Answer = TypeVar("Answer")
Row = TypeVar("Row")
KEPT = 200  # answers
SHARE = 3.0  # an answer that took t s is kept for at least 3 t, so that at most a quarter of the time goes into asking
PATIENCE_S = 1.5  # for which a page waits for an answer; the next one has it
AT_ONCE = 32  # places and jobs that are asked
HERE = "here"  # what the runs of this machine are found under, beside the names of the backends


@dataclass(frozen=True)
class LastingClient(Client):
    """The functions of a backend with a launcher that lasts: it remembers how jobs ended."""

    @cached_property
    def launcher(self) -> Launcher[Any, Any]:
        return super().launcher


@dataclass(frozen=True)
class Place:
    """A backend, in a region if it has any."""

    client: Client
    region: str | None = None

    def asked(self, verb: str, **options: Any) -> tuple[Any, Any]:
        """The jobs here, and the options of a verb.  Raises TrainerError."""
        where = {"region": self.region} if self.region else {}
        return self.client.asked(verb, **options, **where)

    def words(self, verb: str, job: str) -> list[str]:
        """The words after `python` of the verb's command."""
        return ["-m", self.client.module, verb, job, *(["--region", self.region] if self.region else [])]

    def command(self, verb: str, job: str) -> str:
        """The verb's command for a shell, whatever the job's name."""
        return shlex.join(["python", *self.words(verb, job)])

    def __str__(self) -> str:
        return self.client.module + (f" in {self.region}" if self.region else "")


class Cache:
    """Asks once, even if several threads need the answer at the same time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, patience_s: float = PATIENCE_S) -> None:
        self._clock, self._patience_s = clock, patience_s
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._asking: dict[Hashable, Future[Any]] = {}
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

    def soon(self, asks: Mapping[Hashable, Callable[[], Answer]], seconds: float) -> dict[Hashable, Answer]:
        """The answers as get() has them; of what takes long the last one, or none.  No ask() may raise TrainerError."""
        asking = {key: self._start(key, ask, seconds) for key, ask in asks.items()}
        done, _ = wait(asking.values(), self._patience_s)
        found = {key: one.result() for key, one in asking.items() if one in done}
        last = {key: self._answers[key][1] for key in asking if key in self._answers}
        return {**last, **found}

    def _start(self, key: Hashable, ask: Callable[[], Answer], seconds: float) -> "Future[Answer]":
        with self._lock:
            if key not in self._asking or self._asking[key].done():
                self._asking[key] = self._pool.submit(self.get, key, ask, seconds)
            return self._asking[key]

    def forget(self) -> None:
        """Ask again for everything, as after an action."""
        self._answers.clear()

    def _of(self, key: Hashable) -> threading.Lock:
        with self._lock:
            if key not in self._locks and len(self._locks) >= KEPT:
                old, _ = self._locks.popitem(last=False)
                self._answers.pop(old, None)
                self._asking.pop(old, None)
            return self._locks.setdefault(key, threading.Lock())


def _answer(ask: Callable[[], Answer]) -> Answer | TrainerError:
    try:
        return ask()
    except TrainerError as error:
        return error


def _told(ask: Callable[[Place], tuple[list[Row], str]], place: Place) -> tuple[list[Row], str]:
    try:
        return ask(place)
    except TrainerError as error:
        return [], str(error)


@dataclass
class World:
    """The jobs that a console shows, and where they are."""

    clients: Sequence[Client] = field(default_factory=lambda: [LastingClient(one.module) for one in CLIENTS])
    regions: Sequence[str] = ()  # empty: the one in the AWS configuration
    runs: Path = Path("runs")
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
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

    def everywhere(
        self, verb: str, ask: Callable[[Place], tuple[list[Row], str]], seconds: float
    ) -> tuple[list[Row], list[str], bool]:
        """What all places with the verb have, why some are not complete, and whether one is awaited.

        ask: asks one place; its sentence is empty if it is complete.
        """
        keys = {(verb, str(place)): place for place in self.places(verb)}
        found = self.cache.soon({key: partial(_told, ask, place) for key, place in keys.items()}, seconds)
        rows, reasons = list[Row](), dict[str, list[str]]()
        for key, place in keys.items():
            some, sentence = found.get(key, ([], "no answer yet"))
            rows += some
            reasons.setdefault(sentence, []).append(str(place))
        reasons.pop("", None)  # expired credentials are one sentence, however many places need them
        return rows, [f"{', '.join(places)}: {why}" for why, places in reasons.items()], len(found) < len(keys)

    def place(self, name: str, region: str | None) -> Place:
        """The backend of that name.  Raises SettingsError."""
        for client in self.clients:
            if client.name == name:
                return Place(client, region or None)
        raise SettingsError(f"no backend {name!r} has jobs to look for.")
