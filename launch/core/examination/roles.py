"""Roles: whether they exist, and whether the service that uses each may assume it."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

from launch.core.errors import AwsError
from launch.core.examination.case import Case
from launch.core.examination.findings import Verdict, missing, ok
from launch.core.lookup import SET_UP
from launch.core.lookup import missing as with_remedy


def find(case: Case[Any], name: str, option: str) -> Mapping[str, Any]:
    """The role, as IAM describes it.  Raises AwsError, which names the `option` that gives another."""
    try:
        role: Mapping[str, Any] = case.aws.call("iam", "GetRole", {"RoleName": name})["Role"]
    except AwsError as error:
        raise with_remedy(error, f"role {name}", option) from error
    return role


def trusting(case: Case[Any], role: Mapping[str, Any], services: Sequence[str], file: str) -> Verdict:
    """Whether `services` may assume the role.  file: of infra/iam, the policy that lets them."""
    name, trusted = role["RoleName"], set(_trusted(role["AssumeRolePolicyDocument"], case.account))
    distrusted = [service for service in services if service not in trusted]
    if not distrusted:
        return ok(f"{name}, for {' and '.join(services)}")
    document = f"--policy-document '{_document(file, case.account)}'"
    mend = f"{SET_UP}, or aws iam update-assume-role-policy --role-name {name} {document}"
    return missing(f"role {name} may not be assumed by {' and '.join(distrusted)} for this account", mend)


def _document(file: str, account: str) -> str:
    """A trust policy of infra/iam on one line, with the account, which the file cannot know."""
    text = files("infra").joinpath(f"iam/{file}.json").read_text().replace("@ACCOUNT@", account)
    return json.dumps(json.loads(text))


def _trusted(policy: Mapping[str, Any], account: str) -> Iterator[str]:
    """The services that a trust policy names.  Of its conditions those on the account are evaluated."""
    for statement in _listed(policy.get("Statement", ())):
        principal = statement.get("Principal", {})
        assumes = "sts:AssumeRole" in _listed(statement.get("Action", ()))
        if not _is_for(statement.get("Condition", {}), account):
            continue
        if statement.get("Effect") == "Allow" and assumes and isinstance(principal, Mapping):
            yield from _listed(principal.get("Service", ()))


def _is_for(condition: Mapping[str, Mapping[str, Any]], account: str) -> bool:
    """Whether requests of the account can meet the condition; other keys depend on the request."""
    for operator, keys in condition.items():
        if "Not" in operator or operator == "Null":
            continue
        for key, values in keys.items():
            owners = [_owner(key.lower(), str(value)) for value in _listed(values)]
            if not any(owner is None or fnmatchcase(account, owner) for owner in owners):
                return False
    return True


def _owner(key: str, value: str) -> str | None:
    """The account in a value of a condition key, perhaps with wildcards; None where it names none."""
    if key == "aws:sourceaccount":
        return value
    parts = value.split(":")
    return parts[4] if key == "aws:sourcearn" and len(parts) > 4 and parts[4] else None


def _listed(value: Any) -> Iterable[Any]:
    """AWS writes a list of one without its brackets."""
    return value if isinstance(value, (list, tuple)) else [value]
