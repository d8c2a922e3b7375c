"""What the caller and the job's roles may do: by IAM's own simulation, roles' trust, and keys of the user's own.

https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html: it evaluates the policies of a
user or role, with its boundary and the organization's, and makes no request.  Policies of a bucket, key or repository
are not in it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

from launch.aws.examination.case import NAME, Case, Right, Verdict, missing, ok, unknown, warning
from launch.aws.lookup import SET_UP
from launch.aws.names import STACK_TAG, TOOLKIT, tag_values
from launch.aws.refusals import actions, granted_by
from launch.core.errors import AwsError


def of_role(case: Case[Any], name: str, rights: Sequence[Right], policy: str) -> Iterator[Verdict]:
    """Whether the role of a job's machines may do all of it.  policy: its file in infra/iam."""
    role = f"arn:aws:iam::{case.account}:role/{name}"
    in_doubt = "run a short job: only that can tell"
    found = verdict(case, role, rights, lambda _policies: _put(name, policy), in_doubt, policy)
    is_ours = name == f"{TOOLKIT}-{policy}"
    yield (
        replace(found, text=found.text + _changes(case, name, policy))
        if is_ours and found.state == "missing"
        else found
    )


def _changes(case: Case[Any], role: str, policy: str) -> str:
    """How the policy in a role of the stack differs from the template's; empty if it does not.

    https://docs.aws.amazon.com/IAM/latest/APIReference/API_GetRolePolicy.html
    """
    try:
        there = case.aws.call("iam", "GetRolePolicy", {"RoleName": role, "PolicyName": policy})["PolicyDocument"]
    except AwsError as error:
        return f"; its policy {policy} was deleted" if error.aws_code == "NoSuchEntity" else ""
    template = json.loads(files("infra").joinpath(f"iam/{policy}.json").read_text())
    gone, new = set(actions(template)) - set(actions(there)), set(actions(there)) - set(actions(template))
    differences = [f"lacks {', '.join(sorted(gone))}"] * bool(gone) + [f"adds {', '.join(sorted(new))}"] * bool(new)
    if not differences and _rules(there) != _rules(template):
        differences = ["has other resources or conditions"]
    return f"; its policy {policy} was changed: it {' and '.join(differences)}" if differences else ""


def _rules(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The statements without their ids, which the stack's policies have not."""
    statements = _listed(document["Statement"])
    return [{key: value for key, value in statement.items() if key != "Sid"} for statement in statements]


def of_script(case: Case[Any], rights: Sequence[Right]) -> Sequence[Right]:
    """`rights` if the job has a user's own script, else none."""
    return rights if case.job.train.source is not None else ()


def _put(role: str, policy: str) -> str:
    document = f"--policy-name {policy} --policy-document file://infra/iam/{policy}.json"
    return f"{SET_UP}, or aws iam put-role-policy --role-name {role} {document}"


def verdict(
    case: Case[Any],
    principal: str,
    rights: Sequence[Right],
    fix: Callable[[Sequence[str]], str],
    in_doubt: str,
    policy: str = "launcher",
) -> Verdict:
    """Whether `principal` may do all of it.

    fix: the remedy, by the names of the policies in infra/iam that allow what is refused.
    in_doubt: the remedy if the simulation cannot tell; policy: the one that `principal` should have.
    """
    name, refused, doubtful = principal.rpartition("/")[2], dict[str, None](), dict[str, str]()
    for right in rights:
        for refusal in refusals(case, principal, right):
            if refusal.doubt:
                doubtful.setdefault(refusal.action, refusal.doubt)
            else:
                refused[refusal.action] = None
    if refused:
        policies = sorted({granted_by(action, policy) for action in refused} - {""})
        names = [policy.rpartition("/")[2].removesuffix(".json") for policy in policies]
        return missing(f"{name} may not {', '.join(refused)}, which {' and '.join(policies)} allows", fix(names))
    if doubtful:
        doubts = "; ".join(dict.fromkeys(doubtful.values()))
        return unknown(f"whether {name} may {', '.join(doubtful)}: {doubts}", in_doubt)
    actions = {action for right in rights for action in right.actions}
    return ok(f"{name}: {len(actions)} actions that the job needs are allowed")


@dataclass(frozen=True)
class Refusal:
    """An action that IAM would refuse."""

    action: str
    doubt: str = ""  # why the request itself may still be allowed; empty if it will not


def refusals(case: Case[Any], principal: str, right: Right) -> list[Refusal]:
    """The actions that IAM would refuse on one of the resources."""
    # The organization's policies are also evaluated, and many of them test the region, even if it has no value.
    context = {**right.context, "aws:RequestedRegion": case.region}
    answer = case.aws.pages("iam", "SimulatePrincipalPolicy", "EvaluationResults", {
        "PolicySourceArn": principal,
        "ActionNames": list(right.actions),
        "ResourceArns": [_filled(resource, case) for resource in right.resources],
        "ContextEntries": [
            {"ContextKeyName": key, "ContextKeyValues": [_filled(value, case)], "ContextKeyType": _type(value)}
            for key, value in context.items()
        ],
    })  # fmt: skip
    found = {Refusal(row["EvalActionName"], _doubt(row)) for row in answer if row["EvalDecision"] != "allowed"}
    return sorted(found, key=lambda one: (one.action, one.doubt))


def _type(value: str) -> str:
    if value.isdigit():
        return "numeric"
    return "boolean" if value in ("true", "false") else "string"


def _doubt(row: Mapping[str, Any]) -> str:
    if row.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations") is False:
        return "the organization's policies refuse it in the simulation"
    if lacking := row.get("MissingContextValues"):
        return f"policies test {', '.join(lacking)}, which the simulation does not know"
    return ""


def denied(case: Case[Any], principal: str, right: Right) -> list[str]:
    """The actions that IAM would refuse, for any reason."""
    return sorted({refusal.action for refusal in refusals(case, principal, right)})


def _filled(text: str, case: Case[Any]) -> str:
    names = {"ACCOUNT": case.account, "REGION": case.region, "BUCKET": case.bucket, "JOB": NAME}
    return text.format_map({**names, **case.examination.names(case)})


# ---- roles: whether they exist, and whether the service that uses each may assume it


def trusting(case: Case[Any], role: Mapping[str, Any], services: Sequence[str], file: str) -> Verdict:
    """Whether `services` may assume the role.  file: of infra/iam, the policy that lets them."""
    name, trusted = role["RoleName"], set(_trusted(role["AssumeRolePolicyDocument"], case.account))
    distrusted = [service for service in services if service not in trusted]
    if not distrusted:
        return ok(f"{name}, for {' and '.join(services)}")
    document = f"--policy-document '{_document(file, case.account)}'"
    fix = f"{SET_UP}, or aws iam update-assume-role-policy --role-name {name} {document}"
    return missing(f"role {name} may not be assumed by {' and '.join(distrusted)} for this account", fix)


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
    """The account in a value of a condition key, perhaps with wildcards; None if there is none."""
    if key == "aws:sourceaccount":
        return value
    parts = value.split(":")
    return parts[4] if key == "aws:sourcearn" and len(parts) > 4 and parts[4] else None


def _listed(value: Any) -> Iterable[Any]:
    """Normalize a JSON value to a list, as AWS writes a list of one without brackets."""
    return value if isinstance(value, (list, tuple)) else [value]


# ---- keys of the user's own


def use_of_key(case: Case[Any], key: str, what: str) -> Iterator[Verdict]:
    """Whether a key of the user's can be used for `what`: of this account, enabled, allowed.  key: id, ARN or alias."""
    remedy = "allow it in the key's policy (infra/account.md), or use AWS's own key"
    owner = key.split(":")[4] if key.startswith("arn:") else case.account
    if owner != case.account:  # only that account may describe it
        yield missing(f"{what}: key {key} belongs to account {owner}", remedy)
        return
    described = case.aws.call("kms", "DescribeKey", {"KeyId": key})["KeyMetadata"]
    if described.get("KeyManager") == "AWS":
        yield ok(f"{what}: AWS's own key")
    elif described.get("KeyState") != "Enabled":
        yield missing(f"{what}: key {key} is {described.get('KeyState')}", f"aws kms enable-key --key-id {key}")
    elif lacking := denied(case, case.identity.principal, _use_of(described["Arn"])):
        text = f"{what}: unless the policy of key {key} allows it, these credentials may not {', '.join(lacking)}"
        yield warning(text, remedy)
    else:
        yield ok(f"{what}: a key of your own, {key}, which these credentials may use")


def _use_of(key: str) -> Right:
    """The permissions that EC2 needs to make a volume with a key of the user's.

    https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html
    """
    actions = ["kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext",
               "kms:ReEncryptFrom", "kms:ReEncryptTo"]  # fmt: skip
    return Right(actions, [key], {"kms:GrantIsForAWSResource": "true"})


def stack_region(case: Case[Any]) -> str:
    """The region whose stack made the roles; empty if none did."""
    try:
        role = case.aws.call("iam", "GetRole", {"RoleName": f"{TOOLKIT}-node"})["Role"]
    except AwsError:
        return ""
    return tag_values(role).get(STACK_TAG, "")
