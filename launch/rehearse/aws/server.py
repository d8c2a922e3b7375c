"""An AWS inside this process: moto as a server that records every request.  Needs the extra `rehearse`."""

from __future__ import annotations

import hmac
import io
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from moto.core.request import Request as MotoRequest
from moto.core.routing import get_service_router
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from launch.rehearse.aws.calls import Refusal

# Prefixes of the operations that only read.
READS = ("BatchGet", "Describe", "Filter", "Get", "Head", "List", "Query", "Scan", "Search")
LAUNCHER_AGENT = "aws-ddp-toolkit"  # in the User-Agent of a launcher, see launch/aws/client.py

INVALID_TOKEN = Refusal(403, "InvalidClientTokenId", "The security token included in the request is invalid.")

App = Callable[[dict[str, Any], Any], Iterable[bytes]]
Place = Callable[[Callable[[], Any]], Any]


@dataclass(frozen=True)
class Request:
    """One request and its answer."""

    at: float  # when it came (monotonic, s)
    took: float  # s
    by_launcher: bool
    service: str
    operation: str
    path: str  # empty but for REST services
    status: int

    @property
    def name(self) -> str:
        return f"{self.service}:{self.operation}"

    @property
    def is_write(self) -> bool:
        return not self.operation.startswith(READS)


@dataclass
class RequestLog:
    """Every request so far."""

    requests: list[Request] = field(default_factory=list)
    # Called before each request; returns the error to answer with, if any.
    before: Callable[[bool, str, str], Refusal | None] = lambda by_launcher, service, operation: None
    after: Callable[[Request], None] = lambda request: None  # called with each request


class RecordingApp:
    """The app, with its requests recorded in `log`.  tokens: see served()."""

    def __init__(self, app: App, log: RequestLog, tokens: Mapping[str, str] | None) -> None:
        self._app, self._log, self._tokens = app, log, tokens
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        at, by_launcher = time.monotonic(), LAUNCHER_AGENT in environ.get("HTTP_USER_AGENT", "")
        if self._tokens is not None and not has_token(environ, self._tokens):  # before the body is read
            return _refused(INVALID_TOKEN, service_of(environ), start_response)
        service, operation = operation_of(environ)
        statuses: list[int] = []

        def start(status: str, headers: Any, *more: Any) -> Any:
            statuses.append(int(status.split()[0]))
            return start_response(status, headers, *more)

        with self._lock:  # requests are numbered one at a time
            refusal = self._log.before(by_launcher, service, operation)
        body = self._app(environ, start) if refusal is None else _refused(refusal, service, start)
        request = Request(
            at=at,
            took=time.monotonic() - at,
            by_launcher=by_launcher,
            service=service,
            operation=operation,
            path=environ.get("PATH_INFO", ""),
            status=statuses[0] if statuses else 200,
        )
        with self._lock:
            self._log.requests.append(request)
            self._log.after(request)
        return body


def _refused(refusal: Refusal, service: str, start_response: Any) -> list[bytes]:
    headers, text = refusal.body(service)
    start_response(f"{refusal.status} refused", [*headers, ("Content-Length", str(len(text)))])
    return [text]


def has_token(environ: Mapping[str, Any], tokens: Mapping[str, str]) -> bool:
    """Whether a request has the session token that belongs to its access key, in its headers or a presigned URL."""
    key, query = _scope(environ)[0], parse_qs(environ.get("QUERY_STRING", ""))
    given = environ.get("HTTP_X_AMZ_SECURITY_TOKEN") or query.get("X-Amz-Security-Token", [""])[0]
    return key in tokens and hmac.compare_digest(tokens[key].encode(), given.encode())


def _scope(environ: Mapping[str, Any]) -> list[str]:
    """What a request is signed for: access key, date, region, service and version; one empty text if it is not."""
    header = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition(",")[0]
    return str(header or parse_qs(environ.get("QUERY_STRING", "")).get("X-Amz-Credential", [""])[0]).split("/")


def first(requests: Sequence[Request], operation: str, *, by_launcher: bool = True) -> float | None:
    """When the first such request came (monotonic, s)."""
    sought = (by_launcher, operation)
    return next((request.at for request in requests if (request.by_launcher, request.operation) == sought), None)


def service_of(environ: Mapping[str, Any]) -> str:
    """AWS's name of the service that a request is signed for; s3 for one without a credential scope."""
    scope = _scope(environ)
    return scope[3] if len(scope) == 5 else "s3"


def operation_of(environ: dict[str, Any]) -> tuple[str, str]:
    """Service and operation of a request, in AWS's names."""
    service = service_of(environ)
    if target := environ.get("HTTP_X_AMZ_TARGET"):
        return service, target.rpartition(".")[2]
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        return service, parse_qs(body.decode()).get("Action", ["?"])[0]
    try:
        operation, _ = get_service_router(service).match(MotoRequest(environ.copy()))
    except Exception:  # werkzeug's own, for requests that AWS does not know either
        return service, "?"
    return service, str(operation.name)


@contextmanager
def served(
    log: RequestLog,
    tokens: Mapping[str, str] | None,
    address: str = "127.0.0.1",
    port: int = 0,
    place: Place = lambda make: make(),
) -> Iterator[int]:
    """Serve AWS at `address`; yield the port.  All servers of this process share one AWS.

    place: calls the function that creates the socket in the right network namespace.
    tokens: the session tokens of callers by access key; None: not checked.  Required where instances run as processes
    of this machine: a request can run anything as this user, and every local user can reach the port.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = RecordingApp(DomainDispatcherApplication(create_backend_app), log, tokens)
    server = place(lambda: make_server(address, port, app, threaded=True, request_handler=MotoRequestHandler))
    server.daemon_threads = True  # type: ignore[attr-defined,unused-ignore]
    # moto's own ThreadedMotoServer takes half a second to stop, and leaves its socket open.
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
