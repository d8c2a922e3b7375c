"""What the launcher may do: whoever calls the doctor."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from launch.core.examination.case import Case
from launch.core.examination.findings import Verdict, ok
from launch.core.examination.permissions import of_script, verdict
from launch.core.examination.rights import SENDS_SOURCE
from launch.core.names import TOOLKIT


def of_launcher(case: Case[Any]) -> Iterator[Verdict]:
    if case.identity.is_root:
        yield ok("the root user may do everything")
        return
    rights = [*case.examination.rights, *of_script(case, SENDS_SOURCE)]
    if rights:
        yield verdict(case, case.identity.principal, rights, partial(_attach, case), case.examination.in_doubt)


def _attach(case: Case[Any], policies: Sequence[str]) -> str:
    """How the caller gets policies of infra/iam."""
    names = [f"{TOOLKIT}-{policy}" for policy in policies]
    if "/aws-reserved/sso.amazonaws.com/" in case.identity.principal:  # a role that nobody but AWS may change
        return f"add the customer managed policies {' and '.join(names)} to the permission set, in IAM Identity Center"
    kind = "role" if ":role/" in case.identity.principal else "user"
    whom = f"--{kind}-name {case.identity.principal.rpartition('/')[2]}"
    attach = f"aws iam attach-{kind}-policy {whom} --policy-arn arn:aws:iam::{case.account}:policy/"
    return " && ".join(attach + name for name in names)
