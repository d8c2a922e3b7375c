"""S3 where moto is lenient: missing objects of buckets that one may not list, and errors without a body."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any
from unittest import mock

from moto.s3.models import s3_backends
from moto.s3.responses import S3Response

from launch.rehearse.aws.gate import Asked, Check
from launch.rehearse.aws.iam.callers import Caller, denied
from launch.rehearse.aws.iam.policies import Need
from launch.rehearse.aws.refusal import Refusal


def hidden(callers: Mapping[str, Caller]) -> Check:
    """A missing object is 404 to who may list the bucket, and 403 to others, who shall not learn what is there.

    The question has no prefix: a right to list that is limited to prefixes does not help.
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html, "Permissions"; the same for HeadObject.
    """

    def check(asked: Asked) -> Refusal | None:
        caller, params = callers.get(asked.key), asked.call.params
        if caller is None or str(asked.call) not in ("s3:GetObject", "s3:HeadObject"):
            return None
        bucket = s3_backends[asked.account]["aws"].buckets.get(params["Bucket"])
        if bucket is None or params["Key"] in bucket.keys:
            return None
        owners = {"s3:ResourceAccount": asked.account, "aws:PrincipalAccount": asked.account}
        need = Need("s3:ListBucket", f"arn:aws:s3:::{params['Bucket']}", owners)
        return None if caller.may(need) else denied("s3", caller, need)

    return check


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
    """Inside the block, of two writers that ask for If-None-Match at once one is refused.

    moto's server has a thread for each request, and looks for the object before it writes it.
    """
    lock, put_object = Lock(), S3Response.put_object

    def put_one(response: Any) -> Any:
        with lock:
            return put_object(response)

    with mock.patch.object(S3Response, "put_object", put_one):
        yield
