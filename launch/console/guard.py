"""Who may see the page: a browser of this machine's user.  Everything else is refused before it reaches a page."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CSRF = "x-console"  # the header of an action: another site's page cannot send it
# https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Content-Security-Policy
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
# The cookie is of the strictest kind, so that a redirect after a click on a link elsewhere would come without it.
ENTRY = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={}">'
    '<title>The console</title><link rel="icon" href="data:,">'
)


@dataclass
class Keys:
    """What opens the page, made anew at each start."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))  # in the address
    is_used: bool = False  # the token
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))  # the cookie that it is exchanged for
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie(self) -> str:
        """Its name: browsers send the cookies of one host to all of its ports."""
        return f"console-{self.port}"

    @property
    def hosts(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    def enter(self, token: str) -> bool:
        """Whether `token` opens the page, which it does once."""
        is_right = not self.is_used and secrets.compare_digest(token.encode(), self.token.encode())
        self.is_used = self.is_used or is_right
        return is_right


class Guard:
    """Passes on what may see the page, and adds the headers that every answer has.

    passed: called with each request that may.
    """

    def __init__(self, app: ASGIApp, keys: Keys, passed: Callable[[], None]) -> None:
        self._app, self._keys, self._passed = app, keys, passed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                for name, value in HEADERS.items():
                    MutableHeaders(scope=message).setdefault(name, value)
            await send(message)

        answer = _refusal(scope, self._keys) or self._entry(scope)
        if answer is None:
            self._passed()
        await (answer or self._app)(scope, receive, send_with_headers)

    def _entry(self, scope: Scope) -> Response | None:
        """The answer to the address with the token, or to a browser without the cookie; None for one that has it."""
        keys, cookies = self._keys, cookie_parser(Headers(scope=scope).get("cookie", ""))
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and token and keys.enter(token):
            answer = HTMLResponse(ENTRY.format("/"))
            answer.set_cookie(keys.cookie, keys.session, httponly=True, samesite="strict")
            return answer
        if secrets.compare_digest(cookies.get(keys.cookie, "").encode(), keys.session.encode()):
            return None
        return PlainTextResponse(
            "Open the address that the console has printed; it works once.  For another browser, start it again.", 403
        )


def _refusal(scope: Scope, keys: Keys) -> Response | None:
    """The answer to a request for another host, by another site's page, or to act without the header; else None."""
    headers: Mapping[str, str] = Headers(scope=scope)
    host = headers.get("host", "")
    if scope["type"] != "http" or host not in keys.hosts:
        return PlainTextResponse(f"This is {keys.hosts[0]}, and no other host.", 403)
    if headers.get("origin", f"http://{host}") != f"http://{host}":
        return PlainTextResponse("Another site's page may not ask this one.", 403)
    # https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Sec-Fetch-Site; a link may lead here
    if (
        headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        and headers.get("sec-fetch-mode") != "navigate"
    ):
        return PlainTextResponse("Another site's page may not ask this one.", 403)
    if scope["method"] not in ("GET", "HEAD") and not secrets.compare_digest(
        headers.get(CSRF, "").encode(), keys.csrf.encode()
    ):
        return PlainTextResponse("An action needs the page's own header.", 403)
    return None
