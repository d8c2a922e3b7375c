"""Steps of a plan: requests to AWS, each with a sentence, and choices of which the first that succeeds counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class FromAnswer:
    """A value that an earlier answer gives: the field `path` in the answer to the request named `request`."""

    request: str
    path: str

    def __str__(self) -> str:
        return f"<{self.path} of {self.request}>"


TAKEN = "PreconditionFailed"  # S3's, of a conditional request: something else is there, or what was there has changed
CONFLICT = "ConditionalRequestConflict"  # and where two write at once


@dataclass(frozen=True)
class Request:
    """One call to AWS.  why: what it is for, as a sentence without its full stop.

    done_already: error codes that mean that nothing is left to do; retry_after: codes that mean that AWS does not yet
    know of what an earlier request made; name: under which later requests find its answer; if_taken: what to do where
    something else is there that must not be replaced; taken: the code of that error.
    """

    service: str
    operation: str
    params: Mapping[str, Any]
    why: str
    done_already: tuple[str, ...] = ()
    name: str = ""
    retry_after: tuple[str, ...] = ()
    if_taken: str = "Choose another --job-name."
    taken: str = TAKEN


def put_once(bucket: str, key: str, content: bytes, why: str, **more: str) -> Request:
    """The request for an object of which a job runs what is in it: S3 lets nobody replace it.

    Every launcher may write there, and infra/iam grants it with this header only.  perform() compares what is there.
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
    """
    params = {"Bucket": bucket, "Key": key, "Body": content, **more, "IfNoneMatch": "*"}
    return Request("s3", "PutObject", params, why, retry_after=(CONFLICT,))


def unless_changed(put: Request, known_as: str) -> Request:
    """`put`, unless another command has written the object meanwhile.

    known_as: the ETag of what it replaces, "" for nothing.
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html: 412 if it is another, and 409 if two
    write at once.
    """
    condition = {"IfMatch": known_as} if known_as else {"IfNoneMatch": "*"}
    return replace(put, params={**put.params, **condition}, retry_after=(CONFLICT,))


@dataclass(frozen=True)
class Try:
    """One of several requests of which the first that succeeds counts.

    label: the columns of the table of what was tried; kind: what a request shares with those that fail alike.
    lesser: a request for less, made if AWS refuses only what this one asks for beyond it.
    """

    request: Request
    label: tuple[str, ...]
    kind: str
    lesser: Request | None = None


@dataclass(frozen=True)
class Choice:
    """Requests tried in turn.  next_after: error codes after which the next is tried; next_kind_after: codes after
    which those of the same kind are left out.  Both map to the words for the table; {error} in them is AWS's sentence.
    lesser_after: codes, and words of AWS's sentence, after which the try's lesser request is made, with words.
    """

    tries: tuple[Try, ...]
    why: str
    columns: tuple[str, ...]
    next_after: Mapping[str, str]
    next_kind_after: Mapping[str, str]
    name: str = ""
    lesser_after: Mapping[str, str] = field(default_factory=dict)


Step = Request | Choice
