"""A container registry that holds images in memory: as much of the OCI distribution protocol as push and pull need."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATH = re.compile(
    r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<word>[^/?]+)(/(?P<upload>\d*))?(\?digest=(?P<sum>.+))?$"
)


@dataclass
class Registry:
    """password: of the user AWS, who alone gets in; manifests: by digest and by tag, with their media type."""

    password: str
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    refused: int = 0  # requests with a wrong password

    def server(self, host: str, port: int) -> ThreadingHTTPServer:
        """One that answers for this registry, once somebody lets it."""
        return ThreadingHTTPServer((host, port), type("Answers", (_Answers,), {"registry": self}))


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    """Meanwhile `server` answers at HOST:PORT."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield "{}:{}".format(*server.server_address[:2])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


class _Answers(BaseHTTPRequestHandler):
    registry: Registry
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        here = self._asked()
        if here is None:
            return None
        if self.path == "/v2/":
            return self._answer(200)
        if here["kind"] == "manifests" and here["word"] in self.registry.manifests:
            kind, content = self.registry.manifests[here["word"]]
            return self._answer(200, content, {"Content-Type": kind, "Docker-Content-Digest": digest_of(content)})
        if here["kind"] == "blobs" and here["word"] in self.registry.blobs:
            return self._answer(200, self.registry.blobs[here["word"]])
        return self._answer(404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        here = self._asked()
        if here is not None:
            number = str(len(self.registry.uploads))
            self.registry.uploads[number] = b""
            self._answer(202, headers={"Location": f"/v2/{here['name']}/blobs/uploads/{number}"})

    def do_PATCH(self) -> None:
        here = self._asked()
        if here is not None:
            self.registry.uploads[here["upload"]] += self._body()
            self._answer(202, headers={"Location": self.path})

    def do_PUT(self) -> None:
        here, content = self._asked(), self._body()
        if here is None:
            return None
        if here["kind"] == "manifests":
            stored = (self.headers["Content-Type"], content)
            self.registry.manifests |= {here["word"]: stored, digest_of(content): stored}
            return self._answer(201, headers={"Docker-Content-Digest": digest_of(content)})
        whole = self.registry.uploads[here["upload"]] + content
        assert digest_of(whole) == here["sum"].replace("%3A", ":")
        self.registry.blobs[digest_of(whole)] = whole
        return self._answer(201)

    def _asked(self) -> dict[str, str] | None:
        """The parts of the path; None, and an answer, if whoever asks has not logged in."""
        wanted = base64.b64encode(f"AWS:{self.registry.password}".encode()).decode()
        given = self.headers.get("Authorization", "")
        if given != f"Basic {wanted}":
            self.registry.refused += bool(given)
            self._body()
            self._answer(401, headers={"WWW-Authenticate": 'Basic realm="registry"'})
            return None
        found = PATH.match(self.path)
        return found.groupdict() if found else {"kind": "", "word": ""}

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, code: int, content: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
