"""The environment of a rehearsal: nothing of the user's own AWS is in it, and no way out of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# The user's own settings of AWS, of moto and of proxies, whose names come in both cases.
NOT_OURS = ("AWS_", "BOTO_", "MOTO_", "TEST_SERVER_MODE")
# Whoever looks for credentials finds these, or none.
NO_ACCOUNT = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "NO_PROXY": "*",
    "no_proxy": "*",
}
CREDENTIALS = {
    **NO_ACCOUNT,
    "AWS_ACCESS_KEY_ID": "rehearsal",
    "AWS_SECRET_ACCESS_KEY": "rehearsal",  # nosec B105  # moto takes any
    "AWS_EC2_METADATA_DISABLED": "true",
}
# moto reads these when it is used; 1,300 old AMIs would take half a second.
MOTO = {
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    "MOTO_ENABLE_AMI_VALIDATION": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
}


def cleaned(env: Mapping[str, str]) -> dict[str, str]:
    """`env` as a launcher finds it that can reach no AWS but ours."""
    kept = {name: value for name, value in env.items() if not _is_the_users(name)}
    return {**kept, **CREDENTIALS}


def _is_the_users(name: str) -> bool:
    return name.startswith(NOT_OURS) or name.lower().endswith("_proxy")


@contextmanager
def entered(env: Mapping[str, str]) -> Iterator[None]:
    """Meanwhile this process has no other environment: moto and boto3 read it wherever they like."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({**cleaned(env), **MOTO})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
