"""Whether a command asks AWS for what no policy grants: looked at in every call of every test, as it is made.

It goes by actions: which resources and conditions a policy has is for test_commands.py, whose account is set up by the
toolkit, while other tests use names of their own.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.launch.faults import Request, watched
from tests.launch.privilege.needs import World, needs
from tests.launch.privilege.policies import actions

# Through these a call goes on its way from who makes it; the first other module in the stack is who.
CARRIERS = ("botocore", "boto3", "contextlib", "launch.core.aws", "launch.core.perform", "s3transfer",
            "tests.launch.faults", "tests.launch.privilege.watch")  # fmt: skip
ANYWHERE = World("123456789012", "us-east-1", lambda _name: {}, lambda profile: [f"arn:aws:iam::1:role/{profile}"])


@contextmanager
def granted() -> Iterator[None]:
    """Meanwhile every call of ours needs only actions that infra/iam grants to who makes it, or a test fails.

    Those are the administrator for launch.infra, the builder for launch.image, and whoever launches for the rest.  What
    a test itself asks AWS for, to set something up, does not count.
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
    assert not missing, f"not granted: {sorted(missing)}"  # also if somebody caught the first


def _policy() -> str | None:
    """Of who makes the present call; None if a test does, or a rehearsal."""
    modules, frame = list[str](), sys._getframe(1)
    while frame is not None:
        modules.append(frame.f_globals.get("__name__", ""))
        frame = frame.f_back  # type: ignore[assignment]
    asker = next((module for module in modules if not _is_carrier(module)), "")
    if not asker.startswith("launch.") or asker.startswith("launch.rehearse"):
        return None
    others = {"launch.infra": "administrator", "launch.image": "builder"}
    return next((who for place, who in others.items() if any(m.startswith(place) for m in modules)), "launcher")


def _is_carrier(module: str) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in CARRIERS)
