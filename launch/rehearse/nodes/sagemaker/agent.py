"""Runs the training jobs of moto's account on this machine, with AWS's own toolkit, on the CPU.

It finds new jobs, sets up /opt/ml as SageMaker does, and keeps the job's state, logs, checkpoints, metrics and results
where AWS keeps them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from launch.rehearse.aws.sagemaker.jobs import TrainingJob
from launch.rehearse.nodes.sagemaker.machine import Machine
from launch.rehearse.nodes.sagemaker.run import JobRun


class Agent:
    """Runs the jobs that are InProgress in `account`, each in a thread of its own.

    url: of AWS, on this machine; ranks: how many GPUs each instance seems to have; in_network: a single instance is a
    host of its own, too; has_disks: checkpoints are on a file system of their own; rate: of the instances' network,
    such as 200mbit; errors: of the agent, not of jobs; machines: all instances so far.
    """

    def __init__(self, account: SageMakerAccount, url: str, folder: Path, ranks: int = 2) -> None:
        self.account, self.url, self.folder, self.ranks = account, url, folder, ranks
        self.in_network, self.has_disks, self.rate = False, False, ""
        self.closing = threading.Event()
        self.errors: list[str] = []
        self.machines: list[Machine] = []
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

    def began(self, job: TrainingJob, addresses: Sequence[str]) -> list[Machine]:
        """Adds the instances that a job has got, in rank order."""
        machines = []
        for rank, address in enumerate(addresses):
            earlier = sum(machine.rank == rank for machine in self.machines)
            name = f"algo-{rank + 1}" + (f" ({earlier + 1})" if earlier else "")
            machines.append(Machine(job, name, rank, address or "127.0.0.1"))
        self.machines += machines
        return machines
