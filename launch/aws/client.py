"""The only module that calls AWS: operations by AWS's names, paging, and errors as sentences with a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from io import BytesIO
from pathlib import Path
from threading import Lock
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from launch.aws import refusals
from launch.aws.names import check_region_name
from launch.aws.refusals import ATTEMPTS, NO_CAPACITY, is_forbidden, may_be_too_early, may_have_taken_effect, sentence
from launch.core.errors import AwsError, Forbidden, NoAnswer, NotSetUp, NotYetAllowed
from trainer.errors import TrainerError

if TYPE_CHECKING:
    import botocore.client
    from botocore.exceptions import BotoCoreError


Answer = dict[str, Any]
Given = TypeVar("Given")

# Short enough for a user to notice a lost answer, long enough for RunInstances with many nodes.
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5, 60
PAUSES_S = (0.5, 2.0)  # before retrying after an answer that is not AWS's
METADATA_TIMEOUT_S = 0.2  # for each of two requests
STREAMS = {"Body", "BlockData"}  # of S3's objects, and of a snapshot's blocks
SMALL_BYTES = 2**20  # more than any job.json or record has

# botocore's providers that assume a role.  Sharing one cache of credentials, a process assumes a role, and prompts for
# an MFA code, once for all regions.
ASSUMING = ("assume-role", "assume-role-with-web-identity")
_assumed: dict[str, Any] = {}

# Global services, which have their endpoint in one region.
_HOMES = {"pricing": "us-east-1"}

# Guards the creation of clients, which loads botocore's models: only the first thread has to.
_reading = Lock()


def _known_regions(session: Any) -> list[str]:
    """The regions that botocore knows, in all of AWS's partitions."""
    partitions = session.get_available_partitions()
    return [region for name in partitions for region in session.get_available_regions("ec2", partition_name=name)]


class Aws:
    """Calls to one region of one account.  Endpoint and credentials come from the environment or ~/.aws, as usual.

    policy: the file in infra/iam that grants what this caller needs; errors name it.

    Raises NotSetUp at the first call without credentials.
    """

    def __init__(self, region: str | None = None, profile: str | None = None, policy: str = "launcher") -> None:
        self._region, self._profile, self._policy = region, profile, policy
        self._clients: dict[str, botocore.client.BaseClient] = {}
        self._session: Any = None
        self._core: Any = None  # botocore's session, within boto3's
        self._unclear = False  # whether an attempt of the current call may have taken effect unnoticed
        self.answered_at: datetime | None = None  # AWS's own time in its newest answer

    @property
    def session(self) -> Any:
        """The boto3 session, created on first use, as the import takes a fifth of a second."""
        if self._session is None:
            try:
                import boto3
            except ModuleNotFoundError as error:
                words = "boto3 is not installed; run pip install -c constraints.txt -e '.[aws]' in the checkout."
                raise NotSetUp(words) from error
            import botocore.session
            from botocore.configprovider import ConstantProvider

            core = self._core = botocore.session.Session(profile=self._profile)
            # A laptop has no EC2 metadata service, for which botocore would wait seconds.
            settings = core.get_component("config_store")
            settings.set_config_provider("metadata_service_timeout", ConstantProvider(METADATA_TIMEOUT_S))
            with refusals.in_words(core):
                refusals.check_bundle(core)
                models = _models(core.get_config_variable("data_path"))
                core.register_component("data_loader", models)
                with _reading:
                    self._session = boto3.Session(botocore_session=core, region_name=self._region)
                    models.search_paths[:] = dict.fromkeys(models.search_paths)  # each session adds boto3's own
                for way in ASSUMING:
                    core.get_component("credential_provider").get_provider(way).cache = _assumed
        return self._session

    @property
    def region(self) -> str:
        """The region of all calls.  Raises NotSetUp if none is configured."""
        session = self.session
        with refusals.in_words(self._core):
            region: str | None = session.region_name
        if not region:
            words = "no AWS region; give --region us-east-1, or set AWS_DEFAULT_REGION."
            raise NotSetUp(refusals.unreadable(self._core) or words)
        check_region_name(region, lambda: _known_regions(session))
        return region

    @property
    def has_credentials(self) -> bool:
        """Whether there are any, without a call to AWS.  Raises NotSetUp without boto3 or with a broken profile."""
        session = self.session
        with refusals.in_words(self._core):
            return session.get_credentials() is not None

    def call(self, service: str, operation: str, params: Mapping[str, Any] | None = None, /) -> Answer:
        """The answer of AWS's `operation`.  Throttled and failed calls are retried with growing pauses.

        Raises AwsError: AWS refused; NoAnswer: whether it took effect is unknown; NotSetUp.
        """
        with self.in_words(service, operation):
            send = getattr(self.client(service), self._method(operation))
            answer: Answer = _from_aws(lambda: send(**(params or {})))
            for name in STREAMS & answer.keys():  # streams can break off as well
                answer[name] = BytesIO(_whole(answer[name]))
        return answer

    def violation(self, service: str, operation: str, params: Mapping[str, Any]) -> str:
        """What AWS's model finds wrong with a request that somebody else will make; "" for nothing.  No call."""
        from botocore.validate import ParamValidator

        shape = self.client(service).meta.service_model.operation_model(operation).input_shape
        report = ParamValidator().validate(params, shape)
        return str(report.generate_report()) if report.has_errors() else ""

    def _method(self, operation: str) -> str:
        """The name of an operation's method.  Raises NotSetUp without boto3."""
        assert self.session is not None
        import botocore

        method: str = botocore.xform_name(operation)
        return method

    def pages(self, service: str, operation: str, key: str, params: Mapping[str, Any] | None = None, /) -> list[Any]:
        """All items under `key` of a listing operation, over as many pages as it takes.  Raises as call() does."""
        name = self._method(operation)

        def ask() -> list[Any]:
            if not client.can_paginate(name):
                return list(getattr(client, name)(**(params or {})).get(key, []))
            pages = client.get_paginator(name).paginate(**(params or {}))
            return [item for page in pages for item in page.get(key, [])]

        with self.in_words(service, operation):
            client = self.client(service)
            return _from_aws(ask)

    def objects(self, bucket: str, prefix: str) -> list[Any]:
        """The objects in S3 under `prefix`, as ListObjectsV2 describes them.  Raises as call() does."""
        return self.pages("s3", "ListObjectsV2", "Contents", {"Bucket": bucket, "Prefix": prefix})

    def read(self, bucket: str, key: str, most: int = SMALL_BYTES, *, end: bool = False) -> bytes | None:
        """The content of an object in S3; None if there is no such object.  Raises as call() does.

        If it is longer than `most`, only its first bytes, or with `end` its last ones.
        """
        return self.read_version(bucket, key, most, end=end)[0]

    def read_version(
        self, bucket: str, key: str, most: int = SMALL_BYTES, *, end: bool = False
    ) -> tuple[bytes | None, str]:
        """What read() returns, and the ETag for replacing this version only."""
        part = f"bytes=-{most}" if end else f"bytes=0-{most - 1}"
        try:
            answer = self.call("s3", "GetObject", {"Bucket": bucket, "Key": key, "Range": part})
        except AwsError as error:
            if error.aws_code == "InvalidRange":  # S3's for an empty object
                return b"", ""
            if error.aws_code in ("NoSuchKey", "NoSuchBucket"):
                return None, ""
            raise
        return answer["Body"].read(), str(answer.get("ETag", ""))

    def download(self, bucket: str, key: str, path: Path) -> None:
        """Download an object in parts and in parallel; `path` is replaced at the end.  Raises as call() does, OSError.

        https://docs.aws.amazon.com/boto3/latest/reference/services/s3/client/download_file.html
        """
        from boto3.exceptions import Boto3Error

        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.in_words("s3", "GetObject"):
                self.client("s3").download_file(bucket, key, str(path))
        except Boto3Error as error:  # the connection broke off again and again
            raise NoAnswer(f"s3://{bucket}/{key} could not be downloaded: {error}", "", "GetObject") from error

    @contextmanager
    def in_words(self, service: str, operation: str) -> Iterator[None]:
        """Translate botocore's errors inside the block, for an `operation` through client()."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        self._unclear = False
        try:
            yield
        except ResponseParserError as error:
            words = f"{service}:{operation} was not answered by AWS but by something in between, such as a proxy or "
            raise NoAnswer(f"{words}a login page; check the network.", "", operation) from error
        except ClientError as error:
            code, message = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
            refused = NoAnswer if self._unclear else _refusal(code, message)
            words = sentence(code, message, f"{service}:{operation}", self.region, self._policy)
            raise refused(words, code, operation, str(error.response.get("Reason", ""))) from error
        except BotoCoreError as error:
            if refusals.is_of_credentials(error) or refusals.is_of_setting(error, self._core):
                raise refusals.not_set_up(error, self._core) from error
            raise _failed(error, service, operation, self._unclear, self._core) from error
        except Exception as error:
            if not refusals.is_of_credentials(error):
                raise
            raise refusals.not_set_up(error, self._core) from error

    def client(self, service: str) -> Any:
        """boto3's client for `service`, for libraries that make their own calls; wrap those in in_words()."""
        if service not in self._clients:
            from botocore.config import Config

            config = Config(
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                user_agent_extra="aws-ddp-toolkit",
            )
            session, region = self.session, _HOMES.get(service, self.region)
            with refusals.in_words(self._core):
                refusals.check_keys(session.get_credentials())  # may use the network, so outside of the lock
                with _reading:
                    client = session.client(service, region_name=region, config=config)
            client.meta.events.register("response-received", self._record_attempt)
            client.meta.events.register("before-parse", _refuse_web_page)
            # Registered under the service's name, as botocore's handler is, so that it runs before the general ones.
            name = client.meta.service_model.service_id.hyphenize()
            client.meta.events.register_first(f"needs-retry.{name}", _is_no_capacity)
            self._clients[service] = client
        return self._clients[service]

    def _record_attempt(self, exception: Exception | None, parsed_response: Answer | None, **_: Any) -> None:
        """Record whether any attempt may have taken effect, even if the last one never left this machine."""
        answer = parsed_response or {}
        code, about = str(answer.get("Error", {}).get("Code", "")), answer.get("ResponseMetadata", {})
        self._record_time(about.get("HTTPHeaders", {}).get("date", ""))
        self._unclear |= may_have_taken_effect(code, about.get("HTTPStatusCode", 0))
        self._unclear |= exception is not None and not _never_sent(exception)

    def _record_time(self, date: str) -> None:
        """Record AWS's time.  date: the header of an answer, including refusals because of this machine's clock."""
        with suppress(ValueError):
            self.answered_at = parsedate_to_datetime(date) if date else self.answered_at


@cache
def _models(path: str | None) -> Any:
    """The caching loader of botocore's service models, shared by all sessions.

    Loading EC2's takes half a second of processor time, and a look-up in all regions has a session for each.
    """
    from botocore.loaders import create_loader

    return create_loader(path)


def _refusal(code: str, message: str) -> type[AwsError]:
    if is_forbidden(code, message):
        return Forbidden
    return NotYetAllowed if may_be_too_early(code, message) else AwsError


def _is_no_capacity(response: tuple[Any, Answer] | None, **_: Any) -> bool | None:
    """False if a retry is useless; botocore would otherwise retry every 5xx for half a minute."""
    return False if response and response[1].get("Error", {}).get("Code") in NO_CAPACITY else None


def _whole(stream: Any) -> bytes:
    """Read the whole stream, whose length botocore checks."""
    with closing(stream):
        content: bytes = stream.read()
    return content


def _from_aws(ask: Callable[[], Given]) -> Given:
    """Return the result of ask(), retried while the answer is not AWS's, which botocore does not retry."""
    from botocore.parsers import ResponseParserError

    for pause_s in PAUSES_S:
        try:
            return ask()
        except ResponseParserError:
            sleep(pause_s)
    return ask()


def _refuse_web_page(response_dict: Answer, operation_model: Any, **_: Any) -> None:
    """Raise for a web page, which botocore's parsers would take for an empty answer.  S3's objects may be pages."""
    from botocore.parsers import ResponseParserError

    body = response_dict["body"]
    is_retried = response_dict["status_code"] >= 500  # by botocore itself
    if operation_model.has_streaming_output or not isinstance(body, bytes) or is_retried:
        return
    if body.lstrip()[:14].lower().startswith((b"<html", b"<!doctype html")):
        raise ResponseParserError(f"a web page, with status {response_dict['status_code']}")


def _never_sent(error: Exception) -> bool:
    """Whether the request cannot have reached AWS."""
    from botocore import exceptions

    unconnected = (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError, exceptions.ProxyConnectionError)
    return isinstance(error, unconnected) or (isinstance(error, exceptions.SSLError) and "CERTIFICATE" in str(error))


def _failed(error: BotoCoreError, service: str, operation: str, unclear: bool, session: Any) -> TrainerError:
    """The error for a lost request or answer.  unclear: whether it may have taken effect."""
    from botocore import exceptions

    action, text = f"{service}:{operation}", " ".join(str(error).split()).rstrip(". ")
    if isinstance(error, exceptions.ParamValidationError):
        raise error  # our request is wrong: a bug, with its traceback
    broken_off = (exceptions.ReadTimeoutError, exceptions.ResponseStreamingError, exceptions.IncompleteReadError)
    if unclear or isinstance(error, broken_off):
        what = re.sub(r"[.:].*", "", text) or type(error).__name__
        words = f"no answer to {action} ({what}): whether it took effect is unknown; check the network."
        return NoAnswer(words, "", operation)
    if isinstance(error, exceptions.SSLError):
        words = (
            f"the TLS certificate for {action} is not trusted: {text}; set AWS_CA_BUNDLE to your proxy's certificate."
        )
        return AwsError(words, "", operation)
    if _never_sent(error):
        return AwsError(f"AWS cannot be reached for {action}: {text}; check the network and --region.", "", operation)
    return refusals.not_set_up(error, session)
