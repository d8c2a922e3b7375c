"""Evaluate the policies in infra/iam as IAM does.  Pure; raises for unknown elements.

moto evaluates the actions of a policy but not its resources and conditions, and no library on PyPI evaluates all
three.  https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

Policy = Mapping[str, Any]
Context = Mapping[str, str | list[str]]


@dataclass(frozen=True)
class Need:
    """A question to IAM: is this action allowed on this resource, with these values of condition keys?"""

    action: str
    resource: str = "*"
    context: Context = field(default_factory=dict)  # lists for keys with several values, such as aws:TagKeys

    def __str__(self) -> str:
        return f"{self.action} on {self.resource}" + (f" with {dict(self.context)}" if self.context else "")


# https://docs.aws.amazon.com/organizations/latest/userguide/orgs_manage_policies_scps.html: FullAWSAccess.
FULL_ACCESS: Policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
# Callers with several policies, as a policy has 6,144 characters at most.
LAUNCHER = ("launcher", "launcher-sagemaker", "launcher-queue", "reader")
FILES = {"launcher": LAUNCHER, "doctor": ("doctor", *LAUNCHER), "data-on-ec2": ("data", "launcher", "reader"),
         "controller": ("launcher", "reader")}  # fmt: skip


@cache
def policy(name: str) -> Policy:
    """The policy infra/iam/NAME.json, joined with those that are attached to the same users."""
    folder = files("infra").joinpath("iam")
    found = [json.loads(folder.joinpath(f"{file}.json").read_text()) for file in FILES.get(name, (name,))]
    return {**found[0], "Statement": [statement for one in found for statement in one["Statement"]]}


@cache
def actions(name: str) -> frozenset[str]:
    """All actions that policy(NAME) grants, on any resource and under any condition."""
    return frozenset(action for statement in policy(name)["Statement"] for action in listed(statement["Action"]))


def allows(policies: Iterable[Policy], need: Need) -> bool:
    """Whether one of the policies allows the need, and none denies it."""
    effects = {s["Effect"] for one in policies for s in listed(one["Statement"]) if _is_about(s, need)}
    return effects == {"Allow"}


# ---- statements

_KNOWN = {"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"}


def _is_about(statement: Mapping[str, Any], need: Need) -> bool:
    if not statement.keys() <= _KNOWN:
        raise ValueError(f"unknown elements in {statement}")
    return (
        _names(statement, "Action", lambda action: _like(action.lower(), need.action.lower()))
        and _names(statement, "Resource", lambda arn: _like(_filled(arn, need.context), need.resource))
        and all(_holds(how, keys, need.context) for how, keys in statement.get("Condition", {}).items())
    )


def _names(statement: Mapping[str, Any], element: str, is_meant: Callable[[str], bool]) -> bool:
    """Whether the element, or its Not- form, matches the need."""
    if element in statement:
        return any(map(is_meant, listed(statement[element])))
    return not any(map(is_meant, listed(statement[f"Not{element}"])))


# ---- conditions
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html


def _like(pattern: str, text: str) -> bool:
    """IAM's only wildcards are * and ?; ${*}, ${?} and ${$} are these characters themselves."""
    return _expression(pattern).fullmatch(text) is not None


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    """https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html, special characters."""
    parts = re.findall(r"\$\{([*?$])\}|(.)", pattern, re.DOTALL)
    return re.compile("".join(_WILD.get(other, re.escape(literal or other)) for literal, other in parts), re.DOTALL)


_WILD = {"*": ".*", "?": "."}


def _like_arn(pattern: str, text: str) -> bool:
    """Compare the six parts of an ARN separately, so that a * does not match across parts."""
    expected, given = pattern.split(":", 5), text.split(":", 5)
    return len(expected) == len(given) == 6 and all(map(_like, expected, given))


# Operator -> whether the value in the policy and the request's agree; those that infra/iam has.
_AGREE: dict[str, Callable[[str, str], bool]] = {
    "StringEquals": operator.eq,
    "StringLike": _like,
    "ArnLike": _like_arn,
    "Bool": lambda expected, given: expected.lower() == given.lower(),
    "NumericEquals": lambda expected, given: float(expected) == float(given),
}
# Negated operators, which also hold if the key has no value.
_NEGATED = {"StringNotEquals": "StringEquals", "StringNotLike": "StringLike"}
_IS_ABSENT = {"true": True, "false": False}


def _holds(how: str, keys: Mapping[str, Any], context: Context) -> bool:
    """Whether the conditions under one operator hold, for all of their keys."""
    given = {key.lower(): value for key, value in context.items()}
    if how == "Null":
        return all((key.lower() in given) != _IS_ABSENT[_text(expected)] for key, expected in keys.items())
    return all(_holds_for(how, listed(expected), given.get(key.lower()), context) for key, expected in keys.items())


def _holds_for(how: str, expected: list[Any], given: str | list[str] | None, context: Context) -> bool:
    """Whether it holds for one key.  A key without a value makes all false but negations, IfExists and ForAllValues."""
    quantifier, _, name = how.rpartition(":")
    positive = _NEGATED.get(name.removesuffix("IfExists"), name.removesuffix("IfExists"))
    agree, is_negated = _AGREE[positive], positive != name.removesuffix("IfExists")
    if given is None:
        return name.endswith("IfExists") or quantifier == "ForAllValues" or (is_negated and not quantifier)
    values = [_filled(_text(value), context) for value in expected]
    one_by_one = [any(agree(value, one) for value in values) != is_negated for one in listed(given)]
    return any(one_by_one) if quantifier == "ForAnyValue" else all(one_by_one)


def _text(value: Any) -> str:
    """A value of a policy, where JSON's true and 1 stand for "true" and "1"."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _filled(text: str, context: Context) -> str:
    """`text` with the values of IAM's variables, such as ${aws:PrincipalAccount}, and with the account in it."""
    text = text.replace("@ACCOUNT@", "${aws:PrincipalAccount}")  # which launch.infra fills in
    return re.sub(r"\$\{([^}*?$]+)\}", lambda name: str(context.get(name[1], "<unknown>")), text)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
