"""Runs the training jobs of moto's account on this machine, with AWS's own toolkit, on the CPU.

It finds new jobs, sets up /opt/ml as SageMaker does, and keeps the job's state, logs, checkpoints, metrics and results
where AWS keeps them.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from launch.rehearse.aws.sagemaker.jobs import TrainingJob
from launch.rehearse.nodes.sagemaker.machine import Machine
from launch.rehearse.nodes.sagemaker.run import LOOK_S, JobRun


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
        self._watcher = threading.Thread(target=self._watch, name="sagemaker")

    def start(self) -> None:
        """Starts to look for jobs."""
        self._watcher.start()

    def close(self) -> None:
        """Ends everything that runs."""
        self.closing.set()
        if self._watcher.ident:
            self._watcher.join()
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

    def wait(self, name: str, timeout_s: float = 120) -> dict[str, Any]:
        """Waits for the end of a job; returns DescribeTrainingJob's answer.  Raises TimeoutError with its log."""
        end = time.monotonic() + timeout_s
        while name not in self.account.jobs or not self.account.jobs[name].has_ended:
            if time.monotonic() > end:
                raise TimeoutError(f"{name} has not ended after {timeout_s:g} s:\n{self.log(name)}")
            time.sleep(LOOK_S)
        with self.account.rules.lock:
            return copy.deepcopy(self.account.jobs[name].described)

    def interrupt(self, name: str) -> None:
        """Takes a spot job's instances at once; the agent starts it again.  Returns when it is Interrupted."""
        if not self.runs[name].strike("interrupted"):
            raise TimeoutError(f"{name} was not interrupted: it is {self.account.jobs[name].secondary}")

    def log(self, name: str) -> str:
        """All lines of a job."""
        return "\n".join(line for lines in self.account.logged(name).values() for line in lines)

    def _watch(self) -> None:
        while not self.closing.wait(LOOK_S):
            self.step()
