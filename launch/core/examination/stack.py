"""The account's stack, as far as remedies name it."""

from typing import Any

from launch.core.errors import AwsError
from launch.core.examination.case import Case
from launch.core.names import STACK_TAG, TOOLKIT, tag_values


def home(case: Case[Any]) -> str:
    """The region whose stack made the roles; empty if none did."""
    try:
        role = case.aws.call("iam", "GetRole", {"RoleName": f"{TOOLKIT}-node"})["Role"]
    except AwsError:
        return ""
    return tag_values(role).get(STACK_TAG, "")
