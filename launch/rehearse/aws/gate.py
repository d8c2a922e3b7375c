"""Checks that a request passes before its service sees it; each may refuse it.

moto asks one method whether a request is allowed, for every service and in both of its modes, so that is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from moto.core.authorization import ActionAuthenticatorMixin
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.utils import get_service_model
from moto.s3.exceptions import S3ClientError
from werkzeug.exceptions import HTTPException

from launch.rehearse.aws.call import Call
from launch.rehearse.aws.refusal import Refusal


@dataclass(frozen=True)
class Asked:
    """A call as it arrives.  key: the access key that it is signed with."""

    call: Call
    key: str
    account: str
    region: str


Check = Callable[[Asked], Refusal | None]


@contextmanager
def guarded(checks: Sequence[Check]) -> Iterator[None]:
    """Inside the block, every request of any service must pass all checks, in this order."""

    def look(response: Any, _request_class: type, _resource: str = "*") -> None:
        asked = asked_of(response)
        for check in checks:
            if refusal := check(asked):
                raise _as_error(asked.call.service, refusal)

    with mock.patch.object(ActionAuthenticatorMixin, "_authenticate_and_authorize_action", look):
        yield


def asked_of(response: Any) -> Asked:
    """The call that moto is about to answer."""
    service, request = response.boto3_service_name, response.normalized_request
    signature = re.search(r"Credential=([^/,]+)/", response.headers.get("Authorization", ""))
    key = signature[1] if signature else ""
    return Asked(_call(service, request), key, response.current_account, response.region)


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
