"""A rehearsal on SageMaker: an account as in infra/account.md, jobs as containers, and their faults."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from moto.logs.models import logs_backends

from launch.aws.names import TOOLKIT
from launch.core import catalog
from launch.core.errors import NotSetUp
from launch.rehearse.accounts import fill_sagemaker, first_type, grant
from launch.rehearse.aws.batch.moto_patches import make_queue
from launch.rehearse.aws.batch.scheduler import step
from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from launch.rehearse.aws.sagemaker.jobs import TrainingJob
from launch.rehearse.aws.sagemaker.moto_patches import patched
from launch.rehearse.aws.server import Request, RequestLog, first, served
from launch.rehearse.backend import RehearsedBackend, RehearsedJob
from launch.rehearse.faults import Fault
from launch.rehearse.nodes.network import why_not_slow
from launch.rehearse.nodes.sagemaker.container import KEY, TOKEN, Container
from launch.rehearse.nodes.sagemaker.network import why_no_network
from launch.rehearse.nodes.sagemaker.run import Agent, InstanceRun
from trainer.errors import SettingsError

NEEDED = ("sagemaker_training", "sagemaker_pytorch_container", "mpi4py")
RANKS_PER_CORE = 4
QUEUED = 4  # instances at a time of a rehearsed queue, as in a new one of launch.infra
FIRST_WORDS = " parameters, on "  # in the first line of rank 0, when all ranks have met

ALONE = (
    "An instance is a host in its own network, mount and host name namespaces, on this machine's kernel, with a folder "
    "as its /opt/ml.",
    "ssh, which mpirun uses to reach other hosts, is a stand-in.",
)
SHARED = ("The instance is processes on this machine, with a folder as its /opt/ml.",)
QUEUES = "AWS Batch is ours, by AWS's pages and model; its queue has no other jobs."
DIFFERENCES = (
    "SageMaker is moto, extended by what it lacks; some of its messages are from memory.",
    "There is no capacity to wait for and no image to pull, so Starting and Downloading take no time.",
    "The container is this Python, with AWS's own sagemaker-training in it; pip finds no index there, and looks for "
    "nothing that requirements depend on.",
    "Checkpoints are copied to S3 after half a second, not a minute.",
)


@contextmanager
def opened(job: RehearsedJob, folder: Path, log: RequestLog) -> Iterator[SageMaker]:
    """Run SageMaker and its instances inside the block, and remove them after.  Raises NotSetUp, SettingsError."""
    check_toolkit(job)
    why = why_no_network()
    if job.nodes > 1 and why:
        raise SettingsError(f"a rehearsal of several instances {why}; use --nodes 1, or run it as root.")
    account = SageMakerAccount(job.region)
    with ExitStack() as stack:
        stack.enter_context(patched(account.rules))
        account.rules.answers_stopping = None  # a job is Stopped only when its containers have ended
        fill_sagemaker(account, job)
        if queue := job.options.get("queue"):
            make_queue(account.rules, f"{TOOLKIT}-{queue}", max(QUEUED, job.nodes), job.region, account.id)
        grant(account.rules.access, account.id, job, "sagemaker", KEY, TOKEN)
        serve = partial(served, log, account.rules.access.tokens)
        endpoint = f"http://127.0.0.1:{stack.enter_context(serve())}"
        gpus = gpus_of(job)
        agent = Agent(account, endpoint, serve, folder / "sagemaker", min(gpus, max_ranks() // job.nodes or 1))
        agent.in_network = why is None
        kind = "network namespaces" if agent.in_network else "processes"
        with closing(
            SageMaker(job=job, account=account, agent=agent, endpoint=endpoint, gpus=gpus, node_kind=kind)
        ) as backend:
            yield backend


@dataclass(kw_only=True)
class SageMaker(RehearsedBackend):
    """SageMaker and its instances on this machine."""

    account: SageMakerAccount
    agent: Agent
    gpus: int  # of an instance on AWS
    full: list[Container] = field(default_factory=list)  # containers with a full disk
    died: set[str] = field(default_factory=set)  # training jobs whose instance died by a fault

    @property
    def differences(self) -> Sequence[str]:
        ranks = self.agent.ranks
        fewer = f" (on AWS: {self.gpus})" if ranks < self.gpus else ""
        on_cpu = (
            f"There are no GPUs: nvidia-smi is a stand-in that shows {ranks} on each instance{fewer}, and their ranks "
            "compute on the CPU."
        )
        queued = (QUEUES,) if self.job.options.get("queue") else ()
        return (*(ALONE if self.agent.in_network else SHARED), on_cpu, *DIFFERENCES, *queued)

    @property
    def node_runs(self) -> Mapping[str, InstanceRun]:
        return {instance.name: instance for instance in list(self.agent.instances)}

    def ranks(self) -> Mapping[str, int]:
        return {instance.name: instance.rank for instance in self._running()}

    def poll(self) -> None:
        step(self.account.rules)  # of queues
        self.agent.step()
        for container in list(self.full):
            container.fill_disk()  # again, as files may have been removed since
        if self.agent.errors:
            raise RuntimeError(self.agent.errors[0].splitlines()[-1])

    def end_nodes(self) -> None:
        self.agent.close()

    # ---- faults

    def prepare(self, fault: Fault) -> str | None:
        if why := self._why_not(fault):
            raise SettingsError(f"--inject {fault}: {why}")
        if fault.kind == "disk-full":
            self.agent.has_disks = True
        if fault.kind == "slow-network":
            self.agent.rate = fault.where
            return f"every instance sends and receives at most {fault.where}"
        return None

    def _why_not(self, fault: Fault) -> str | None:
        """Why the fault is not possible here, as a sentence with the remedy; None if it is."""
        match fault.kind:
            case "no-capacity":
                return "SageMaker chooses the zone; leave this fault out."
            case "controller-killed":
                return "a queue of SageMaker's has no launcher; leave this fault out."
            case "no-route":
                return "SageMaker's instances are in its own network; leave this fault out."
            case "sick-node":
                return "SageMaker looks after its machines; leave this fault out."
            case "spot-notice" if not self.job.options.get("spot"):
                return "only spot instances are interrupted; add --spot."
            case "disk-full" if not self.agent.in_network:
                return f"a disk of the instance's own {why_no_network()}."
            case "disk-full" if not self.job.options.get("checkpoints", True):
                return "nothing is written without checkpoints; drop --no-checkpoints."
            case "slow-network" if self.job.nodes < 2:
                return "one instance uses no network; add --nodes 2."
            case "slow-network" if why := why_not_slow():
                return f"slowing down a network {why}."
        return None

    def inject(self, fault: Fault) -> str | None:
        running = self._running()
        if not running or running[-1].job.secondary != "Training":
            return None
        run, last = self.agent.runs[running[-1].job.name], running[-1].name
        if fault.kind == "disk-full":
            self.full.append(run.containers[0])
            run.containers[0].fill_disk()
            return f"the disk of {running[0].name} is full"
        if fault.kind == "spot-notice":
            return f"AWS reclaimed the instances of {run.job.name}" if run.end_abruptly("interrupted") else None
        if not run.end_abruptly("died"):
            return None
        self.died.add(run.job.name)
        return f"{last} died, and SageMaker replaces all instances of {run.job.name}"

    def repair(self) -> str | None:
        job = self._newest_job()
        if job is None or job.status != "Failed":
            return None
        if self.full:
            self.full.clear()
            return "the disk of the next instance has free space"
        if job.name in self.died:
            self.died.clear()
            return f"{job.name} failed because its instance died"
        return None

    def _running(self) -> list[InstanceRun]:
        """The instances that run, in rank order."""
        return [instance for instance in list(self.agent.instances) if instance.ended is None]

    # ---- phases

    def phase_starts(self, requests: Sequence[Request]) -> Mapping[str, float | None]:
        return {
            "provision": first(requests, "PutObject") or first(requests, "CreateTrainingJob"),
            "boot": min(self._began("Downloading"), default=None),
            "rendezvous": min(self._began("Training"), default=None),
            "train": self._met(),
            "tear down": max(self._began("Uploading"), default=None),
        }

    def _began(self, status: str) -> list[float]:
        """When each job entered this secondary status (monotonic, s)."""
        moments = []
        for job in list(self.account.jobs.values()):
            rows = job.described["SecondaryStatusTransitions"]
            moments += [_monotonic(row["StartTime"].timestamp()) for row in rows if row["Status"] == status]
        return moments

    def _met(self) -> float | None:
        """When rank 0 logged its first line (monotonic, s)."""
        times = []
        for group in list(logs_backends[self.account.id][self.account.region].groups.values()):
            for stream in list(group.streams.values()):
                times += [event.timestamp / 1000 for event in list(stream.events) if FIRST_WORDS in event.message]
        return min(map(_monotonic, times), default=None)

    def _newest_job(self) -> TrainingJob | None:
        return next(reversed(list(self.account.jobs.values())), None)


def _monotonic(timestamp: float) -> float:
    """Convert a wall-clock time to the monotonic clock, in s."""
    return timestamp - time.time() + time.monotonic()


# ---- this machine


def gpus_of(job: RehearsedJob) -> int:
    """GPUs of an instance on AWS; 1 for an unknown type, which the launcher refuses."""
    instance = catalog.load().get(first_type(job).removeprefix(catalog.SAGEMAKER_PREFIX))
    return instance.gpus if instance else 1


def max_ranks() -> int:
    return RANKS_PER_CORE * (os.cpu_count() or 1)


def check_toolkit(job: RehearsedJob) -> None:
    """Raise NotSetUp with the command that installs what is missing."""
    needed = ("sagemaker", *NEEDED) if job.options.get("through") == "estimator" else NEEDED
    missing = [name for name in needed if find_spec(name) is None]
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    if shutil.which("mpirun", path=path) is None:
        missing.append("mpirun")
    if missing:
        raise NotSetUp(
            f"a rehearsal on SageMaker needs {', '.join(missing)}; "
            "run pip install -c constraints.txt -e '.[rehearse-sagemaker]' in the checkout"
        )
