"""Attachments of others to the stack's policies and roles.

CloudFormation cannot delete those then ("Cannot delete a policy attached to entities") and stops halfway:
https://docs.aws.amazon.com/IAM/latest/APIReference/API_DeletePolicy.html
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.names import TOOLKIT
from launch.infra.facts import Stack
from launch.infra.lookup import unless_absent

# Earlier versions of the stack attached these themselves; CloudFormation detaches what it attached.
OURS = {"arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"}


def check_nothing_attached(aws: Aws, stack: Stack) -> None:
    """Raises AwsError with the commands that detach what others attached."""
    commands = list[str]()
    for arn in stack.physical_ids("AWS::IAM::ManagedPolicy"):
        commands += _detach_from_users(aws, arn)
    for role in stack.physical_ids("AWS::IAM::Role"):
        commands += _detach_from_role(aws, role)
    if commands:
        raise AwsError(
            "the stack's policies are attached elsewhere, or its roles have additional policies, so AWS could not "
            "delete them. Check who needs these attachments, then remove them:\n"
            + "\n".join(f"  {command}" for command in commands),
            "Attached",
        )


def _detach_from_users(aws: Aws, arn: str) -> list[str]:
    """A command for each user, group and role that has the policy."""
    commands = list[str]()
    for kind in ("User", "Group", "Role"):
        query = {"PolicyArn": arn, "EntityFilter": kind}
        entity = kind.lower()
        for row in _pages(aws, "ListEntitiesForPolicy", f"Policy{kind}s", query):
            name = row[f"{kind}Name"]
            commands.append(f"aws iam detach-{entity}-policy --{entity}-name {name} --policy-arn {arn}")
    return commands


def _detach_from_role(aws: Aws, role: str) -> list[str]:
    """A command for each policy of the role that is not the stack's, which is named like the role."""
    commands = list[str]()
    query = {"RoleName": role}
    for row in _pages(aws, "ListAttachedRolePolicies", "AttachedPolicies", query):
        if row["PolicyArn"] not in OURS:
            commands.append(f"aws iam detach-role-policy --role-name {role} --policy-arn {row['PolicyArn']}")
    for name in _pages(aws, "ListRolePolicies", "PolicyNames", query):
        if name != role.removeprefix(f"{TOOLKIT}-"):
            commands.append(f"aws iam delete-role-policy --role-name {role} --policy-name {name}")
    return commands


def _pages(aws: Aws, operation: str, key: str, query: Mapping[str, str]) -> list[Any]:
    """Empty for what no longer exists: an earlier `down` may have stopped halfway."""
    return unless_absent(partial(aws.pages, "iam", operation, key, query)) or []
