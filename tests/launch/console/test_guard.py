"""Who may see the console: no other host name, no other site, nobody without the cookie."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from launch.console.guard import CSRF, Keys
from launch.console.server import application
from launch.console.world import World

PORT = 8123
BASE = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def keys() -> Keys:
    return Keys(PORT)


@pytest.fixture
def stranger(keys: Keys, tmp_path: Path) -> TestClient:
    """A browser without the cookie."""
    return TestClient(application(World(clients=(), runs=tmp_path), keys), base_url=BASE, follow_redirects=False)


@pytest.fixture
def user(keys: Keys, stranger: TestClient) -> TestClient:
    """A browser that has opened the printed address."""
    stranger.get(f"/?token={keys.token}")
    return stranger


def test_the_printed_address_opens_the_page_once(keys: Keys, stranger: TestClient) -> None:
    address = f"/?token={keys.token}"
    entry = stranger.get(address)

    assert entry.status_code == 200
    assert "HttpOnly" in entry.headers["set-cookie"]
    assert "SameSite=strict" in entry.headers["set-cookie"]
    assert stranger.get("/").status_code == 200
    stranger.cookies.clear()
    assert stranger.get(address).status_code == 403


@pytest.mark.parametrize("address", ["/", "/?token=", "/?token=x", "/static/console.css", "/data/jobs", "/none"])
def test_nothing_is_shown_without_the_cookie(stranger: TestClient, address: str) -> None:
    assert stranger.get(address).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"host": f"evil.example:{PORT}"},
        {"host": "127.0.0.1:1"},
        {"host": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},  # an <img> of another port's page
    ],
)
def test_another_host_name_and_another_sites_page_are_refused(user: TestClient, headers: Mapping[str, str]) -> None:
    assert user.get("/").status_code == 200
    assert user.get("/", headers=headers).status_code == 403


def test_a_link_elsewhere_opens_the_page(user: TestClient) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert user.get("/", headers=link).status_code == 200


def test_an_action_needs_the_pages_own_header(keys: Keys, user: TestClient) -> None:
    assert user.post("/").status_code == 403
    assert user.post("/", headers={CSRF: "x"}).status_code == 403
    assert user.post("/", headers={CSRF: keys.csrf}).status_code == 405  # passed on, to a page without actions


def test_a_page_runs_only_the_consoles_own_scripts(user: TestClient) -> None:
    answer = user.get("/")

    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
