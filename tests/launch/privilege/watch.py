"""Checks in every test that commands make only calls whose actions a policy grants.

Resources and conditions are checked in test_commands.py, whose account the toolkit sets up; other tests use names of
their own.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from launch.rehearse.aws.iam.needs import AccountView, needs
from launch.rehearse.aws.iam.policies import actions
from tests.launch.faults import Request, watched

# A call passes through these modules; the first other module in the stack makes it.
CARRIERS = ("botocore", "boto3", "contextlib", "launch.aws.client", "launch.core.perform", "s3transfer",
            "tests.launch.faults", "tests.launch.privilege.watch")  # fmt: skip
ANYWHERE = AccountView("123456789012", "us-east-1", lambda _name: {}, lambda name: [f"arn:aws:iam::1:role/{name}"])


@contextmanager
def granted() -> Iterator[None]:
    """Inside the block, a call fails the test unless infra/iam grants its actions to the caller.

    For --register it has the policy for that, too.
    The caller is the administrator for launch.infra, the builder for launch.image, who may publish data sets for
    launch.data, and may launch, too, where that starts an instance, a launcher who examines
    the account for launch.doctor, and the launcher for the rest.
    Calls that a test itself makes, to set something up, do not count.
    """
    missing = set[str]()

    def look(call: Request, _protocol: str) -> None:
        policy = _policy()
        if policy is None:
            return
        more = {need.action for need in needs(call, ANYWHERE)} - actions(policy)
        missing.update(f"{action} in infra/iam/{policy}.json" for action in more)
        assert not more, f"{call} needs {sorted(more)}, which infra/iam/{policy}.json does not grant"

    with watched(look):
        yield
    assert not missing, f"not granted: {sorted(missing)}"  # even if a command caught the first


# By whom another policy is needed than the launcher's; the first that takes part counts.
OTHERS = {
    "launch.infra": "administrator",
    "launch.image": "builder",
    "launch.data.on_ec2": "data-on-ec2",
    "launch.data": "data",
    "launch.doctor": "doctor",
    "launch.sagemaker.register": "sagemaker-extras",
}


def _policy() -> str | None:
    """The policy of the present call's caller; None for a test or a rehearsal."""
    modules, frame = list[str](), sys._getframe(1)
    while frame is not None:
        modules.append(frame.f_globals.get("__name__", ""))
        frame = frame.f_back  # type: ignore[assignment]
    caller = next((module for module in modules if not _is_carrier(module)), "")
    if not caller.startswith("launch.") or caller.startswith("launch.rehearse"):
        return None
    places = set(map(_place, modules))
    return next((who for place, who in OTHERS.items() if place in places), "launcher")


@cache
def _place(module: str) -> str:
    return next((place for place in OTHERS if module.startswith(place)), "")


@cache
def _is_carrier(module: str) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in CARRIERS)
