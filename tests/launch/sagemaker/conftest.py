"""The account of launch.sagemaker's tests, in the place of EC2's."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from launch.aws.client import Aws
    from tests.launch.faults import Faults
    from tests.launch.sagemaker.account import SageMakerAccount
    from tests.launch.sagemaker.world import Stage


@pytest.fixture
def account() -> Iterator["SageMakerAccount"]:
    """An AWS account that is set up for SageMaker."""
    from tests.launch.sagemaker.account import SageMakerAccount

    with SageMakerAccount.opened() as opened:
        yield opened


@pytest.fixture
def aws(account: "SageMakerAccount") -> "Aws":
    """A launcher's way into the account."""
    return account.aws()


@pytest.fixture
def faults() -> Iterator["Faults"]:
    """Faults on the way to the account; none until a test asks for some."""
    from tests.launch.faults import Faults, injected

    with injected(Faults()) as active:
        yield active


@pytest.fixture
def stage() -> Iterator["Stage"]:
    """A launch, its account and a clock."""
    from tests.launch.sagemaker.world import Stage

    with Stage.opened() as opened:
        yield opened
