"""What the embedded accounts of the tests share: their names, and a record of what a launcher asks of them."""

import functools
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID

from launch.aws.client import Aws
from tests.launch import loader
from tests.launch.faults import Request, listen, watched
from tests.launch.privilege.watch import granted
from tests.launch.quick_moto import quick

# A launcher's ways into an account, by region and credentials: their clients keep nothing, and take long to make.
IDENTITY = ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_PROFILE")
_known: dict[tuple[str | None, ...], Aws] = {}

# Written out and not imported: a promise to users who set up the account by hand.
TOOLKIT = "aws-ddp-toolkit"


class Asked:
    """requests: every call since the account was opened."""

    id = DEFAULT_ACCOUNT_ID
    region = "us-east-1"
    bucket = f"{TOOLKIT}-{DEFAULT_ACCOUNT_ID}-us-east-1"
    requests: list[Request]

    def aws(self, region: str | None = None) -> Aws:
        """A launcher's way into this account."""
        place = region or self.region
        return _known.setdefault((place, *map(os.environ.get, IDENTITY)), Aws(place))

    def asked(self, operation: str) -> list[dict[str, Any]]:
        """The parameters of every request of `operation`."""
        return [request.params for request in self.requests if request.operation == operation]

    @property
    def operations(self) -> list[str]:
        """The operations asked for, in order."""
        return [request.operation for request in self.requests]


A = TypeVar("A", bound=Asked)


def forget_calls() -> None:
    """Leave nothing of an earlier test in what keeps the clients: neither AWS's time nor what monkeypatch put back."""
    for aws in _known.values():
        aws.answered_at = None
        for name in vars(Aws).keys() & vars(aws).keys():
            delattr(aws, name)


@contextmanager
def opened(make: Callable[[], A], patches: AbstractContextManager[None]) -> Iterator[A]:
    """A new account in an AWS of its own, until the end of the block.  Only one at a time."""
    listen()
    loader.fill_quotas()
    forget_calls()
    with ExitStack() as stack:
        stack.enter_context(mock_aws(config={"core": {"mock_credentials": False}}))
        stack.enter_context(patches)
        stack.enter_context(quick())
        account = make()
        stack.enter_context(watched(lambda call, _protocol: account.requests.append(call)))
        stack.enter_context(granted())
        yield account
    leave_what_stays_alone()


@functools.cache
def leave_what_stays_alone() -> None:
    """Once: botocore's models and moto's tables are a million objects that garbage collection would look through."""
    gc.collect()
    gc.freeze()
