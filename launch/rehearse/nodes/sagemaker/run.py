"""The life of one training job: machines, data, containers, and what is kept of them.  agent.py starts it.

Time limits, StopTrainingJob and what befalls machines do what they do on AWS, only sooner.
"""

from __future__ import annotations

import posixpath
import re
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from moto.s3.exceptions import MissingBucket

from launch.rehearse.aws.sagemaker.jobs import (
    WITHOUT_MACHINES,
    TrainingJob,
    advance,
    complete,
    fail,
    interrupt,
    measured,
    restart,
    stopped,
    stopping,
)
from launch.rehearse.nodes.sagemaker.container import Container, Instance
from launch.rehearse.nodes.sagemaker.files import Checkpoints, download, packed, put
from launch.rehearse.nodes.sagemaker.network import address, network, why_no_network

if TYPE_CHECKING:
    from launch.rehearse.nodes.sagemaker.agent import Agent

LOOK_S, SYNC_S = 0.05, 0.5  # AWS: seconds, a minute or so
LONGEST_REASON = 1024
# What ends an attempt at once, and what it does to the job.
BLOWS: dict[str, Callable[[TrainingJob], object]] = {"interrupted": interrupt, "died": restart}


class Run(threading.Thread):
    """Runs a job that is InProgress to its end, or until the agent closes."""

    def __init__(self, agent: Agent, job: TrainingJob, folder: Path) -> None:
        super().__init__(name=f"sagemaker {job.name}")
        self.agent, self.job, self.folder = agent, job, folder
        self.account, self.asked = agent.account, job.asked
        names = [f"algo-{number}" for number in range(1, job.count + 1)]
        self.has_network = job.count > 1 or agent.in_network
        self.hosts = names if self.has_network else ["localhost"]
        self.metrics = [
            (row["Name"], re.compile(row["Regex"]))
            for row in self.asked["AlgorithmSpecification"].get("MetricDefinitions", [])
        ]
        self.checkpoints = Checkpoints(self.account, self.asked.get("CheckpointConfig"))
        self.bases: list[Path] = []
        self.containers: list[Container] = []
        self._folders: list[Path] = []  # with checkpoints
        self._blow = ""
        self._struck = threading.Event()

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

    def strike(self, blow: str) -> bool:
        """Lets "interrupted" or "died" happen to the machines, and returns whether it did once that is known."""
        self._struck.clear()
        self._blow = blow
        give_up = time.monotonic() + 30
        while self.is_alive() and time.monotonic() < give_up:
            if self._struck.wait(LOOK_S):
                return True
        return self._struck.is_set()

    def _attempt(self) -> bool:
        """One run on one set of machines; whether it was the last."""
        if not self._get_machines():
            return True
        machines = self.agent.began(self.job, [address(i) if self.has_network else "" for i in range(self.job.count)])
        try:
            return self._work()
        finally:
            for machine in machines:
                machine.end(how=self._end_of_machines())

    def _work(self) -> bool:
        self.bases = [self.folder / str(self._number) / host for host in self.hosts]
        for index, base in enumerate(self.bases):
            self._fill(base, index)
        if not self._advance("Training"):
            return self._end_stop()
        with ExitStack() as stack:
            self.containers = self._start(stack)
            folder = self.checkpoints.folder
            self._folders = [c.disk or base / folder for c, base in zip(self.containers, self.bases, strict=True)]
            outcome = self._follow(self.containers)
            culprit = next((container for container in self.containers if container.exit_code), None)
            _end(self.containers, 0 if outcome in ("closing", *BLOWS) else self.agent.grace_s)
            reason = failure_reason(culprit.failure, culprit.exit_code or 0) if culprit else ""
            return self._finish(outcome, reason if outcome == "exited" else "")

    def _end_of_machines(self) -> str:
        return "the rehearsal was over" if self.job.status == "InProgress" and not self._is_struck else self._how

    @property
    def _is_struck(self) -> bool:
        return self.job.secondary in WITHOUT_MACHINES

    @property
    def _how(self) -> str:
        return {"Restarting": "InternalServerError"}.get(self.job.secondary, self.job.secondary)

    @property
    def _number(self) -> int:
        """Of this attempt."""
        return sum(map(self.job.statuses.count, WITHOUT_MACHINES)) + 1

    def _advance(self, to: str) -> bool:
        """Moves the job on, unless it ends or stops."""
        with self.job.rules.lock:
            if self.job.status == "InProgress":
                advance(self.job, to)
            return self.job.status == "InProgress" and self.job.secondary == to

    def _get_machines(self) -> bool:
        """Waits until there are some; whether there are."""
        while not self._advance("Downloading"):
            if self.job.status == "InProgress" and (limit := self._limit()):
                self._begin_stop()
                stopped(self.job, limit)
            if self.job.status != "InProgress" or self.agent.closing.wait(LOOK_S):
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
        """The status of a limit that is over."""
        now, told, limits = self.job.rules.now(), self.job.described, self.job.described["StoppingCondition"]
        for status, since, key in (
            ("MaxWaitTimeExceeded", told["CreationTime"], "MaxWaitTimeInSeconds"),
            ("MaxRuntimeExceeded", told.get("TrainingStartTime", now), "MaxRuntimeInSeconds"),
        ):
            if key in limits and (now - since).total_seconds() > limits[key]:
                return status
        return ""

    # ---- before it runs

    def _fill(self, base: Path, index: int) -> None:
        """Data and checkpoints, as the container finds them."""
        for channel in self.asked.get("InputDataConfig", []):
            source = channel["DataSource"].get("S3DataSource")
            if source is None:
                raise NotImplementedError("only S3 can be read here, no file system")
            objects = self.account.under(source["S3Uri"])
            if source.get("S3DataDistributionType") == "ShardedByS3Key":
                objects = objects[index :: len(self.bases)]
            download(self.account, objects, source["S3Uri"], base / "input/data" / channel["ChannelName"])
        self.checkpoints.restore(base)

    def _start(self, stack: ExitStack) -> list[Container]:
        net, url = None, self.agent.url
        if self.has_network:
            if why := why_no_network():
                raise NotImplementedError(f"several instances: {why}")
            net = stack.enter_context(network(self.folder / str(self._number) / "network", self.hosts, self.agent.rate))
            url = net.expose(int(url.rpartition(":")[2]))
        return [
            stack.enter_context(Container(self._told(base, host, url), net, self._hears(number)))
            for number, (base, host) in enumerate(zip(self.bases, self.hosts, strict=True), 1)
        ]

    def _told(self, base: Path, host: str, url: str) -> Instance:
        return Instance(
            base=base,
            hyperparameters=self.asked.get("HyperParameters", {}),
            host=host,
            hosts=self.hosts,
            instance_type=self.job.instance_type,
            channels=[channel["ChannelName"] for channel in self.asked.get("InputDataConfig", [])],
            gpus=self.agent.ranks,
            env={**self.asked.get("Environment", {}), "S3_ENDPOINT_URL": url, "AWS_ENDPOINT_URL": url},
            job=self.job.name,
            region=self.account.region,
            disk=str(self.checkpoints.folder) if self.agent.has_disks else "",
        )

    def _hears(self, number: int) -> Callable[[str], None]:
        """What becomes of the lines of container `number`."""
        name, host = self.job.name, f"algo-{number}"
        stream = f"{name}/{host}-{int(time.time() * 1000)}"

        def hear(line: str) -> None:
            self.account.log(name, host, [line or " "], stream)  # CloudWatch takes no empty ones
            for metric, regex in self.metrics:
                if found := regex.search(line):
                    with suppress(ValueError, IndexError):  # not a number, no group
                        measured(self.job, metric, float(found[1]))

        return hear

    # ---- while it runs

    def _follow(self, containers: Sequence[Container]) -> str:
        """Until something ends it: exited, stopped, a blow, closing, or the limit that is over."""
        synced_at = time.monotonic()
        while True:
            codes = [container.exit_code for container in containers]
            if any(codes) or None not in codes:  # one that failed ends all
                return "exited"
            if self.job.status == "Stopping":
                return "stopped"
            if self._blow:
                return self._blow
            if limit := self._limit():
                self._begin_stop()
                return limit
            if self.agent.closing.wait(LOOK_S):
                return "closing"
            if time.monotonic() - synced_at > SYNC_S:
                self.checkpoints.keep(self._folders)
                synced_at = time.monotonic()

    # ---- after it ran

    def _finish(self, outcome: str, failure: str) -> bool:
        """Results and state; whether that was the job."""
        if outcome == "closing":
            return True
        if outcome in BLOWS and self._is_hit():
            return self.job.has_ended
        self.checkpoints.keep(self._folders)
        if outcome == "exited" and not failure:
            self._advance("Uploading")
        self._upload()
        with self.job.rules.lock:
            if failure:
                fail(self.job, failure)
            elif self.job.status == "Stopping":
                stopped(self.job, outcome if outcome.endswith("Exceeded") else "Stopped")
            else:
                complete(self.job)
        return True

    def _is_hit(self) -> bool:
        """Whether the blow still changes anything: not if the job was stopped meanwhile."""
        with self.job.rules.lock:
            is_hit = self.job.status == "InProgress"
            if is_hit:
                BLOWS[self._blow](self.job)
                self._struck.set()
        self._blow = ""
        return is_hit

    def _upload(self) -> None:
        """Model and output go to S3, if there are any."""
        for name, folder in (("model", "model"), ("output", "output/data")):
            if content := packed([base / folder for base in self.bases]):
                put(self.account, f"{posixpath.dirname(self.job.model)}/{name}.tar.gz", content)


def failure_reason(text: str, code: int) -> str:
    """FailureReason of a container that ended with `code` and left `text` in output/failure."""
    # How AWS adds the code is from memory.
    before, after = "AlgorithmError: ", f", exit code: {code if code > 0 else 128 - code}"
    return before + text[: LONGEST_REASON - len(before) - len(after)] + after


def _end(containers: Sequence[Container], grace_s: float) -> None:
    """Until they are gone; those that still run are told to stop, all at once."""

    def end(container: Container) -> None:
        container.stop(grace_s) if container.exit_code is None else container.wait(0)

    with ThreadPoolExecutor(len(containers)) as pool:
        list(pool.map(end, containers))
