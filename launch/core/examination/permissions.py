"""What the caller and the job's roles may do, by IAM's own simulation.

https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html: it evaluates the policies of a
user or role, with its boundary and the organization's, and makes no request.  Policies of a bucket, key or repository
are not in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.core.examination.case import Case
from launch.core.examination.findings import Verdict, missing, ok, unknown
from launch.core.examination.rights import NAME, Right
from launch.core.lookup import SET_UP
from launch.core.refusals import granted_by


def of_role(case: Case[Any], name: str, rights: Sequence[Right], policy: str) -> Iterator[Verdict]:
    """Whether the role of a job's machines may do all of it.  policy: its file in infra/iam."""
    role = f"arn:aws:iam::{case.account}:role/{name}"
    in_doubt = "run a short job: only that can tell"
    yield verdict(case, role, rights, lambda _policies: _put(name, policy), in_doubt, policy)


def of_script(case: Case[Any], rights: Sequence[Right]) -> Sequence[Right]:
    """Those, if the job has a script of the user's own."""
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
    in_doubt: the remedy where the simulation cannot tell; policy: the one that `principal` should have.
    """
    name, refused, doubtful = principal.rpartition("/")[2], dict[str, None](), dict[str, str]()
    for right in rights:
        for refusal in refusals(case, principal, right):
            if refusal.doubt:
                doubtful.setdefault(refusal.action, refusal.doubt)
            else:
                refused[refusal.action] = None
    if refused:
        policies = sorted({granted_by(action, policy) for action in refused})
        names = [policy.rpartition("/")[2].removesuffix(".json") for policy in policies]
        return missing(f"{name} may not {', '.join(refused)}, which {' and '.join(policies)} allows", fix(names))
    if doubtful:
        doubts = "; ".join(dict.fromkeys(doubtful.values()))
        return unknown(f"whether {name} may {', '.join(doubtful)}: {doubts}", in_doubt)
    actions = {action for right in rights for action in right.actions}
    return ok(f"{name}: {len(actions)} actions that the job needs are allowed")


@dataclass(frozen=True)
class Refusal:
    """An action that IAM would refuse.  doubt: why the request itself may fare otherwise, empty if it will not."""

    action: str
    doubt: str = ""


def refusals(case: Case[Any], principal: str, right: Right) -> list[Refusal]:
    """The actions that IAM would refuse on one of the resources."""
    # The organization's policies are evaluated, too, and many of them test the region, also where it has no value.
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
    """The actions that IAM would refuse, for whatever reason."""
    return sorted({refusal.action for refusal in refusals(case, principal, right)})


def _filled(text: str, case: Case[Any]) -> str:
    names = {"ACCOUNT": case.account, "REGION": case.region, "BUCKET": case.bucket, "JOB": NAME}
    return text.format_map({**names, **case.examination.names(case)})
