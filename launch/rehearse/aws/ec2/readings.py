"""What only launch.doctor asks, and moto does not know: IAM's simulation, EBS's default key, a layer's address."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from moto.core.responses import ActionResult
from moto.iam.exceptions import NotFoundException

from launch.rehearse.aws.ec2.rules import EVERYTHING, Rules
from launch.rehearse.aws.iam.policies import Need, Policy, allows

LAYERS = "https://layers.invalid/"


def simulate_principal_policy(rules: Any, original: Any, response: Any) -> ActionResult:
    """https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html: one result per action,
    with the most restrictive decision of all resources.
    """
    ask = response._get_param
    policies = _policies_of(rules, response.backend, ask("PolicySourceArn"))
    context = {entry["ContextKeyName"]: entry["ContextKeyValues"][0] for entry in ask("ContextEntries", [])}
    resources = ask("ResourceArns", ["*"])
    rows = []
    organization = getattr(rules, "organization", [EVERYTHING])
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
    """moto knows neither the callers here nor the form of a user's ARN."""
    user, arn, account = original(sts, key, region)
    caller = rules.access.callers.get(key)
    return user, caller.arn if caller else f"arn:aws:iam::{account}:user/{arn.rpartition('/')[2]}", account


def get_ebs_default_kms_key_id(rules: Rules, original: Any, response: Any) -> ActionResult:
    return ActionResult({"KmsKeyId": rules.default_key})


def describe_vpc_block_public_access_options(rules: Rules, original: Any, response: Any) -> ActionResult:
    return ActionResult({"VpcBlockPublicAccessOptions": {"InternetGatewayBlockMode": rules.public_access}})


def describe_vpc_block_public_access_exclusions(rules: Rules, original: Any, response: Any) -> ActionResult:
    rows = [{"ResourceArn": arn, "State": "create-complete"} for arn in rules.excluded]
    return ActionResult({"VpcBlockPublicAccessExclusions": rows})


def get_download_url_for_layer(rules: Rules, original: Any, response: Any) -> ActionResult:
    digest = response._get_param("layerDigest")
    return ActionResult({"downloadUrl": f"{LAYERS}{digest}", "layerDigest": digest})
