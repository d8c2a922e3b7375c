"""The environment of a rehearsal: without the user's AWS settings and proxies."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any
from unittest import mock

# Prefixes of the user's own settings that are removed; proxies are, too, in upper and lower case.
REMOVED = ("AWS_", "BOTO_", "MOTO_", "TEST_SERVER_MODE")
# No credentials can be found.
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
    "AWS_SESSION_TOKEN": secrets.token_urlsafe(32),  # which moto checks: other users reach this machine's ports
    "AWS_EC2_METADATA_DISABLED": "true",
}
# For moto.  Loading its 1,300 old AMIs would take half a second.
MOTO = {
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    "MOTO_ENABLE_AMI_VALIDATION": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
}


def shared_models() -> AbstractContextManager[Any]:
    """One reader of botocore's models of AWS's services for all sessions inside the block: moto opens dozens."""
    import botocore.session

    return mock.patch.object(botocore.session, "create_loader", cache(botocore.session.create_loader))


def cleaned(env: Mapping[str, str]) -> dict[str, str]:
    """`env` for a launcher that can reach only the embedded AWS."""
    kept = {name: value for name, value in env.items() if not _is_the_users(name)}
    return {**kept, **CREDENTIALS}


def _is_the_users(name: str) -> bool:
    return name.startswith(REMOVED) or name.lower().endswith("_proxy")


@contextmanager
def entered(env: Mapping[str, str]) -> Iterator[None]:
    """Replaces this process's environment inside the block, as moto and boto3 read it in many places."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({**cleaned(env), **MOTO})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
