"""Keys of the user's own: whether the launcher may use them."""

from collections.abc import Iterator
from typing import Any

from launch.core.examination import permissions
from launch.core.examination.case import Case
from launch.core.examination.findings import Verdict, missing, ok, warning
from launch.core.examination.rights import Right


def use_of_key(case: Case[Any], key: str, what: str) -> Iterator[Verdict]:
    """Whether a key of the user's can be used for `what`: of this account, enabled, allowed.  key: id, ARN or alias."""
    remedy = "allow it in the key's policy (infra/account.md), or use AWS's own key"
    owner = key.split(":")[4] if key.startswith("arn:") else case.account
    if owner != case.account:  # which lets nobody else describe it
        yield missing(f"{what}: key {key} belongs to account {owner}", remedy)
        return
    described = case.aws.call("kms", "DescribeKey", {"KeyId": key})["KeyMetadata"]
    if described.get("KeyManager") == "AWS":
        yield ok(f"{what}: AWS's own key")
    elif described.get("KeyState") != "Enabled":
        yield missing(f"{what}: key {key} is {described.get('KeyState')}", f"aws kms enable-key --key-id {key}")
    elif denied := permissions.denied(case, case.identity.principal, _use_of(described["Arn"])):
        text = f"{what}: unless the policy of key {key} allows it, these credentials may not {', '.join(denied)}"
        yield warning(text, remedy)
    else:
        yield ok(f"{what}: a key of your own, {key}, which these credentials may use")


def _use_of(key: str) -> Right:
    """What EC2 asks of whoever makes a volume with a key of the user's.

    https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html
    """
    actions = ["kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext",
               "kms:ReEncryptFrom", "kms:ReEncryptTo"]  # fmt: skip
    return Right(actions, [key], {"kms:GrantIsForAWSResource": "true"})
