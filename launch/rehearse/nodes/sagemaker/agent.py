"""Runs the training jobs of moto's account on this machine, with AWS's own toolkit, on the CPU.

It finds new jobs, sets up /opt/ml as SageMaker does, and keeps the job's state, logs, checkpoints, metrics and results
where AWS keeps them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.core import catalog
from launch.rehearse.aws.pricing import multiple
from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from launch.rehearse.aws.sagemaker.jobs import TrainingJob
from launch.rehearse.nodes.sagemaker.run import JobRun

STATES = {"Starting": "boots", "Downloading": "boots", "Training": "trains"}


@dataclass
class InstanceRun:
    """One instance of a training job, from its start to its end: see launch.rehearse.backend.NodeRun."""

    job: TrainingJob
    name: str
    rank: int  # its place among the job's instances
    address: str
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    how: str = ""

    @property
    def type(self) -> str:
        return self.job.instance_type

    @property
    def zone(self) -> str:
        return ""  # SageMaker does not show it

    @property
    def state(self) -> str:
        return "off" if self.ended is not None else STATES.get(self.job.secondary, "uploads")

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.began

    @property
    def usd_per_hour(self) -> float:
        instance = catalog.load().get(self.type.removeprefix(catalog.SAGEMAKER_PREFIX))
        region = self.job.arn.split(":")[3]
        return (instance.sagemaker_usd_per_hour or 0.0) * multiple(region) if instance else 0.0

    def end(self, how: str) -> None:
        """Records its end and the reason."""
        self.ended, self.how = time.monotonic(), how


class Agent:
    """Runs the jobs that are InProgress in `account`, each in a thread of its own.

    url: of AWS, on this machine; ranks: how many GPUs each instance seems to have; in_network: a single instance is a
    host of its own, too; has_disks: checkpoints are on a file system of their own; rate: of the instances' network,
    such as 200mbit; errors: of the agent, not of jobs; instances: all instances so far.
    """

    def __init__(self, account: SageMakerAccount, url: str, folder: Path, ranks: int = 2) -> None:
        self.account, self.url, self.folder, self.ranks = account, url, folder, ranks
        self.in_network, self.has_disks, self.rate = False, False, ""
        self.closing = threading.Event()
        self.errors: list[str] = []
        self.instances: list[InstanceRun] = []
        self.runs: dict[str, JobRun] = {}

    def close(self) -> None:
        """Ends everything that runs."""
        self.closing.set()
        for run in self.runs.values():
            run.join()

    def step(self) -> None:
        """Starts the jobs that are new."""
        for name, job in list(self.account.jobs.items()):
            if name not in self.runs and not job.has_ended:
                self.runs[name] = JobRun(self, job, self.folder / str(len(self.runs) + 1))
                self.runs[name].start()

    def began(self, job: TrainingJob, addresses: Sequence[str]) -> list[InstanceRun]:
        """Adds the instances that a job has got, in rank order."""
        instances = []
        for rank, address in enumerate(addresses):
            earlier = sum(instance.rank == rank for instance in self.instances)
            name = f"algo-{rank + 1}" + (f" ({earlier + 1})" if earlier else "")
            instances.append(InstanceRun(job, name, rank, address or "127.0.0.1"))
        self.instances += instances
        return instances
