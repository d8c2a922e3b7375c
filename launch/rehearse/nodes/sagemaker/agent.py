"""SageMaker itself, on this machine: runs the training jobs of moto's account with AWS's own toolkit, on the CPU.

It finds new jobs by itself, lays out /opt/ml as SageMaker does, and keeps the job's state, logs, checkpoints, metrics
and results where AWS keeps them.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch.rehearse.aws.sagemaker.account import Account
from launch.rehearse.aws.sagemaker.jobs import TrainingJob
from launch.rehearse.nodes.sagemaker.machine import Machine
from launch.rehearse.nodes.sagemaker.run import LOOK_S, Run

GRACE_S = 5.0  # AWS: 120 s


class Agent:
    """Runs whatever job is InProgress in `account`, each in a thread of its own.

    url: of AWS, for this machine; ranks: how many GPUs every instance seems to have;
    in_network: also a job's only instance is a host of its own; has_disks: their checkpoints are on a file system of
    its own; rate: of their network, such as 200mbit; errors: of the agent, not of jobs; machines: all so far.
    """

    def __init__(self, account: Account, url: str, folder: Path, ranks: int = 2, grace_s: float = GRACE_S) -> None:
        self.account, self.url, self.folder, self.ranks, self.grace_s = account, url, folder, ranks, grace_s
        self.in_network, self.has_disks, self.rate = False, False, ""
        self.closing = threading.Event()
        self.errors: list[str] = []
        self.machines: list[Machine] = []
        self.runs: dict[str, Run] = {}
        self._watcher = threading.Thread(target=self._watch, name="sagemaker")

    def start(self) -> None:
        """Looks for jobs from now on."""
        self._watcher.start()

    def close(self) -> None:
        """Ends everything that runs."""
        self.closing.set()
        if self._watcher.ident:
            self._watcher.join()
        for run in self.runs.values():
            run.join()

    def step(self) -> None:
        """Takes on the jobs that are new."""
        for name, job in list(self.account.jobs.items()):
            if name not in self.runs and not job.has_ended:
                self.runs[name] = Run(self, job, self.folder / str(len(self.runs) + 1))
                self.runs[name].start()

    def began(self, job: TrainingJob, addresses: Sequence[str]) -> list[Machine]:
        """Notes the machines that a job has got, in rank order."""
        made = []
        for rank, address in enumerate(addresses):
            earlier = sum(machine.rank == rank for machine in self.machines)
            name = f"algo-{rank + 1}" + (f" ({earlier + 1})" if earlier else "")
            made.append(Machine(job, name, rank, address or "127.0.0.1"))
        self.machines += made
        return made

    def wait(self, name: str, timeout_s: float = 120) -> dict[str, Any]:
        """What DescribeTrainingJob says of a job when it has ended."""
        end = time.monotonic() + timeout_s
        while name not in self.account.jobs or not self.account.jobs[name].has_ended:
            if time.monotonic() > end:
                raise TimeoutError(f"{name} has not ended after {timeout_s:g} s:\n{self.log(name)}")
            time.sleep(LOOK_S)
        with self.account.rules.lock:
            return copy.deepcopy(self.account.jobs[name].described)

    def interrupt(self, name: str) -> None:
        """Takes a spot job's machines away, at once; it starts again by itself.  Returns when it is Interrupted."""
        if not self.runs[name].strike("interrupted"):
            raise TimeoutError(f"{name} was not interrupted: it is {self.account.jobs[name].secondary}")

    def log(self, name: str) -> str:
        """All lines of a job."""
        return "\n".join(line for lines in self.account.logged(name).values() for line in lines)

    def _watch(self) -> None:
        while not self.closing.wait(LOOK_S):
            self.step()
