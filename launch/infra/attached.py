"""What others have attached to the stack's policies and roles.

CloudFormation deletes neither then ("Cannot delete a policy attached to entities"), and stops halfway:
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

# What stacks of before gave their nodes themselves; CloudFormation takes off what it put on.
OURS = {"arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"}


def check_nothing_attached(aws: Aws, stack: Stack) -> None:
    """Raises AwsError with the commands that detach it, if there is something."""
    commands = [command for arn in stack.named("AWS::IAM::ManagedPolicy") for command in _users_of(aws, arn)]
    commands += [command for role in stack.named("AWS::IAM::Role") for command in _added_to(aws, role)]
    if commands:
        raise AwsError(
            "others use the stack's policies, or have added to its roles, so AWS would stop halfway. Look who needs "
            "that, and detach it with these commands:\n" + "\n".join(f"  {command}" for command in commands),
            "Attached",
        )


def _users_of(aws: Aws, arn: str) -> list[str]:
    """A command for each user, group or role that has the policy."""
    commands = list[str]()
    for kind in ("User", "Group", "Role"):
        asked = {"PolicyArn": arn, "EntityFilter": kind}
        word, rows = kind.lower(), _listed(aws, "ListEntitiesForPolicy", f"Policy{kind}s", asked)
        commands += [
            f"aws iam detach-{word}-policy --{word}-name {row[f'{kind}Name']} --policy-arn {arn}" for row in rows
        ]
    return commands


def _added_to(aws: Aws, role: str) -> list[str]:
    """A command for each policy that the stack did not give the role.  Its own has the role's name without ours."""
    name = {"RoleName": role}
    attached = _listed(aws, "ListAttachedRolePolicies", "AttachedPolicies", name)
    inline = _listed(aws, "ListRolePolicies", "PolicyNames", name)
    arns = [row["PolicyArn"] for row in attached if row["PolicyArn"] not in OURS]
    names = [policy for policy in inline if policy != role.removeprefix(f"{TOOLKIT}-")]
    return [f"aws iam detach-role-policy --role-name {role} --policy-arn {arn}" for arn in arns] + [
        f"aws iam delete-role-policy --role-name {role} --policy-name {policy}" for policy in names
    ]


def _listed(aws: Aws, operation: str, key: str, asked: Mapping[str, str]) -> list[Any]:
    """Nothing of what is gone: an earlier `down` may have stopped halfway."""
    return unless_absent(partial(aws.pages, "iam", operation, key, asked)) or []
