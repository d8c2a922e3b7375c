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
    """password: of the user AWS, the only one; manifests: by digest and by tag, with their media type."""

    password: str
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    refused: int = 0  # requests with a wrong password

    def server(self, host: str, port: int) -> ThreadingHTTPServer:
        """A server of this registry, not yet started."""
        return ThreadingHTTPServer((host, port), type("Answers", (_Answers,), {"registry": self}))


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    """Runs `server` inside the block, at the HOST:PORT that it yields."""
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
        """Logs nothing."""

    def do_GET(self) -> None:
        parts = self._parts()
        if parts is None:
            return None
        if self.path == "/v2/":
            return self._answer(200)
        if parts["kind"] == "manifests" and parts["word"] in self.registry.manifests:
            kind, content = self.registry.manifests[parts["word"]]
            return self._answer(200, content, {"Content-Type": kind, "Docker-Content-Digest": digest_of(content)})
        if parts["kind"] == "blobs" and parts["word"] in self.registry.blobs:
            return self._answer(200, self.registry.blobs[parts["word"]])
        return self._answer(404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        parts = self._parts()
        if parts is not None:
            number = str(len(self.registry.uploads))
            self.registry.uploads[number] = b""
            self._answer(202, headers={"Location": f"/v2/{parts['name']}/blobs/uploads/{number}"})

    def do_PATCH(self) -> None:
        parts = self._parts()
        if parts is not None:
            self.registry.uploads[parts["upload"]] += self._body()
            self._answer(202, headers={"Location": self.path})

    def do_PUT(self) -> None:
        parts, content = self._parts(), self._body()
        if parts is None:
            return None
        if parts["kind"] == "manifests":
            stored = (self.headers["Content-Type"], content)
            self.registry.manifests |= {parts["word"]: stored, digest_of(content): stored}
            return self._answer(201, headers={"Docker-Content-Digest": digest_of(content)})
        whole = self.registry.uploads[parts["upload"]] + content
        assert digest_of(whole) == parts["sum"].replace("%3A", ":")
        self.registry.blobs[digest_of(whole)] = whole
        return self._answer(201)

    def _parts(self) -> dict[str, str] | None:
        """The parts of the path; None, after an answer, for a client that has not logged in."""
        wanted = base64.b64encode(f"AWS:{self.registry.password}".encode()).decode()
        given = self.headers.get("Authorization", "")
        if given != f"Basic {wanted}":
            self.registry.refused += bool(given)
            self._body()
            self._answer(401, headers={"WWW-Authenticate": 'Basic realm="registry"'})
            return None
        match = PATH.match(self.path)
        return match.groupdict() if match else {"kind": "", "word": ""}

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, code: int, content: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
