"""The checks that every job needs, and run(), which makes them and those of its backend one after the other.

To add a check that every job needs: a function that takes the case and yields verdicts, and a line here.  What only
one backend's jobs need is in its own Examination.
"""

from collections.abc import Iterator
from typing import Any

from launch.core.examination.case import Case, Check, Examination
from launch.core.examination.findings import Finding, Verdict, of_error
from launch.doctor import account, identity, permissions
from trainer.errors import TrainerError


def of(examination: Examination) -> tuple[Check, ...]:
    """All checks of a backend's job, in their order."""
    return (
        Check("credentials", identity.credentials),
        Check("clock", identity.clock),
        Check("stack", account.stack),
        Check("bucket", account.bucket),
        Check("bucket's key", account.keys),
        *examination.roles,
        Check("permissions", permissions.of_launcher),
        *examination.needs,
        Check("budget", account.budget),
        Check("leftovers", examination.leftovers),
    )


def run(case: Case[Any]) -> Iterator[Finding]:
    """The findings of all checks.  Raises nothing of AWS's."""
    for check in of(case.examination):
        yield from (Finding(check.name, verdict) for verdict in _verdicts(check, case))


def _verdicts(check: Check, case: Case[Any]) -> Iterator[Verdict]:
    try:
        yield from check.run(case)
    except TrainerError as error:
        yield of_error(error, check.remedy)
