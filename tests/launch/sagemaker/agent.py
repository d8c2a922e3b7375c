"""SageMaker itself, for launchers on this machine: what a rehearsal plays on, and an account that tests can look into.

with playing(folder, ranks=2) as agent:
    boto3.client("sagemaker", endpoint_url=agent.url).create_training_job(...)
    described = agent.wait("NAME")               # what DescribeTrainingJob says at the end
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from launch.rehearse.aws.server import RequestLog, served
from launch.rehearse.nodes.sagemaker import run as rehearsed
from launch.rehearse.nodes.sagemaker.run import POLL_S
from tests.launch.sagemaker.account import SageMakerAccount


class Agent(rehearsed.Agent):
    """account: with every request that came."""

    account: SageMakerAccount

    def __init__(self, account: SageMakerAccount, url: str, folder: Path, ranks: int) -> None:
        super().__init__(account, url, partial(served, RequestLog(), None), folder, ranks)
        self._watcher = threading.Thread(target=self._watch, name="sagemaker")
        self._watcher.start()

    def close(self) -> None:
        """Raises AssertionError if the agent itself had failed."""
        self.closing.set()
        self._watcher.join()
        super().close()
        assert not self.errors, "\n".join(self.errors)

    def wait(self, name: str, timeout_s: float = 120) -> dict[str, Any]:
        """Waits for the end of a job; returns DescribeTrainingJob's answer.  Raises TimeoutError with its log."""
        end = time.monotonic() + timeout_s
        while name not in self.account.jobs or not self.account.jobs[name].has_ended:
            if time.monotonic() > end:
                raise TimeoutError(f"{name} has not ended after {timeout_s:g} s:\n{self.log(name)}")
            time.sleep(POLL_S)
        with self.account.rules.lock:
            return copy.deepcopy(self.account.jobs[name].described)

    def log(self, name: str) -> str:
        """All lines of a job."""
        return "\n".join(line for lines in self.account.logged(name).values() for line in lines)

    def _watch(self) -> None:
        while not self.closing.wait(POLL_S):
            self.step()


@contextmanager
def playing(
    folder: Path, ranks: int = 2, account: SageMakerAccount | None = None, stop_s: float = 5.0
) -> Iterator[Agent]:
    """An AWS at agent.url that trains.  account: an open one to do it in, or else a new one: agent.account.

    stop_s: as Rules has it, which is 120 s.
    """
    with ExitStack() as stack:
        account = account or stack.enter_context(SageMakerAccount.opened())
        account.rules.answers_stopping = None  # a job has stopped when its container has
        account.rules.stop_s = stop_s
        agent = Agent(account, stack.enter_context(serving()), folder, ranks)
        stack.callback(agent.close)
        yield agent


@contextmanager
def serving() -> Iterator[str]:
    """moto of this process at a free port of this machine; gives the URL."""
    with served(RequestLog(), None) as port:
        yield f"http://127.0.0.1:{port}"
