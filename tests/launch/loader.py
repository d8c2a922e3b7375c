"""What botocore makes anew for every client, kept once made: all of it takes longer than a launch."""

import functools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import botocore.client
import botocore.loaders
from botocore.hooks import EventAliaser
from botocore.model import ServiceModel
from botocore.retries.quota import RetryQuota
from botocore.utils import EVENT_ALIASES

_loader = functools.cache(botocore.loaders.create_loader)
_create_class = botocore.client.ClientCreator._create_client_class
_load_model = botocore.client.ClientCreator._load_service_model
_alias = EventAliaser.__init__
_classes: dict[str, type] = {}
_models: dict[tuple[str, str | None], ServiceModel] = {}
_names_of_events: dict[str, str] = {}
_make_quota = RetryQuota.__init__
_quotas = weakref.WeakSet[RetryQuota]()


@contextmanager
def shared() -> Iterator[None]:
    """Until its end all sessions of boto3 have one reader, and all clients of a service one class and one model."""
    creator = botocore.client.ClientCreator
    with (
        mock.patch("botocore.session.create_loader", _shared),
        mock.patch.object(creator, "_create_client_class", _class_of),
        mock.patch.object(creator, "_load_service_model", _model_of),
        mock.patch.object(EventAliaser, "__init__", _alias_with_known_names),
        mock.patch.object(RetryQuota, "__init__", _make_known_quota),
    ):
        yield


def _shared(path: str | None = None) -> Any:
    loader = _loader(path)
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)  # every boto3 session adds its own
    return loader


def _class_of(creator: botocore.client.ClientCreator, service: str, model: Any) -> type:
    if service not in _classes:
        _classes[service] = _create_class(creator, service, model)
    return _classes[service]


def _model_of(creator: botocore.client.ClientCreator, service: str, version: str | None = None) -> ServiceModel:
    if (service, version) not in _models:
        _models[service, version] = _load_model(creator, service, version)
    return _models[service, version]


def _alias_with_known_names(aliaser: EventAliaser, emitter: Any, aliases: dict[str, str] | None = None) -> None:
    _alias(aliaser, emitter, aliases)
    if aliaser._event_aliases == EVENT_ALIASES:
        aliaser._alias_name_cache = _names_of_events


def _make_known_quota(quota: RetryQuota, *args: Any, **options: Any) -> None:
    _make_quota(quota, *args, **options)
    _quotas.add(quota)


def fill_quotas() -> None:
    """Lets every client try again as often as a new one: what failed for one test would keep the next from it."""
    for quota in _quotas:
        quota.release(RetryQuota.INITIAL_CAPACITY)
