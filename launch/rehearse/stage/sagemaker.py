"""A rehearsal on SageMaker: the account as infra/README.md makes it, training jobs as containers, what befalls them."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from moto.logs.models import logs_backends

from launch.core import catalog
from launch.core.errors import NotSetUp
from launch.rehearse.aws.sagemaker.account import Account
from launch.rehearse.aws.sagemaker.jobs import TrainingJob
from launch.rehearse.aws.sagemaker.moto_patches import mended
from launch.rehearse.aws.server import Requests, Seen, first, served
from launch.rehearse.nodes.sagemaker.agent import Agent
from launch.rehearse.nodes.sagemaker.container import Container
from launch.rehearse.nodes.sagemaker.files import files_in
from launch.rehearse.nodes.sagemaker.machine import Machine
from launch.rehearse.nodes.sagemaker.network import why_no_network, why_not_slow
from launch.rehearse.stage.faults import Fault
from launch.rehearse.stage.scene import Asked
from trainer.errors import SettingsError

NEEDED = ("sagemaker", "sagemaker_training", "sagemaker_pytorch_container", "mpi4py")
LOOK_EVERY_S, GRACE_S = 0.1, 30.0  # AWS gives a job that is stopped 120 s
RANKS_PER_CORE = 4
FIRST_WORDS = " parameters, on "  # of rank 0, when all have met

ALONE = (
    "An instance is a host in its own network, mount and host name namespaces, on this machine's kernel, with a folder "
    "in the place of /opt/ml.",
    "ssh, with which mpirun reaches other hosts, is a stand-in.",
)
SHARED = ("The instance is processes on this machine, with a folder in the place of /opt/ml.",)
DIFFERENCES = (
    "SageMaker is moto with what it lacks added, here in one place; some of its messages are from memory.",
    "There are no machines to wait for and no image to pull, so that Starting and Downloading take no time.",
    "The container is this Python, with AWS's own sagemaker-training in it; pip finds no index there.",
    "Checkpoints are in S3 after half a second, not after a minute; a job that is stopped gets 30 s, not 120 s.",
)


@contextmanager
def opened(asked: Asked, folder: Path, requests: Requests) -> Iterator[SageMaker]:
    """SageMaker, and nothing left of it afterwards.  Raises NotSetUp, SettingsError."""
    _need_toolkit()
    nodes, why = asked.options.get("nodes") or 1, why_no_network()
    if nodes > 1 and why:
        raise SettingsError(f"several instances cannot be rehearsed here: it {why}; rehearse --nodes 1, or as root.")
    account = Account(asked.region)
    with ExitStack() as stack:
        stack.enter_context(mended(account.rules))
        account.rules.slow.stopping = None  # a job has stopped when its containers have
        _fill(account, asked)
        endpoint = f"http://127.0.0.1:{stack.enter_context(served(requests))}"
        gpus = _gpus(asked)
        agent = Agent(account, endpoint, folder / "sagemaker", min(gpus, _most_ranks() // nodes or 1), GRACE_S)
        agent.in_network = why is None
        scene = SageMaker(asked, account, agent, endpoint, gpus)
        stack.callback(scene.close)
        yield scene


@dataclass
class SageMaker:
    """See launch.rehearse.stage.scene.Scene.  gpus: that an instance has on AWS."""

    asked: Asked
    account: Account
    agent: Agent
    endpoint: str
    gpus: int
    trouble: str = ""
    full: list[Container] = field(default_factory=list)  # without room on their disks
    died: set[str] = field(default_factory=set)  # jobs whose machines did, by our hand
    _thread: threading.Thread | None = None

    @property
    def nodes(self) -> str:
        return "network namespaces" if self.agent.in_network else "processes"

    @property
    def differences(self) -> Sequence[str]:
        ranks, fewer = self.agent.ranks, f", and not {self.gpus} as on AWS" if self.agent.ranks < self.gpus else ""
        on_cpu = (
            "There are no GPUs: nvidia-smi is a stand-in that shows as many as there are ranks, which compute on the "
            f"CPU; {ranks} on each instance{fewer}."
        )
        return (*(ALONE if self.agent.in_network else SHARED), on_cpu, *DIFFERENCES)

    @property
    def lives(self) -> Mapping[str, Machine]:
        return {machine.name: machine for machine in list(self.agent.machines)}

    def ranks(self) -> Mapping[str, int]:
        return {machine.name: machine.rank for machine in self._on()}

    def watch(self, tell: Callable[[], None], give_up: Callable[[str], None]) -> None:
        self._thread = threading.Thread(target=self._look_on, args=[tell, give_up], name="watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.agent.closing.set()
        if self._thread:
            self._thread.join()
        self.agent.close()

    def _look_on(self, tell: Callable[[], None], give_up: Callable[[str], None]) -> None:
        while not self.agent.closing.wait(LOOK_EVERY_S):
            try:
                self.agent.step()
                for container in list(self.full):
                    container.fill_disk()  # again: what was removed meanwhile must not make room
                tell()
                if self.agent.errors:
                    raise RuntimeError(self.agent.errors[0].splitlines()[-1])
            except Exception as error:  # a launcher whose job never goes on would wait for hours
                self.trouble = f"{type(error).__name__}: {error}"
                give_up(self.trouble)
                return

    # ---- what befalls it

    def set_up(self, fault: Fault) -> str | None:
        match fault.kind:
            case "no-capacity":
                raise SettingsError(f"--inject {fault}: SageMaker chooses a zone with room by itself.")
            case "spot-notice" if not self.asked.options.get("spot"):
                raise SettingsError(f"--inject {fault}: AWS takes spot machines back, and no others; add --spot.")
            case "disk-full":
                if not self.agent.in_network:
                    why = why_no_network()
                    raise SettingsError(f"--inject {fault}: a disk that is the instance's own {why}.")
                if not self.asked.options.get("checkpoints", True):
                    raise SettingsError(
                        f"--inject {fault}: nothing is written without checkpoints; drop --no-checkpoints."
                    )
                self.agent.has_disks = True
            case "slow-network":
                if (self.asked.options.get("nodes") or 1) < 2:
                    raise SettingsError(f"--inject {fault}: one instance needs no network; add --nodes 2.")
                if why := why_not_slow():
                    raise SettingsError(f"--inject {fault}: a network that can be slowed down {why}.")
                self.agent.rate = fault.where
                return f"every instance sends and gets {fault.where} at most"
        return None

    def strike(self, fault: Fault) -> str | None:
        on = self._on()
        if not on or on[-1].job.secondary != "Training":
            return None
        run, last = self.agent.runs[on[-1].job.name], on[-1].name
        if fault.kind == "disk-full":
            self.full.append(run.containers[0])
            run.containers[0].fill_disk()
            return f"{on[0].name} has no room left on its disk"
        if fault.kind == "spot-notice":
            return f"AWS takes the machines of {run.job.name} back" if run.strike("interrupted") else None
        if not run.strike("died"):
            return None
        self.died.add(run.job.name)
        return f"{last} is dead, and with it all of {run.job.name}'s machines"

    def mend(self) -> str | None:
        if not (job := self._newest()) or job.status != "Failed":
            return None
        if self.full:
            self.full.clear()
            return "the next machine's disk has room"
        if job.name in self.died:
            self.died.clear()
            return f"{job.name} died with its machine"
        return None

    def _on(self) -> list[Machine]:
        """The machines that run, in rank order."""
        return [machine for machine in list(self.agent.machines) if machine.ended is None]

    # ---- when it happened

    def starts(self, seen: Sequence[Seen]) -> Mapping[str, float | None]:
        steps = [row for job in list(self.account.jobs.values()) for row in job.described["SecondaryStatusTransitions"]]
        began = {name: [_moment(row["StartTime"]) for row in steps if row["Status"] == name] for name in STEPS.values()}
        return {
            "provision": first(seen, "PutObject") or first(seen, "CreateTrainingJob"),
            **{phase: min(began[STEPS[phase]], default=None) for phase in ("boot", "rendezvous")},
            "train": self._met(),
            "tear down": max(began[STEPS["tear down"]], default=None),
        }

    def _met(self) -> float | None:
        """When rank 0 said its first line."""
        groups = list(logs_backends[self.account.id][self.account.region].groups.values())
        events = [event for group in groups for stream in list(group.streams.values()) for event in list(stream.events)]
        times = [event.timestamp / 1000 for event in events if FIRST_WORDS in event.message]
        return min(map(_monotonic, times), default=None)

    def _newest(self) -> TrainingJob | None:
        return next(reversed(list(self.account.jobs.values())), None)


# SageMaker's statuses with which phases begin.
STEPS = {"boot": "Downloading", "rendezvous": "Training", "tear down": "Uploading"}


def _moment(when: datetime) -> float:
    return _monotonic(when.timestamp())


def _monotonic(timestamp: float) -> float:
    """A moment of the wall clock by the monotonic one, in s."""
    return timestamp - time.time() + time.monotonic()


def _gpus(asked: Asked) -> int:
    """That an instance has on AWS; the launcher itself refuses a type that is not known."""
    known = catalog.load().get(str(asked.options.get("instance_type")).removeprefix(catalog.SAGEMAKER_PREFIX))
    return known.gpus if known else 1


def _most_ranks() -> int:
    return RANKS_PER_CORE * (os.cpu_count() or 1)


def _fill(account: Account, asked: Asked) -> None:
    """The account as infra/README.md makes it, and what the command line names."""
    account.fill()
    if asked.bucket and asked.bucket not in account.buckets():
        account.make_bucket(asked.bucket)
    account.make_secrets(asked.options.get("secret") or ())
    if role := asked.options.get("role"):
        account.make_known(str(role))
    for word in asked.options.get("data") or ():
        name, uri = word.split("=", 1) if not word.startswith(("s3:", "fsx:", "efs:")) and "=" in word else ("", word)
        if not uri.startswith("s3://"):
            raise SettingsError(f"--data {word}: only data in S3 can be rehearsed.")
        if asked.data is None:
            raise SettingsError(f"--data {word}: name a folder that is to lie there, with --rehearse-data FOLDER.")
        _put_data(account, uri, asked.data / name)


def _put_data(account: Account, uri: str, folder: Path) -> None:
    """What `folder` holds, under `uri`."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    if bucket not in account.buckets():
        account.make_bucket(bucket)
    for file in files_in(folder):
        key = "/".join(part for part in (prefix.rstrip("/"), file.relative_to(folder).as_posix()) if part)
        account.put(bucket, key, file.read_bytes())


def _need_toolkit() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    missing += [] if shutil.which("mpirun", path=path) else ["mpirun"]
    if missing:
        raise NotSetUp(
            f"a rehearsal on SageMaker needs {', '.join(missing)}; "
            "run pip install -c constraints.txt -e .[rehearse-sagemaker]"
        )
