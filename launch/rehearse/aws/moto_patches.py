"""Patches of moto's own classes: what it lacks or gets wrong is then right in its server, too.

What a service needs is in its own moto_patches.py.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any
from unittest import mock

from moto.core.authorization import ActionAuthenticatorMixin
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.utils import get_service_model
from moto.s3.exceptions import S3ClientError
from moto.s3.responses import S3Response
from werkzeug.exceptions import HTTPException

from launch.rehearse.aws.calls import Call, Check, Refusal, SignedCall


def locked(act: Callable[..., Any]) -> Callable[..., Any]:
    """`act` under the lock of the rules, which are its first argument or an attribute of it.

    moto's server has a thread for each request, and its own classes have no locks: without one, two requests at a time
    see or make half of a resource.
    """

    @functools.wraps(act)
    def act_locked(first: Any, *args: Any, **named: Any) -> Any:
        with getattr(first, "rules", first).lock:
            return act(first, *args, **named)

    return act_locked


def replaced(owner: type, name: str, new: Callable[..., Any], rules: Any) -> AbstractContextManager[Any]:
    """Replaces owner.name inside the block by `new`, which gets the rules, moto's own method and its arguments."""
    original = getattr(owner, name, None)
    under_lock = locked(new)

    def method(self: Any, *args: Any, **named: Any) -> Any:
        return under_lock(rules, original, self, *args, **named)

    return mock.patch.object(owner, name, method, create=True)


# ---- checks of requests


@contextmanager
def guarded(checks: Sequence[Check]) -> Iterator[None]:
    """Inside the block, every request of any service must pass all checks, in this order."""

    def check_all(response: Any, _request_class: type, _resource: str = "*") -> None:
        signed = call_of(response)
        for check in checks:
            if refusal := check(signed):
                raise _as_error(signed.call.service, refusal)

    with mock.patch.object(ActionAuthenticatorMixin, "_authenticate_and_authorize_action", check_all):
        yield


def call_of(response: Any) -> SignedCall:
    """The call that moto is about to answer."""
    service, request = response.boto3_service_name, response.normalized_request
    signature = re.search(r"Credential=([^/,]+)/", response.headers.get("Authorization", ""))
    key = signature[1] if signature else ""
    return SignedCall(_call(service, request), key, response.current_account, response.region)


def _call(service: str, request: Any) -> Call:
    try:
        operation, place = get_service_router(service).match(request)
    except HTTPException:  # a request that AWS does not know either
        return Call(service, "?", {})
    model = get_service_model(service).operation_model(operation.name)
    parser = PROTOCOL_PARSERS[determine_request_protocol(model.service_model, request.content_type)](model)
    given: Any = {"method": request.method, "values": request.values, "headers": request.headers, "body": request.data,
             "url_path": request.path, "url_params": place}  # fmt: skip
    return Call(service, str(operation.name), dict(parser.parse(given)))


def _as_error(service: str, refusal: Refusal) -> Exception:
    """What moto turns into the answer."""
    if service == "s3":
        return S3ClientError(refusal.code, refusal.message)  # moto knows the status of each code
    error = HTTPException(refusal.body(service)[1].decode())
    error.code = refusal.status
    return error


# ---- S3


@contextmanager
def heads_have_no_body() -> Iterator[None]:
    """Inside the block, a refused HEAD has a status and nothing else: its code is 403 or 404.

    https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html, "If the HEAD request generates an error ..."
    """
    whole = S3Response.serialized

    def serialized(response: Any, result: Any) -> Any:
        status, headers, body = whole(response, result)
        return status, headers, "" if response.method == "HEAD" else body

    with mock.patch.object(S3Response, "serialized", serialized):
        yield


@contextmanager
def one_write_at_a_time() -> Iterator[None]:
    """Inside the block, one of two simultaneous writes with If-None-Match is refused.

    moto's server has a thread for each request, and checks for the object before it writes it.
    """
    lock, put_object = Lock(), S3Response.put_object

    def put_one(response: Any) -> Any:
        with lock:
            return put_object(response)

    with mock.patch.object(S3Response, "put_object", put_one):
        yield
