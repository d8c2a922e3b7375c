"""The callers of the embedded AWS, and IAM's checks of their calls.

A denied call changes nothing: AWS authorizes a request before anything else.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic_policy-eval-denyallow.html
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.models import ec2_backends
from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends
from moto.sagemaker.models import sagemaker_backends

from launch.rehearse.aws.calls import Call, Check, Refusal, SignedCall
from launch.rehearse.aws.iam.needs import AccountView, needs
from launch.rehearse.aws.iam.policies import FULL_ACCESS, Need, Policy, allows

# Status and code by service; others answer AccessDeniedException, with status 400.
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html#CommonErrors
# https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html#ErrorCodeList
WORDS = {"ec2": (403, "UnauthorizedOperation"), "s3": (403, "AccessDenied"), "iam": (403, "AccessDenied"),
         "sts": (403, "AccessDenied"), "cloudformation": (403, "AccessDenied"),
         "scheduler": (403, "AccessDeniedException")}  # fmt: skip
# Never refused: https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html
ALWAYS = {"sts:GetCallerIdentity"}

# In moto's answer to GetCallerIdentity.
MOTOS_USER_ID = "AKIAIOSFODNN7EXAMPLE"

View = Callable[[str, str], AccountView]


@dataclass
class Caller:
    """A user or a role, with its policies."""

    arn: str
    policies: tuple[Policy, ...]
    user_id: str = MOTOS_USER_ID  # IAM's aws:userid
    boundary: tuple[Policy, ...] | None = None  # permissions boundary, which only limits the policies
    granted: list[Need] = field(default_factory=list)  # needs of its calls so far
    refused: list[Need] = field(default_factory=list)

    def may(self, need: Need) -> bool:
        return self.lacking(need) is None

    def lacking(self, need: Need) -> str | None:
        """The kind of policy that does not allow it, as named by AWS; None if it is allowed."""
        if not allows(self.policies, self._asked(need)):
            return "identity-based policy"
        if self.boundary is not None and not allows(self.boundary, self._asked(need)):
            return "permissions boundary"
        return None

    def _asked(self, need: Need) -> Need:
        """The need with the condition keys that describe the caller."""
        return replace(need, context={"aws:userid": self.user_id, **need.context})

    def lacks(self, call: Call, view: AccountView) -> Need | None:
        """The first need of a call that is not granted."""
        for need in map(self._asked, needs(call, view)):
            if str(call) not in ALWAYS and not self.may(need):
                self.refused.append(need)
                return need
            self.granted.append(need)
        return None


def authorized(callers: Mapping[str, Caller], view: View) -> Check:
    """A check of permissions.  callers: by access key; any other key is an administrator's."""

    def check(signed: SignedCall) -> Refusal | None:
        caller = callers.get(signed.key)
        if caller is None:
            return None
        need = caller.lacks(signed.call, view(signed.account, signed.region))
        return None if need is None else denied(signed.call.service, caller, need)

    return check


def denied(service: str, caller: Caller, need: Need) -> Refusal:
    """https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html"""
    status, code = WORDS.get(service, (400, "AccessDeniedException"))
    why = f"because no {caller.lacking(need)} allows the {need.action} action"
    words = f"User: {caller.arn} is not authorized to perform: {need.action} on resource: {need.resource} {why}"
    prefix = "You are not authorized to perform this operation. " if service == "ec2" else ""
    return Refusal(status, code, prefix + words)


# ---- moto's account as IAM sees it


def view_of(account: str, region: str, groups: Mapping[str, Any], service_jobs: Mapping[str, Any]) -> AccountView:
    """groups, service_jobs: placement groups by name and service jobs by id, which moto does not have."""
    iam, ec2 = iam_backends[account]["aws"], ec2_backends[account][region]

    def tags_of(name: str) -> Mapping[str, str]:
        for there in ec2_backends[account].values():  # a snapshot is copied from another region
            if name in there.tags:
                return dict(there.tags[name])
        jobs: Mapping[str, Any] = sagemaker_backends[account][region].training_jobs
        by_id = next((group for group in groups.values() if group.group_id == name), None)
        found = groups.get(name) or by_id or jobs.get(name) or service_jobs.get(name)
        return {tag["Key"]: tag["Value"] for tag in (found.tags if found else ())}

    def roles_of(profile: str) -> list[str]:
        try:
            return [role.arn for role in iam.get_instance_profile(profile).roles]
        except NotFoundException:  # EC2 refuses it afterwards
            return []

    def owner_of(image: str) -> str:
        found = ec2.amis.get(image)
        return str(found.owner_alias or found.owner_id) if found else ""

    return AccountView(account, region, tags_of, roles_of, owner_of)


# ---- operations of IAM and STS


def simulate_principal_policy(rules: Any, original: Any, response: Any) -> ActionResult:
    """https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html: one result per action,
    with the most restrictive decision of all resources.
    """
    ask = response._get_param
    policies = _policies_of(rules, response.backend, ask("PolicySourceArn"))
    context = {entry["ContextKeyName"]: entry["ContextKeyValues"][0] for entry in ask("ContextEntries", [])}
    resources = ask("ResourceArns", ["*"])
    rows = []
    organization = getattr(rules, "organization", [FULL_ACCESS])
    for action in ask("ActionNames"):
        needs = [Need(action, resource, context) for resource in resources]
        allowed = all(allows(policies, need) for need in needs)
        permitted = all(allows(organization, need) for need in needs)
        decision = "explicitDeny" if not permitted else "allowed" if allowed else "implicitDeny"
        rows.append({
            "EvalActionName": action, "EvalResourceName": resources[0], "EvalDecision": decision,
            "OrganizationsDecisionDetail": {"AllowedByOrganizations": permitted},
        })  # fmt: skip
    return ActionResult({"EvaluationResults": rows, "IsTruncated": False})


def _policies_of(rules: Any, iam: Any, arn: str) -> Sequence[Policy]:
    """The policies of a user or role, its own and those attached to it.  Raises NotFoundException."""
    for caller in rules.access.callers.values():
        if caller.arn == arn:
            return tuple(caller.policies)
    kind, _, path = arn.rpartition(":")[2].partition("/")
    holders = {"user": iam.users.values(), "role": iam.roles.values()}.get(kind, ())
    holder = next((one for one in holders if one.name == path.rpartition("/")[2]), None)
    if holder is None:
        raise NotFoundException(f"The entity {arn} cannot be found.")
    attached = [policy.document for policy in holder.managed_policies.values()]
    documents = (*holder.policies.values(), *attached)  # CloudFormation's are no texts
    return [json.loads(document) if isinstance(document, str) else document for document in documents]


def get_caller_identity(rules: Any, original: Any, sts: Any, key: str, region: str) -> tuple[str, str, str]:
    """The identity of a caller; moto does not know these callers, and formats a user's ARN differently."""
    user, arn, account = original(sts, key, region)
    caller = rules.access.callers.get(key)
    return user, caller.arn if caller else f"arn:aws:iam::{account}:user/{arn.rpartition('/')[2]}", account
