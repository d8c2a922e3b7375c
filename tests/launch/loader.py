"""botocore's reader of its models and its classes of clients, kept once made: both take longer than a launch."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import botocore.client
import botocore.loaders

_loader = functools.cache(botocore.loaders.create_loader)
_create_class = botocore.client.ClientCreator._create_client_class
_classes: dict[str, type] = {}


@contextmanager
def shared() -> Iterator[None]:
    """Until its end all sessions of boto3 have one reader, and all clients of a service one class."""
    creator = mock.patch.object(botocore.client.ClientCreator, "_create_client_class", _class_of)
    with mock.patch("botocore.session.create_loader", _shared), creator:
        yield


def _shared(path: str | None = None) -> Any:
    loader = _loader(path)
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)  # every boto3 session adds its own
    return loader


def _class_of(creator: botocore.client.ClientCreator, service: str, model: Any) -> type:
    if service not in _classes:
        _classes[service] = _create_class(creator, service, model)
    return _classes[service]
