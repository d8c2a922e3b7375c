"""Whether a policy of infra/iam allows a need, as IAM evaluates it.  Pure; raises for anything it does not know.

moto evaluates the actions of a policy but not its resources and conditions, and no library on PyPI evaluates all
three.  https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.conftest import ROOT

FOLDER = ROOT / "infra" / "iam"
Policy = Mapping[str, Any]


@dataclass(frozen=True)
class Need:
    """A question to IAM: is this action allowed on this resource, with these values of condition keys?"""

    action: str
    resource: str = "*"
    context: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.action} on {self.resource}" + (f" with {dict(self.context)}" if self.context else "")


@cache
def policy(name: str) -> Policy:
    """infra/iam/NAME.json"""
    found: Policy = json.loads((FOLDER / f"{name}.json").read_text())
    return found


@cache
def actions(name: str) -> frozenset[str]:
    """All actions that infra/iam/NAME.json grants, on any resource and under any condition."""
    return frozenset(action for statement in policy(name)["Statement"] for action in listed(statement["Action"]))


def allows(policies: Iterable[Policy], need: Need) -> bool:
    """Whether one of the policies allows it, and none denies it."""
    effects = {s["Effect"] for one in policies for s in one["Statement"] if _is_about(s, need)}
    return effects == {"Allow"}


def _is_about(statement: Mapping[str, Any], need: Need) -> bool:
    assert statement.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}, statement
    return (
        any(_matches(action.lower(), need.action.lower()) for action in listed(statement["Action"]))
        and any(_matches(_filled(r, need.context), need.resource) for r in listed(statement["Resource"]))
        and all(_holds(how, keys, need.context) for how, keys in statement.get("Condition", {}).items())
    )


def _holds(how: str, keys: Mapping[str, Any], context: Mapping[str, str]) -> bool:
    """A key without a value makes every comparison false, and Null true."""
    if how == "Null":
        return all((key in context) == (wanted == "false") for key, wanted in keys.items())
    compare = {"StringEquals": str.__eq__, "ForAnyValue:StringEquals": str.__eq__, "StringLike": _matches}[how]
    return all(
        key in context and any(compare(_filled(wanted, context), context[key]) for wanted in listed(values))
        for key, values in keys.items()
    )


def _filled(text: str, context: Mapping[str, str]) -> str:
    """`text` with the values of IAM's variables, such as ${aws:PrincipalAccount}."""
    return re.sub(r"\$\{([^}]+)\}", lambda name: context.get(name[1], "<unknown>"), text)


def _matches(pattern: str, text: str) -> bool:
    """IAM's only wildcards are * and ?."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), text, re.DOTALL) is not None


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
