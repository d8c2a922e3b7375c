"""NAME=VALUE,... on a command line.  Pure."""

import re
from collections.abc import Iterable

from trainer.errors import SettingsError
from trainer.settings.hidden import is_secret


def read_variables(option: str, words: Iterable[str]) -> dict[str, str]:
    """{variable: value} for environment variables.  Raises SettingsError, which never repeats what may be a secret."""
    pairs = read_pairs(option, words)
    for name in pairs:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise SettingsError(f"{option}: names have letters, digits and _, and no digit at the start.")
        if is_secret(name, pairs[name]):
            raise SettingsError(
                f"{option} {name} looks like a secret, and everybody who can describe the job would see it; "
                f"store it in AWS and give --secret {name}=ssm:/ddp-toolkit/..., or leave it out."
            )
    return pairs


def read_pairs(option: str, words: Iterable[str]) -> dict[str, str]:
    """{key: value}.  Raises SettingsError."""
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            # What has no name may be a secret that was given by mistake.
            raise SettingsError(f"{option}: write it as KEY=VALUE,KEY=VALUE.")
        pairs[key] = value
    return pairs
