"""The job that is rehearsed, and what a rehearsal needs of its backend, which ec2.py and sagemaker.py add."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.core.backend import Backend
from launch.core.training.base import Training
from launch.core.training.options import END

if TYPE_CHECKING:
    from launch.rehearse.aws.account import Account
    from launch.rehearse.aws.server import Request, RequestLog
    from launch.rehearse.faults import Fault

KILLED = 137  # the exit code of a launcher that got SIGKILL
POLL_S = 0.1
PHASES = ("plan", "provision", "boot", "rendezvous", "train", "tear down")


@dataclass(frozen=True)
class RehearsedJob:
    """The job of one command line."""

    backend: Backend
    argv: tuple[str, ...]  # the command line, up to a script's arguments
    name: str
    options: Mapping[str, Any]  # the backend's settings, by name
    train: Training
    env: Mapping[str, str]  # the user's
    arguments: tuple[str, ...] = ()
    on_aws: tuple[str, ...] = ()  # the command line without the rehearsal, as the user gave it
    faults: tuple[Fault, ...] = ()
    data: Path | None = None  # a folder with what the data set's volume or channel holds

    @property
    def module(self) -> str:
        return self.backend.module

    @property
    def data_name(self) -> str:
        """The name under which the data set is published."""
        return str(self.options.get("data") or self.train.dataset)

    @property
    def is_prepared(self) -> bool:
        """Whether trainer.prepare has made the data."""
        return self.data is not None and (self.data / "manifest.json").is_file()

    @property
    def is_published(self) -> bool:
        """Whether launch.data publishes the data: prepared data, or data that launch.ec2's --data names.

        SageMaker's --data takes URIs instead.
        """
        return self.is_prepared or (self.data is not None and isinstance(self.options.get("data"), str))

    @property
    def nodes(self) -> int:
        return self.options.get("nodes") or 1

    @property
    def region(self) -> str:
        """The first region that the job tries."""
        return self.regions[0]

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions that it may run in, in the order in which they are tried."""
        given = self.options.get("region")
        if given and not isinstance(given, str):
            return tuple(dict.fromkeys(given))
        candidates = (given, self.env.get("AWS_REGION"), self.env.get("AWS_DEFAULT_REGION"))
        return (next((region for region in candidates if region), "us-east-1"),)

    @property
    def bucket(self) -> str | None:
        """The user's own bucket, if the job has one."""
        return self.options.get("bucket")

    @property
    def is_detached(self) -> bool:
        """Whether the launcher leaves the job running by itself."""
        return any(self.options.get(name) for name in ("detach", "queue")) or self.options.get("wait") is False

    @property
    def launch_words(self) -> list[str]:
        """The command line without the rehearsal.  Later flags take precedence, also over --config.

        --outcome is kept, so that only the launcher writes outcome.json, as on AWS.
        """
        return self._words("--job-name", self.name)

    @property
    def next_name(self) -> str:
        """The name of the second job, which a rehearsal of warm nodes runs on them."""
        return f"{self.name[:43]}-next"

    @property
    def next_words(self) -> list[str]:
        """The command line of that job."""
        return self._words("--job-name", self.next_name, "--no-fetch")

    def _words(self, *own: str) -> list[str]:
        after = [END, *self.arguments] if self.arguments else []
        return [*self.argv, *own, "--no-rehearse", "--yes", "--inject", "", *after]


@dataclass(kw_only=True)
class NodeRun(ABC):
    """One node from its start to its end."""

    name: str
    type: str
    zone: str  # empty where AWS does not show it
    address: str
    usd_per_hour: float  # on AWS, on demand, with its disks
    began: float = field(default_factory=time.monotonic)  # s
    ended: float | None = None  # s, on the same clock
    how: str = ""  # it ended, in AWS's words

    @property
    @abstractmethod
    def state(self) -> str:
        """One word: boots, trains, uploads (the results), off."""

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.began

    def end(self, how: str) -> None:
        """Record its end and the reason."""
        self.ended, self.how = time.monotonic(), how


@dataclass(kw_only=True)
class RehearsedBackend(ABC):
    """AWS and its nodes, on this machine."""

    job: RehearsedJob
    account: Account  # what this AWS contains
    endpoint: str  # the URL of this AWS for the launcher
    node_kind: str  # what nodes are on this machine, in words
    publishes: bool = False  # launch.data publishes the data before the job, as on AWS
    trouble: str = ""  # why this machine cannot make nodes; empty if it can
    on_line: Callable[[str], None] = lambda line: None  # called with each line of a launcher on AWS
    closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    @abstractmethod
    def differences(self) -> Sequence[str]:
        """From the real AWS, one sentence each."""

    @property
    @abstractmethod
    def node_runs(self) -> Mapping[str, NodeRun]:
        """All nodes so far, by name."""

    def watch(self, on_poll: Callable[[], None], on_trouble: Callable[[str], None]) -> None:
        """Start the thread that runs nodes.  on_poll: called after each poll of AWS; on_trouble: with its error."""
        self._thread = threading.Thread(target=self._watch, args=[on_poll, on_trouble], name="watcher", daemon=True)
        self._thread.start()

    def _watch(self, on_poll: Callable[[], None], on_trouble: Callable[[str], None]) -> None:
        while not self.closing.wait(POLL_S):
            try:
                self.poll()
                on_poll()
            except Exception as error:  # otherwise the launcher would wait for its nodes for a quarter of an hour
                self.trouble = f"{type(error).__name__}: {error}"
                on_trouble(self.trouble)
                return

    def close(self) -> None:
        """Start no more nodes and end running ones; a second call does nothing."""
        self.closing.set()
        if self._thread:
            self._thread.join()
        self.end_nodes()

    def await_end(self) -> int | None:
        """Wait for a job that needs no launcher to follow it; return its exit code, None if it needs one."""
        return None

    @abstractmethod
    def poll(self) -> None:
        """Start a node for each new instance, and end those whose instances have ended."""

    @abstractmethod
    def end_nodes(self) -> None:
        """End all running nodes."""

    @abstractmethod
    def ranks(self) -> Mapping[str, int]:
        """The rank of each node that has one, by the node's name."""

    @abstractmethod
    def prepare(self, fault: Fault) -> str | None:
        """Prepare a fault; return what it did, in words, if nothing is left to do.

        Raises SettingsError if the fault is not possible here.
        """

    @abstractmethod
    def inject(self, fault: Fault) -> str | None:
        """Inject a due fault; return what it did, in words, or None if there is no node for it."""

    @abstractmethod
    def repair(self) -> str | None:
        """After a failed command, remove an injected cause, so that it can resume; return the cause in words.

        None: no injected fault is the cause.
        """

    @abstractmethod
    def phase_starts(self, requests: Sequence[Request]) -> Mapping[str, float | None]:
        """When each phase but the first began (monotonic, s), as far as requests and nodes show it."""


OpenBackend = Callable[[RehearsedJob, Path, "RequestLog"], AbstractContextManager[RehearsedBackend]]
