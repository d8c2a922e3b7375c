"""An account that is not set up yet."""

from collections.abc import Iterator

import pytest

from tests.launch.infra.account import NewAccount


@pytest.fixture
def new() -> Iterator[NewAccount]:
    """Nothing in it but AWS's own policies."""
    with NewAccount.opened() as account:
        yield account
