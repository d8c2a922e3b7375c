"""SageMaker itself, for launchers on this machine: what a rehearsal plays on, and an account that tests can look into.

with playing(folder, ranks=2) as agent:
    boto3.client("sagemaker", endpoint_url=agent.url).create_training_job(...)
    told = agent.wait("NAME")               # what DescribeTrainingJob says at the end
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from launch.rehearse.aws.server import RequestLog, served
from launch.rehearse.nodes.sagemaker import agent as rehearsed
from tests.launch.sagemaker.account import SageMakerAccount


class Agent(rehearsed.Agent):
    """account: with every request that came."""

    account: SageMakerAccount

    def close(self) -> None:
        """Raises AssertionError if the agent itself had failed."""
        super().close()
        assert not self.errors, "\n".join(self.errors)


@contextmanager
def playing(
    folder: Path, ranks: int = 2, account: SageMakerAccount | None = None, stop_s: float = 5.0
) -> Iterator[Agent]:
    """An AWS at agent.url that trains.  account: an open one to do it in, or else a new one: agent.account.

    stop_s: as Rules has it, which is 120 s.
    """
    with ExitStack() as stack:
        account = account or stack.enter_context(SageMakerAccount.opened())
        account.slow.stopping = None  # a job has stopped when its container has
        account.rules.stop_s = stop_s
        agent = Agent(account, stack.enter_context(serving()), folder, ranks)
        agent.start()
        stack.callback(agent.close)
        yield agent


@contextmanager
def serving() -> Iterator[str]:
    """moto of this process at a free port of this machine; gives the URL."""
    with served(RequestLog(), None) as port:
        yield f"http://127.0.0.1:{port}"
