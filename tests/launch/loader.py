"""botocore's reader of its models, which keeps what it has read: that takes longer than a launch under moto."""

import functools
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import botocore.loaders

_loader = functools.cache(botocore.loaders.create_loader)


def shared() -> AbstractContextManager[Any]:
    """Until its end all sessions of boto3 have one reader."""
    return mock.patch("botocore.session.create_loader", _shared)


def _shared(path: str | None = None) -> Any:
    loader = _loader(path)
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)  # every boto3 session adds its own
    return loader
