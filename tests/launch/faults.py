"""Faults on the way between botocore and AWS: errors, lost answers, and a launcher that dies.

They happen below botocore's retries, so those are the real ones; only their pauses take no time.  Faults needs an
open Account, or moto's mock_aws: what takes effect does so in moto.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

from botocore.exceptions import EndpointConnectionError, ReadTimeoutError
from botocore.handlers import BUILTIN_HANDLERS

from launch.rehearse.aws.calls import Call

Request = Call  # as launch made it
Answer = tuple[int, dict[str, str], str | bytes]


class Died(BaseException):  # not an Exception: nobody catches it, as nobody catches SIGKILL
    """The launcher's process ended here."""


@dataclass(frozen=True)
class Fault:
    """What happens in place of AWS's answer.  attempts: to how many of botocore's attempts; None: to all."""

    answer: Callable[[Request, str, str], Answer]  # the call, its protocol, its URL -> an error; or raises
    takes_effect: bool
    attempts: int | None = None


def refused(code: str = "InternalError", status: int = 500, message: str = "injected") -> Fault:
    """AWS answers with an error, and has done nothing."""
    return Fault(lambda _call, protocol, _url: _error(protocol, code, status, message), takes_effect=False)


def refused_after(code: str = "InternalError", status: int = 500, message: str = "injected") -> Fault:
    """AWS answers with an error, although it has done what it was asked to."""
    return Fault(lambda _call, protocol, _url: _error(protocol, code, status, message), takes_effect=True)


def throttled(attempts: int | None = None) -> Fault:
    """AWS is busy for this many attempts."""
    code = "RequestLimitExceeded"
    return Fault(lambda _call, protocol, _url: _error(protocol, code, 503, "injected"), False, attempts)


def lost(attempts: int | None = None) -> Fault:
    """AWS carries out the request, and the answer gets lost.  attempts=1: botocore's second attempt gets one."""
    return Fault(lambda _call, _protocol, url: _raise(ReadTimeoutError(endpoint_url=url)), True, attempts)


def unreachable() -> Fault:
    """Nobody answers at AWS's address."""
    return Fault(lambda _call, _protocol, url: _raise(EndpointConnectionError(endpoint_url=url)), takes_effect=False)


def died_before() -> Fault:
    """The launcher ends before the request leaves."""
    return Fault(lambda call, _protocol, _url: _raise(Died(f"before {call}")), takes_effect=False)


def died_after() -> Fault:
    """The launcher ends once AWS has done what it was asked to."""
    return Fault(lambda call, _protocol, _url: _raise(Died(f"after {call}")), takes_effect=True)


# For a sweep over all of them.
EVERY: dict[str, Callable[[], Fault]] = {
    "error before": refused,
    "answer lost": lost,
    "answer lost once": lambda: lost(attempts=1),
    "died before": died_before,
    "died after": died_after,
}
# Those that are distinct: an error after the effect is what a lost answer is, and a death before a call leaves
# what one after the call before it left.
TOLD_APART = ("error before", "answer lost", "answer lost once", "died after")


def _raise(error: BaseException) -> Answer:
    raise error


def _error(protocol: str, code: str, status: int, message: str) -> Answer:
    """How an AWS service with this protocol words an error."""
    text = f"<Code>{code}</Code><Message>{message}</Message>"
    if protocol == "ec2":
        return status, {}, f"<Response><Errors><Error>{text}</Error></Errors><RequestID>r</RequestID></Response>"
    if protocol == "query":
        return status, {}, f"<ErrorResponse><Error>{text}</Error><RequestId>r</RequestId></ErrorResponse>"
    if protocol == "rest-xml":
        return status, {}, f"<Error>{text}<RequestId>r</RequestId></Error>"
    return status, {"x-amzn-errortype": code}, json.dumps({"__type": code, "message": message})


@dataclass
class Faults:
    """Faults for the calls that follow, numbered from 1.

    calls: those made, by any thread; slept: botocore's pauses, in seconds; waited_s: their sum.
    """

    calls: list[Request] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    waited_s: float = 0.0
    _rules: list[tuple[Callable[[Request], bool], Fault]] = field(default_factory=list)
    _numbering: threading.RLock = field(default_factory=threading.RLock)
    _now: threading.local = field(default_factory=threading.local)  # a thread's current call, and its attempts

    def at(self, number: int, fault: Fault) -> "Faults":
        """`fault` at the call with this number."""
        self._rules.append((lambda _call: len(self.calls) == number, fault))
        return self

    def on(self, operation: str, fault: Fault, nth: int | None = 1) -> "Faults":
        """`fault` at the nth call of `operation`; None: at each."""
        self._rules.append((lambda call: call.operation == operation and nth in (None, self.count(operation)), fault))
        return self

    def count(self, operation: str) -> int:
        """How often `operation` was called."""
        return sum(call.operation == operation for call in self.calls)

    def clear(self) -> None:
        """AWS is well again, and the calls are numbered from 1 again."""
        self.calls.clear()
        self._rules.clear()

    def wait(self, seconds: float) -> None:
        """Stands in for a pause of botocore's."""
        self.slept.append(seconds)
        self.waited_s += seconds
        pauses.skip(seconds)

    def begin(self, call: Request, protocol: str) -> None:
        """A call begins; its attempts come through `send`."""
        with self._numbering:  # so that of two at once one is the first
            self.calls.append(call)
            fault = next((fault for applies, fault in self._rules if applies(call)), None)
        self._now.call, self._now.attempts = (call, protocol, fault), 0

    def send(self, url: str, deliver: Callable[[], Answer]) -> Answer:
        """One attempt of the current call.  deliver: lets AWS answer it."""
        call, protocol, fault = self._now.call
        self._now.attempts += 1
        if fault is None or (fault.attempts is not None and self._now.attempts > fault.attempts):
            return deliver()
        if fault.takes_effect:
            deliver()
        return fault.answer(call, protocol, url)


@contextmanager
def injected(faults: Faults) -> Iterator[Faults]:
    """Meanwhile every call of this process's clients, also of those made before, passes through `faults`."""
    from moto.core.models import botocore_stubber

    to_moto = botocore_stubber.process_request
    with (
        watched(faults.begin),
        mock.patch.object(
            botocore_stubber, "process_request", lambda request: faults.send(request.url, lambda: to_moto(request))
        ),
        mock.patch("botocore.endpoint.time", SimpleNamespace(sleep=faults.wait)),
        mock.patch("launch.aws.client.sleep", faults.wait),
    ):
        yield faults


# ---- botocore's pauses


@dataclass
class Pauses:
    """Between botocore's attempts.  They take no time, and what fills in the meantime counts them."""

    skipped_s: float = 0.0

    def skip(self, seconds: float) -> None:
        self.skipped_s += seconds

    def now(self) -> float:
        return time.monotonic() + self.skipped_s


pauses = Pauses()


@contextmanager
def without_pauses() -> Iterator[None]:
    """Meanwhile botocore tries again at once."""
    with mock.patch("botocore.endpoint.time", SimpleNamespace(sleep=pauses.skip)):
        yield


# ---- seeing every call

Watcher = Callable[[Request, str], None]
_WATCHERS: list[Watcher] = []
_current = threading.local()


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Meanwhile `watcher` gets every call, with its protocol, before it is made."""
    _WATCHERS.append(watcher)
    try:
        yield
    finally:
        _WATCHERS.remove(watcher)


def listen() -> None:
    """Add handlers to botocore.  Sessions that exist already do not get them, so call it first; twice does no harm."""
    for handler in (("provide-client-params", _note_params), ("before-call", _notify)):
        if handler not in BUILTIN_HANDLERS:
            BUILTIN_HANDLERS.append(handler)


def _note_params(params: dict[str, Any], **_: Any) -> None:
    _current.params = dict(params)  # botocore adds to it


def _notify(model: Any, **_: Any) -> None:
    service = model.service_model
    call = Request(service.service_name, model.name, _current.params)
    for watcher in list(_WATCHERS):
        watcher(call, service.resolved_protocol)
