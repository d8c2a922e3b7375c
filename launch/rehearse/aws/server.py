"""An AWS inside this process: moto as a server, with every request noted on its way.  It needs the extra `rehearse`."""

from __future__ import annotations

import io
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from moto.core.request import Request as MotoRequest
from moto.core.routing import get_service_router
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

OURS = "aws-ddp-toolkit"  # in the User-Agent of a launcher, see launch/core/aws.py

App = Callable[[dict[str, Any], Any], Iterable[bytes]]
Place = Callable[[Callable[[], Any]], Any]


@dataclass(frozen=True)
class Seen:
    """One request: when it came (monotonic, s), how long it took (s), who made it, and what AWS answered.

    path: of REST services.
    """

    at: float
    took: float
    by_launcher: bool
    service: str
    operation: str
    path: str
    status: int

    @property
    def name(self) -> str:
        return f"{self.service}:{self.operation}"


@dataclass
class Requests:
    """Every request so far.  before: is asked what to answer instead, such as an error; after: is told each."""

    seen: list[Seen] = field(default_factory=list)
    before: Callable[[bool, str, str], Refusal | None] = lambda by_launcher, service, operation: None
    after: Callable[[Seen], None] = lambda seen: None


@dataclass(frozen=True)
class Refusal:
    """An error in AWS's place."""

    status: int
    code: str
    message: str

    def body(self, service: str) -> tuple[list[tuple[str, str]], bytes]:
        """Headers and text, as the service's protocol words it."""
        text = f"<Code>{self.code}</Code><Message>{self.message}</Message>"
        if service in ("ec2", "s3", "iam", "sts", "cloudformation"):
            whole = {
                "ec2": f"<Response><Errors><Error>{text}</Error></Errors><RequestID>r</RequestID></Response>",
                "s3": f"<Error>{text}<RequestId>r</RequestId></Error>",
            }.get(service, f"<ErrorResponse><Error>{text}</Error><RequestId>r</RequestId></ErrorResponse>")
            return [("Content-Type", "text/xml")], whole.encode()
        words = f'{{"__type": "{self.code}", "message": "{self.message}"}}'
        return [("Content-Type", "application/json"), ("x-amzn-errortype", self.code)], words.encode()


class Watched:
    """The app, with what it is asked noted in `requests`."""

    def __init__(self, app: App, requests: Requests) -> None:
        self._app, self._requests = app, requests
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        at, by_launcher = time.monotonic(), OURS in environ.get("HTTP_USER_AGENT", "")
        service, operation = operation_of(environ)
        answered: list[int] = []

        def start(status: str, headers: Any, *more: Any) -> Any:
            answered.append(int(status.split()[0]))
            return start_response(status, headers, *more)

        with self._lock:  # numbers are given one at a time
            refusal = self._requests.before(by_launcher, service, operation)
        if refusal is None:
            body = self._app(environ, start)
        else:
            headers, text = refusal.body(service)
            start(f"{refusal.status} refused", [*headers, ("Content-Length", str(len(text)))])
            body = [text]
        seen = Seen(
            at,
            time.monotonic() - at,
            by_launcher,
            service,
            operation,
            environ.get("PATH_INFO", ""),
            (answered or [200])[0],
        )
        with self._lock:
            self._requests.seen.append(seen)
            self._requests.after(seen)
        return body


def first(seen: Sequence[Seen], operation: str, *, by_launcher: bool = True) -> float | None:
    """When the first such request came, by the monotonic clock, in s."""
    return next((one.at for one in seen if (one.by_launcher, one.operation) == (by_launcher, operation)), None)


def operation_of(environ: dict[str, Any]) -> tuple[str, str]:
    """Service and operation of a request, by AWS's own names."""
    scope = environ.get("HTTP_AUTHORIZATION", "").split("Credential=")[-1].split(",")[0].split("/")
    service = scope[3] if len(scope) == 5 else "s3"
    if target := environ.get("HTTP_X_AMZ_TARGET"):
        return service, target.rpartition(".")[2]
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        return service, parse_qs(body.decode()).get("Action", ["?"])[0]
    try:
        operation, _ = get_service_router(service).match(MotoRequest(environ.copy()))
    except Exception:  # werkzeug's, for what AWS does not have either
        return service, "?"
    return service, str(operation.name)


@contextmanager
def served(
    requests: Requests, address: str = "127.0.0.1", port: int = 0, place: Place = lambda make: make()
) -> Iterator[int]:
    """AWS at `address`; gives the port.  All of this process are one and the same.  place: where its socket is made."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = Watched(DomainDispatcherApplication(create_backend_app), requests)
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
