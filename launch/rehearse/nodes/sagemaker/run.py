"""Run the training jobs of moto's account on this machine: instances, data, containers and results.

Time limits, StopTrainingJob and faults have the same effects as on AWS, only sooner.
"""

from __future__ import annotations

import posixpath
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from moto.s3.exceptions import MissingBucket

from launch.core import catalog
from launch.rehearse.aws.pricing import multiple
from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from launch.rehearse.aws.sagemaker.changes import (
    advance,
    complete,
    fail,
    interrupt,
    restart,
    stopped,
    stopping,
)
from launch.rehearse.aws.sagemaker.jobs import WITHOUT_INSTANCES, TrainingJob
from launch.rehearse.backend import NodeRun
from launch.rehearse.nodes.sagemaker.container import Container, ContainerSpec
from launch.rehearse.nodes.sagemaker.files import Checkpoints, download, line_handler, packed, put
from launch.rehearse.nodes.sagemaker.network import GATEWAY, address, network

Serve = Callable[..., AbstractContextManager[int]]
STATES = {"Starting": "boots", "Downloading": "boots", "Training": "trains"}


@dataclass(kw_only=True)
class InstanceRun(NodeRun):
    """One instance of a training job."""

    job: TrainingJob
    rank: int  # its index among the job's instances

    @property
    def state(self) -> str:
        return "off" if self.ended is not None else STATES.get(self.job.secondary, "uploads")


def _usd_per_hour(job: TrainingJob) -> float:
    instance = catalog.load().get(job.instance_type.removeprefix(catalog.SAGEMAKER_PREFIX))
    return (instance.sagemaker_usd_per_hour or 0.0) * multiple(job.arn.split(":")[3]) if instance else 0.0


class Agent:
    """Runs the jobs that are InProgress in `account`, each in a separate thread."""

    def __init__(self, account: SageMakerAccount, url: str, serve: Serve, folder: Path, ranks: int = 2) -> None:
        """url: of AWS on this machine; serve: serves the same AWS elsewhere, see served(); ranks: GPUs per instance."""
        self.account, self.url, self.serve, self.folder, self.ranks = account, url, serve, folder, ranks
        self.in_network = False  # whether a single instance gets its own network namespace, too
        self.has_disks = False  # whether checkpoints are on separate file systems
        self.rate = ""  # of the instances' network, such as 200mbit
        self.closing = threading.Event()
        self.errors: list[str] = []  # of the agent, not of jobs
        self.instances: list[InstanceRun] = []  # all instances so far
        self.runs: dict[str, JobRun] = {}

    def close(self) -> None:
        """End everything that runs."""
        self.closing.set()
        for run in self.runs.values():
            run.join()

    def step(self) -> None:
        """Start the jobs that are new."""
        for name, job in list(self.account.jobs.items()):
            if name not in self.runs and not job.has_ended:
                self.runs[name] = JobRun(self, job, self.folder / str(len(self.runs) + 1))
                self.runs[name].start()

    def began(self, job: TrainingJob, addresses: Sequence[str]) -> list[InstanceRun]:
        """Add the instances that a job has got, in rank order."""
        instances = []
        for rank, at in enumerate(addresses):
            earlier = sum(instance.rank == rank for instance in self.instances)
            name = f"algo-{rank + 1}" + (f" ({earlier + 1})" if earlier else "")
            instances.append(
                InstanceRun(
                    name=name, type=job.instance_type, zone="", address=at or "127.0.0.1",
                    usd_per_hour=_usd_per_hour(job), job=job, rank=rank,
                )
            )  # fmt: skip
        self.instances += instances
        return instances


POLL_S, SYNC_S = 0.05, 0.5  # AWS: seconds, a minute or so
LONGEST_REASON = 1024
# Causes that end an attempt at once -> their effects on the job.
ABRUPT_ENDS: dict[str, Callable[[TrainingJob], object]] = {"interrupted": interrupt, "died": restart}


class JobRun(threading.Thread):
    """Runs a job to its end, or until the agent closes."""

    def __init__(self, agent: Agent, job: TrainingJob, folder: Path) -> None:
        super().__init__(name=f"sagemaker {job.name}")
        self.agent, self.job, self.folder = agent, job, folder
        self.account, self.request = agent.account, job.request
        names = [f"algo-{number}" for number in range(1, job.count + 1)]
        self.has_network = job.count > 1 or agent.in_network
        self.hosts = names if self.has_network else ["localhost"]
        self.checkpoints = Checkpoints(self.account, self.request.get("CheckpointConfig"))
        self.bases: list[Path] = []
        self.containers: list[Container] = []
        self._folders: list[Path] = []  # of checkpoints
        self._abrupt_end = ""
        self._took_effect = threading.Event()

    def run(self) -> None:
        try:
            while not self._attempt():
                pass
        except MissingBucket as error:
            fail(self.job, f"ClientError: {error.message}")
        except Exception as error:
            self.agent.errors.append(traceback.format_exc())
            if not self.job.has_ended:
                fail(self.job, f"InternalServerError: {error}")

    def end_abruptly(self, cause: str) -> bool:
        """End the instances, which are "interrupted" or have "died"; return whether it took effect."""
        self._took_effect.clear()
        self._abrupt_end = cause
        give_up = time.monotonic() + 30
        while self.is_alive() and time.monotonic() < give_up:
            if self._took_effect.wait(POLL_S):
                return True
        return self._took_effect.is_set()

    def _attempt(self) -> bool:
        """Run the job on one set of instances; return whether that was the last attempt."""
        if not self._get_instances():
            return True
        instances = self.agent.began(self.job, [address(i) if self.has_network else "" for i in range(self.job.count)])
        try:
            return self._run_containers()
        finally:
            for instance in instances:
                instance.end(how=self._end_reason())

    def _run_containers(self) -> bool:
        self.bases = [self.folder / str(self._number) / host for host in self.hosts]
        for base in self.bases:
            self._fill(base)
        if not self._advance("Training"):
            return self._end_stop()
        with ExitStack() as stack:
            self.containers = self._start(stack)
            self._folders = self._checkpoint_folders()
            ending = self._follow(self.containers)
            # AWS does not document which host's reason it takes; the last host is the least likely to know.
            failed = next((container for container in self.containers[::-1] if container.exit_code), None)
            _end(self.containers, 0 if ending in ("closing", *ABRUPT_ENDS) else self.job.rules.stop_s)
            failure = ""
            if ending == "exited" and failed is not None:
                failure = failure_reason(failed.failure, failed.exit_code or 0)
            return self._finish(ending, failure)

    def _checkpoint_folders(self) -> list[Path]:
        """Where each container keeps its checkpoints, as this process sees it."""
        pairs = zip(self.containers, self.bases, strict=True)
        return [container.disk or base / self.checkpoints.folder for container, base in pairs]

    def _end_reason(self) -> str:
        """Why the instances ended, in SageMaker's words."""
        status = self.job.secondary
        if self.job.status == "InProgress" and status not in WITHOUT_INSTANCES:
            return "end of the rehearsal"
        return "InternalServerError" if status == "Restarting" else status

    @property
    def _number(self) -> int:
        """The number of this attempt, from 1."""
        return sum(map(self.job.statuses.count, WITHOUT_INSTANCES)) + 1

    def _advance(self, to: str) -> bool:
        """Move the job to a status; return whether it got there, and did not end or stop."""
        with self.job.rules.lock:
            if self.job.status == "InProgress":
                advance(self.job, to)
            return self.job.status == "InProgress" and self.job.secondary == to

    def _get_instances(self) -> bool:
        """Wait for capacity; return whether the job has it."""
        while not self._advance("Downloading"):
            if self.job.status == "InProgress" and (limit := self._limit()):
                self._begin_stop()
                stopped(self.job, limit)
            if self.job.status != "InProgress" or self.agent.closing.wait(POLL_S):
                self._end_stop()
                return False
        return True

    def _begin_stop(self) -> None:
        with self.job.rules.lock:  # StopTrainingJob may come at any time
            if self.job.status == "InProgress":
                stopping(self.job)

    def _end_stop(self) -> bool:
        if self.job.status == "Stopping":
            stopped(self.job)
        return True

    def _limit(self) -> str:
        """The status for a time limit that has passed; empty if none has."""
        now, described = self.job.rules.now(), self.job.described
        limits = described["StoppingCondition"]
        for status, since, key in (
            ("MaxWaitTimeExceeded", described["CreationTime"], "MaxWaitTimeInSeconds"),
            ("MaxRuntimeExceeded", described.get("TrainingStartTime", now), "MaxRuntimeInSeconds"),
        ):
            if key in limits and (now - since).total_seconds() > limits[key]:
                return status
        pending_s = limits.get("MaxPendingTimeInSeconds")
        if pending_s is not None and "TrainingStartTime" not in described:
            waited_s = (now - described["CreationTime"]).total_seconds()
            return "Stopped" if waited_s > pending_s else ""
        return ""

    # ---- before the containers run

    def _fill(self, base: Path) -> None:
        """Copy data and checkpoints to where a container finds them."""
        for channel in self.request.get("InputDataConfig", []):
            folder, source = base / "input/data" / channel["ChannelName"], channel["DataSource"].get("S3DataSource")
            if source is None:
                system = channel["DataSource"]["FileSystemDataSource"]
                known = self.account.rules.file_systems
                shutil.copytree(known[system["FileSystemId"], system["DirectoryPath"]], folder, dirs_exist_ok=True)
                continue
            download(self.account, self.account.under(source["S3Uri"]), source["S3Uri"], folder)
        self.checkpoints.restore(base)

    def _start(self, stack: ExitStack) -> list[Container]:
        net, url = None, self.agent.url
        if self.has_network:
            net = stack.enter_context(network(self.folder / str(self._number) / "network", self.hosts, self.agent.rate))
            url = f"http://{GATEWAY}:{stack.enter_context(self.agent.serve(address=GATEWAY, place=net.bridge.call))}"
        containers = []
        for number, (base, host) in enumerate(zip(self.bases, self.hosts, strict=True), 1):
            on_line = line_handler(self.account, self.job, number)
            containers.append(stack.enter_context(Container(self._spec(base, host, url), net, on_line)))
        return containers

    def _spec(self, base: Path, host: str, url: str) -> ContainerSpec:
        return ContainerSpec(
            base=base,
            hyperparameters=_without_gpus(self.request.get("HyperParameters", {})),
            host=host,
            hosts=self.hosts,
            instance_type=self.job.instance_type,
            channels=[channel["ChannelName"] for channel in self.request.get("InputDataConfig", [])],
            gpus=self.agent.ranks,
            env={**self.request.get("Environment", {}), "S3_ENDPOINT_URL": url, "AWS_ENDPOINT_URL": url},
            job=self.job.name,
            region=self.account.region,
            disk=str(self.checkpoints.folder) if self.agent.has_disks else "",
        )

    # ---- while they run

    def _follow(self, containers: Sequence[Container]) -> str:
        """Wait for an end and return which: exited, stopped, a cause, closing, or a time limit."""
        synced_at = time.monotonic()
        while True:
            codes = [container.exit_code for container in containers]
            if any(codes) or None not in codes:  # one failure ends all
                return "exited"
            if self.job.status == "Stopping":
                return "stopped"
            if self._abrupt_end:
                return self._abrupt_end
            if limit := self._limit():
                self._begin_stop()
                return limit
            if self.agent.closing.wait(POLL_S):
                return "closing"
            if time.monotonic() - synced_at > SYNC_S:
                self.checkpoints.keep(self._folders)
                synced_at = time.monotonic()

    # ---- after they have run

    def _finish(self, ending: str, failure: str) -> bool:
        """Upload results and set the job's state; return whether that was the last attempt."""
        if ending == "closing":
            return True
        if ending in ABRUPT_ENDS and self._apply_abrupt_end():
            return self.job.has_ended
        self.checkpoints.keep(self._folders)
        if ending == "exited" and not failure:
            self._advance("Uploading")
        self._upload()
        with self.job.rules.lock:
            if failure:
                fail(self.job, failure)
            elif self.job.status == "Stopping":
                stopped(self.job, ending if ending.endswith("Exceeded") else "Stopped")
            else:
                complete(self.job)
        return True

    def _apply_abrupt_end(self) -> bool:
        """Change the job's state, unless it was stopped since; return whether it did."""
        with self.job.rules.lock:
            is_running = self.job.status == "InProgress"
            if is_running:
                ABRUPT_ENDS[self._abrupt_end](self.job)
                self._took_effect.set()
        self._abrupt_end = ""
        return is_running

    def _upload(self) -> None:
        """Copy model and output to S3, if there are any."""
        for name, folder in (("model", "model"), ("output", "output/data")):
            if content := packed([base / folder for base in self.bases]):
                put(self.account, f"{posixpath.dirname(self.job.model)}/{name}.tar.gz", content)


def _without_gpus(hyperparameters: Mapping[str, str]) -> dict[str, str]:
    """The training's settings for this machine, whose instances only seem to have GPUs."""
    return {**hyperparameters, **({"device": '"cpu"'} if "device" in hyperparameters else {})}


def failure_reason(text: str, code: int) -> str:
    """FailureReason for a container that ended with `code` and `text` in output/failure."""
    # The form in which AWS adds the code is from memory.
    before, after = "AlgorithmError: ", f", exit code: {code if code > 0 else 128 - code}"
    return before + text[: LONGEST_REASON - len(before) - len(after)] + after


def _end(containers: Sequence[Container], grace_s: float) -> None:
    """Stop the containers that still run, all at once, and wait for their end."""

    def end(container: Container) -> None:
        container.stop(grace_s) if container.exit_code is None else container.wait(0)

    with ThreadPoolExecutor(len(containers)) as pool:
        list(pool.map(end, containers))
