"""The checks that every request must pass before its service handles it: throttling, IAM, access to S3, and DryRun.

They are patched into moto's classes, and so also apply in moto's server.  Patches for a single service are in its
moto_patches.py.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from unittest import mock

from moto.core.authorization import ActionAuthenticatorMixin
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.utils import get_service_model
from moto.iam.responses import IamResponse
from moto.s3.exceptions import S3ClientError
from moto.s3.models import s3_backends
from moto.s3.responses import S3Response
from moto.sts.models import STSBackend
from werkzeug.exceptions import HTTPException

from launch.rehearse.aws.calls import Call, Check, Refusal, SignedCall
from launch.rehearse.aws.iam.callers import (
    Caller,
    authorized,
    denied,
    get_caller_identity,
    simulate_principal_policy,
    view_of,
)
from launch.rehearse.aws.iam.policies import Need, Policy, policy
from launch.rehearse.aws.pricing import priced

Replacements = Mapping[type, Sequence[Callable[..., Any]]]  # of methods with the same names, by moto's class


def locked(act: Callable[..., Any]) -> Callable[..., Any]:
    """`act` under the lock of the rules, which are its first argument or an attribute of it.

    moto's server has a thread for each request, but moto's classes have no locks: concurrent requests would see
    half-created resources.
    """

    @functools.wraps(act)
    def act_locked(first: Any, *args: Any, **named: Any) -> Any:
        with getattr(first, "rules", first).lock:
            return act(first, *args, **named)

    return act_locked


def replaced(owner: type, name: str, new: Callable[..., Any], rules: Any) -> AbstractContextManager[Any]:
    """Replace owner.name inside the block by `new`, called with the rules, the original method and its arguments."""
    original = getattr(owner, name, None)
    under_lock = locked(new)

    def method(self: Any, *args: Any, **named: Any) -> Any:
        return under_lock(rules, original, self, *args, **named)

    return mock.patch.object(owner, name, method, create=True)


# ---- checks of requests


@contextmanager
def guarded(checks: Sequence[Check]) -> Iterator[None]:
    """Apply all checks, in this order, to every request of any service inside the block."""

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
    except HTTPException:  # unknown to AWS as well
        return Call(service, "?", {})
    model = get_service_model(service).operation_model(operation.name)
    parser = PROTOCOL_PARSERS[determine_request_protocol(model.service_model, request.content_type)](model)
    given: Any = {"method": request.method, "values": request.values, "headers": request.headers, "body": request.data,
             "url_path": request.path, "url_params": place}  # fmt: skip
    return Call(service, str(operation.name), dict(parser.parse(given)))


def _as_error(service: str, refusal: Refusal) -> Exception:
    """The exception that moto turns into this answer."""
    if service == "s3":
        return S3ClientError(refusal.code, refusal.message)  # moto knows the status of each code
    error = HTTPException(refusal.body(service)[1].decode())
    error.code = refusal.status
    return error


# ---- throttling: a token bucket for each operation, and one for instances launched or terminated
# https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html


@dataclass(frozen=True)
class Size:
    """How many tokens a bucket holds, and how many it gets per second."""

    most: float
    per_s: float


# "Request token bucket sizes and refill rates", by category; for the categories' operations see _size_of().
READS, WIDE_READS, CHANGES = Size(100, 20), Size(50, 10), Size(50, 5)
# Non-mutating operations that are costly without a filter or pages.
WIDE = {"DescribeInstances", "DescribeInstanceStatus", "DescribeNetworkInterfaces", "DescribeSecurityGroups",
        "DescribeSnapshots", "DescribeVolumes"}  # fmt: skip
NARROWED_BY = ("Filters", "MaxResults")
# Operations with buckets of their own.
OWN = {"RunInstances": Size(5, 2),
       **dict.fromkeys(("AttachVolume", "CreateVolume", "DeleteVolume", "TerminateInstances"), Size(100, 5)),
       **dict.fromkeys(("CreateTags", "DeleteTags"), Size(100, 10))}  # fmt: skip
# "Resource token bucket sizes and refill rates": a token for each instance.
INSTANCES = {"RunInstances": Size(1000, 2), "TerminateInstances": Size(1000, 20)}

EXCEEDED = Refusal(503, "RequestLimitExceeded", "Request limit exceeded.")


@dataclass
class Throttling:
    """The buckets of all accounts and regions."""

    now: Callable[[], float] = time.monotonic  # s
    _filled: dict[tuple[object, ...], tuple[float, float]] = field(default_factory=dict)  # tokens, and when

    def check(self, signed: SignedCall) -> Refusal | None:
        call = signed.call
        if call.service != "ec2":
            return None
        where = (signed.account, signed.region, call.operation)
        is_allowed = self._takes(where, _size_of(call), 1) and (
            call.operation not in INSTANCES or self._takes(where, INSTANCES[call.operation], _instances_of(call))
        )
        return None if is_allowed else EXCEEDED

    def _takes(self, where: tuple[str, ...], size: Size, count: float) -> bool:
        """Take tokens out of a bucket, unless there are too few."""
        now = self.now()
        tokens, at = self._filled.get((where, size), (size.most, now))
        tokens = min(size.most, tokens + (now - at) * size.per_s)
        self._filled[where, size] = (tokens - count if tokens >= count else tokens, now)
        return tokens >= count


def _size_of(call: Call) -> Size:
    if call.operation in OWN:
        return OWN[call.operation]
    if not call.operation.startswith(("Describe", "Get", "List", "Search")):
        return CHANGES
    is_wide = call.operation in WIDE and not any(name in call.params for name in NARROWED_BY)
    return WIDE_READS if is_wide else READS


def _instances_of(call: Call) -> int:
    return int(call.params.get("MaxCount") or len(call.params.get("InstanceIds", ())))


# ---- S3


@contextmanager
def heads_have_no_body() -> Iterator[None]:
    """Answer a refused HEAD inside the block with a status only, so that its error code is 403 or 404.

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
    """Refuse one of two simultaneous writes with If-None-Match inside the block.

    moto's server has a thread for each request, and checks for the object before writing it.
    """
    lock, put_object = Lock(), S3Response.put_object

    def put_one(response: Any) -> Any:
        with lock:
            return put_object(response)

    with mock.patch.object(S3Response, "put_object", put_one):
        yield


def _hides_missing_objects(callers: Mapping[str, Caller]) -> Check:
    """A check that answers 403 instead of 404 for a missing object if the caller may not list the bucket.

    Permission to list only some prefixes does not count.
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html, "Permissions"; the same for HeadObject.
    """

    def check(signed: SignedCall) -> Refusal | None:
        caller, params = callers.get(signed.key), signed.call.params
        if caller is None or str(signed.call) not in ("s3:GetObject", "s3:HeadObject"):
            return None
        bucket = s3_backends[signed.account]["aws"].buckets.get(params["Bucket"])
        if bucket is None or params["Key"] in bucket.keys:
            return None
        owners = {"s3:ResourceAccount": signed.account, "aws:PrincipalAccount": signed.account}
        need = Need("s3:ListBucket", f"arn:aws:s3:::{params['Bucket']}", owners)
        return None if caller.may(need) else denied("s3", caller, need)

    return check


# ---- all of them

# "If you have the required permissions, the error response is DryRunOperation. Otherwise, it is
# UnauthorizedOperation."  https://docs.aws.amazon.com/AWSEC2/latest/APIReference/CommonParameters.html
WOULD_SUCCEED = Refusal(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")


@dataclass
class Access:
    """Who may do what, and the checks that every request passes."""

    callers: dict[str, Caller] = field(default_factory=dict)  # by access key; any other key may do everything
    tokens: dict[str, str] = field(default_factory=dict)  # session tokens by access key, for server.served
    throttling: Throttling = field(default_factory=Throttling)
    groups: Mapping[str, Any] = field(default_factory=dict)  # placement groups, by name
    service_jobs: Mapping[str, Any] = field(default_factory=dict)  # of AWS Batch, by id
    others: list[Check] = field(default_factory=list)  # further checks

    def add(self, key: str, arn: str, name: str, *more: Policy) -> Caller:
        """Add a caller that signs with `key` and has the policies in infra/iam for `name`, and `more`."""
        self.callers[key] = Caller(arn, (policy(name), *more))
        return self.callers[key]

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Make moto apply the checks inside the block."""
        checks = (
            self._throttled,
            authorized(self.callers, self._view),
            _hides_missing_objects(self.callers),
            _dry_run,
            *self.others,
        )
        with guarded(checks), heads_have_no_body(), one_write_at_a_time(), priced():
            yield

    def _throttled(self, signed: SignedCall) -> Refusal | None:
        return self.throttling.check(signed)

    def _view(self, account: str, region: str) -> Any:
        return view_of(account, region, self.groups, self.service_jobs)


def _dry_run(signed: SignedCall) -> Refusal | None:
    is_dry = signed.call.service == "ec2" and signed.call.params.get("DryRun")
    return WOULD_SUCCEED if is_dry else None


@contextmanager
def patched(rules: Any, replacements: Replacements) -> Iterator[None]:
    """Make moto behave as AWS under `rules` inside the block."""
    with ExitStack() as stack:
        stack.enter_context(rules.access.enforced())
        for owner, methods in {**OF_ALL, **replacements}.items():
            for method in methods:
                stack.enter_context(replaced(owner, method.__name__, method, rules))
        yield


OF_ALL: Replacements = {IamResponse: [simulate_principal_policy], STSBackend: [get_caller_identity]}
