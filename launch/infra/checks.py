"""Checks of settings that need no call to AWS."""

import re

from launch.core.regions import check_region
from launch.infra.options import SetUpOptions
from launch.infra.template import filled, read
from trainer.errors import SettingsError

ADDRESS = r"[^@\s,]+@[^@\s,]+\.[^@\s,.]+"
ACCOUNT = r"\d{12}"


def check(options: SetUpOptions) -> None:
    """Raises SettingsError."""
    if options.email and not re.fullmatch(ADDRESS, options.email):
        raise SettingsError(
            f"--email {options.email!r} is not an address; give one such as you@example.org, or '' to remove it."
        )
    if options.log_days is not None:
        _check_log_days(options.log_days)
    if options.region is not None:
        check_region(options.region)


def _check_log_days(days: int) -> None:
    allowed = read(filled("0" * 12, "us-east-1"))["Parameters"]["LogDays"]["AllowedValues"]
    if days in allowed:
        return
    below = [value for value in allowed if value < days]
    above = [value for value in allowed if value > days]
    nearest = " or ".join(str(value) for value in (*below[-1:], *above[:1]))
    raise SettingsError(f"--log-days {days} is not a period that CloudWatch offers; give {nearest}.")


def check_account(account: str) -> None:
    """Raises SettingsError."""
    if not re.fullmatch(ACCOUNT, account):
        raise SettingsError(f"--account {account!r} is not an account id; give its 12 digits, such as 123456789012.")
