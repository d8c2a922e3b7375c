"""The instance metadata service of one node: version 2 only, as the launcher requests it."""

import json
import secrets
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS = ("169.254.169.254", 80)
ROLE = "ddp-node"
KEY = "ASIATESTTESTTESTTEST"  # of the role; pragma: allowlist secret
TOKEN = secrets.token_urlsafe(32)  # of its session, which nobody else on this machine may have


class Imds(ThreadingHTTPServer):
    """Serves until close().  Create it in a thread in the node's network, where its address is."""

    daemon_threads = True

    def __init__(self, instance: str, address: tuple[str, int] = ADDRESS) -> None:
        super().__init__(address, _Handler)
        self._tokens: dict[str, float] = {}  # when each expires (monotonic, s)
        self._answers = {
            "instance-id": instance,
            "iam/security-credentials/": ROLE,
            f"iam/security-credentials/{ROLE}": json.dumps(_credentials()),
        }
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def give_spot_notice(self) -> None:
        """Announces that EC2 reclaims the instance in two minutes."""
        soon = datetime.now(UTC) + timedelta(minutes=2)
        self._answers["spot/instance-action"] = json.dumps(
            {"action": "terminate", "time": soon.strftime("%Y-%m-%dT%H:%M:%SZ")}
        )

    def close(self) -> None:
        """Stops serving and frees the node's network."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def new_token(self, ttl_s: int) -> str:
        token = secrets.token_urlsafe(40)
        self._tokens[token] = time.monotonic() + ttl_s
        return token

    def knows(self, token: str | None) -> bool:
        return self._tokens.get(token or "", 0.0) > time.monotonic()

    def answer(self, path: str) -> str | None:
        return self._answers.get(path)


class _Handler(BaseHTTPRequestHandler):
    server: Imds

    def handle(self) -> None:
        with suppress(ConnectionError):  # who asks gives up after two seconds, and on a busy machine before the answer
            super().handle()

    def do_PUT(self) -> None:
        ttl_s = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if self.path != "/latest/api/token":
            self._send(404)
        elif not ttl_s.isdigit() or not 1 <= int(ttl_s) <= 21_600:
            self._send(400)
        else:
            self._send(200, self.server.new_token(int(ttl_s)), {"X-aws-ec2-metadata-token-ttl-seconds": ttl_s})

    def do_GET(self) -> None:
        answer = self.server.answer(self.path.removeprefix("/latest/meta-data/"))
        if not self.server.knows(self.headers.get("X-aws-ec2-metadata-token")):
            self._send(401)
        elif answer is None:
            self._send(404)
        else:
            self._send(200, answer)

    def _send(self, status: int, text: str = "", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def _credentials() -> dict[str, str]:
    """Credentials of a role, in EC2's form; any secret will do, as the embedded AWS asks for the token."""
    now = datetime.now(UTC)
    return {
        "Code": "Success",
        "Type": "AWS-HMAC",
        "AccessKeyId": KEY,
        "SecretAccessKey": "not-a-secret",
        "Token": TOKEN,
        "LastUpdated": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "Expiration": (now + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
