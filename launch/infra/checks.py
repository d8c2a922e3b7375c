"""What can be said of settings without asking AWS, in our words: before any call."""

import re

from launch.infra.options import SetUpOptions
from launch.infra.template import filled, read
from trainer.errors import SettingsError

ADDRESS = r"[^@\s,]+@[^@\s,]+\.[^@\s,.]+"
ACCOUNT = r"\d{12}"
# Of AWS's other partitions: China, GovCloud, the isolated and the European sovereign ones.
ELSEWHERE = r"(cn|us-gov|[a-z]+-iso[a-z]*|eusc)-.*"


def check(options: SetUpOptions) -> None:
    """Raises SettingsError."""
    if options.email and not re.fullmatch(ADDRESS, options.email):
        raise SettingsError(
            f"--email {options.email!r} is no address; give one such as you@example.org, or '' for none."
        )
    if options.log_days is not None:
        _check_log_days(options.log_days)
    if options.region is not None:
        check_region(options.region)


def _check_log_days(days: int) -> None:
    allowed = read(filled("0" * 12, "us-east-1"))["Parameters"]["LogDays"]["AllowedValues"]
    if days not in allowed:
        nearest = [
            *[known for known in allowed if known < days][-1:],
            *[known for known in allowed if known > days][:1],
        ]
        raise SettingsError(
            f"--log-days {days} is not among what CloudWatch offers; give {' or '.join(map(str, nearest))}."
        )


def check_region(region: str) -> None:
    """Raises SettingsError for one of another partition: infra/iam says arn:aws:."""
    if re.fullmatch(ELSEWHERE, region):
        raise SettingsError(
            f"{region} is not in AWS's main partition, which the policies are for; give another --region."
        )


def check_account(account: str) -> None:
    """Raises SettingsError."""
    if not re.fullmatch(ACCOUNT, account):
        raise SettingsError(f"--account {account!r} is no account; give its 12 digits, such as 123456789012.")
