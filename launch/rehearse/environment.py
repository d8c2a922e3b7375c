"""The environment of a rehearsal: without the user's AWS settings and proxies."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any
from unittest import mock

# Prefixes of the user's variables that are removed; proxy variables are removed, too, in upper and lower case.
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
    "AWS_SECRET_ACCESS_KEY": "rehearsal",  # moto takes any
    "AWS_SESSION_TOKEN": secrets.token_urlsafe(32),  # checked, as other users of this machine can reach its ports
    "AWS_EC2_METADATA_DISABLED": "true",
}
# For moto.  Loading its 1,300 old AMIs would take half a second.
MOTO = {
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    "MOTO_ENABLE_AMI_VALIDATION": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
}


def shared_models() -> AbstractContextManager[Any]:
    """Share one loader of botocore's service models between all sessions inside the block: moto creates dozens."""
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
    """Replace this process's environment inside the block, as moto and boto3 read it in many places."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({**cleaned(env), **MOTO})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
