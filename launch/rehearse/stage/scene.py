"""What a rehearsal asks of the backend that it plays on: ec2/scene.py and sagemaker/scene.py have one each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from launch.core.backend import Backend
from launch.rehearse.stage.faults import Fault

if TYPE_CHECKING:
    from launch.rehearse.aws.account import Account
    from launch.rehearse.aws.server import Requests, Seen

KILLED = 137  # the exit code of a launcher that got SIGKILL
PHASES = ("plan", "provision", "boot", "rendezvous", "train", "tear down")


@dataclass(frozen=True)
class Asked:
    """What is rehearsed.

    backend: whose job it is; argv: its command line; options: its settings by name;
    data: a folder that the data set's volume or channel holds.
    """

    backend: Backend
    argv: tuple[str, ...]
    job: str
    options: Mapping[str, Any]
    dataset: str
    epochs: int
    env: Mapping[str, str]
    faults: tuple[Fault, ...] = ()
    data: Path | None = None

    @property
    def module(self) -> str:
        return self.backend.module

    @property
    def region(self) -> str:
        """The one that the job would run in."""
        told = (self.options.get("region"), self.env.get("AWS_REGION"), self.env.get("AWS_DEFAULT_REGION"))
        return next((region for region in told if region), "us-east-1")

    @property
    def bucket(self) -> str | None:
        """The user's own, if the job has one."""
        return self.options.get("bucket")

    @property
    def leaves(self) -> bool:
        """Whether the launcher is told to leave the job alone."""
        return bool(self.options.get("detach")) or self.options.get("wait") is False

    @property
    def launch(self) -> list[str]:
        """The command line again, without the rehearsal: later flags win, also over those in a --config."""
        return [*self.argv, "--job-name", self.job, "--no-rehearse", "--inject", ""]


class Life(Protocol):
    """One node from its start to its end: began, ended (monotonic, s), and how, in AWS's words."""

    began: float
    ended: float | None
    how: str

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def zone(self) -> str: ...

    @property
    def address(self) -> str: ...

    @property
    def state(self) -> str:
        """In a word: boots, trains, uploads, off."""
        ...

    @property
    def seconds(self) -> float: ...

    @property
    def usd_per_hour(self) -> float:
        """On AWS, on demand, with its disks."""
        ...


class Scene(Protocol):
    """AWS and its nodes, on this machine.

    account: what is in this AWS; endpoint: where the launcher finds it; nodes: what they are here, in words;
    differences: from AWS's, a sentence each; lives: all nodes so far, by name; trouble: why this machine makes no
    node, if so.
    """

    @property
    def account(self) -> Account: ...

    @property
    def endpoint(self) -> str: ...

    @property
    def nodes(self) -> str: ...

    @property
    def differences(self) -> Sequence[str]: ...

    @property
    def lives(self) -> Mapping[str, Life]: ...

    @property
    def trouble(self) -> str: ...

    def watch(self, tell: Callable[[], None], give_up: Callable[[str], None]) -> None:
        """Makes nodes from now on.  tell: is called now and then; give_up: with the trouble, if there is some."""
        ...

    def close(self) -> None:
        """Makes no more nodes, and ends those that run; twice is fine."""
        ...

    def ranks(self) -> Mapping[str, int]:
        """Each node's rank, by its name, once it has one."""
        ...

    def set_up(self, fault: Fault) -> str | None:
        """Prepares a fault; what it did, in words, if that was all.  Raises SettingsError if it cannot happen here."""
        ...

    def strike(self, fault: Fault) -> str | None:
        """Lets a fault happen whose epoch has come; what it did, in words, or None: there is nobody to hit now."""
        ...

    def mend(self) -> str | None:
        """After a command that failed: puts right what made it fail, and says what, if the same command again goes on.

        None: nothing that was injected keeps the job from ending well.
        """
        ...

    def starts(self, seen: Sequence[Seen]) -> Mapping[str, float | None]:
        """When (monotonic, s) each phase but the first began, as far as the requests and the nodes tell."""
        ...


Opened = Callable[[Asked, Path, "Requests"], AbstractContextManager[Scene]]
