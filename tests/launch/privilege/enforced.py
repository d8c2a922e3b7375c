"""An account whose new clients belong to a user with policies of infra/iam only."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

from launch.rehearse.aws.iam.callers import Caller
from launch.rehearse.aws.iam.policies import Need, allows, policy
from tests.launch.ec2.account import Account
from tests.launch.faults import Request, watched
from tests.launch.sagemaker.account import SageMakerAccount

SECRET = "not-a-secret"


@dataclass
class Watch:
    """calls: all calls; caller: whose needs were granted or refused; typed: the command lines that made them."""

    caller: Caller
    calls: list[Request] = field(default_factory=list)
    typed: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def granted(self) -> list[Need]:
        return self.caller.granted

    @property
    def refused(self) -> list[Need]:
        return self.caller.refused


@contextmanager
def enforced(account: Account | SageMakerAccount, name: str = "launcher") -> Iterator[Watch]:
    """Inside the block, new clients belong to a user with policy(NAME) only."""
    key = f"AKIA{name.upper():X<16}"
    watch = Watch(account.rules.access.add(key, f"arn:aws:iam::{account.id}:user/{name}", name))
    keys = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": SECRET}
    with (
        mock.patch.dict("os.environ", keys),
        watched(lambda call, _protocol: watch.calls.append(call)),
    ):
        yield watch


def idle(name: str, granted: Iterable[Need]) -> set[str]:
    """The statements of policy(NAME) without which all of this would be granted as well."""
    statements = policy(name)["Statement"]
    return {one["Sid"] for one in statements if not any(allows([{"Statement": [one]}], need) for need in granted)}
