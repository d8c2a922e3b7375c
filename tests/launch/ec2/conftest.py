"""A launch, and a user at the command line, in an account that is set up."""

import pytest

from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal
from tests.launch.ec2.world import Stage


@pytest.fixture
def stage(account: Account) -> Stage:
    return Stage(account)


@pytest.fixture
def terminal(account: Account) -> Terminal:
    return Terminal(account)
