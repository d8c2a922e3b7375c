"""A console in this process, and a browser that has opened it."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from launch.console.guard import CSRF, Keys
from launch.console.server import application
from launch.console.world import World

BASE = "http://127.0.0.1:8123"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The folder of this machine's runs."""
    return tmp_path / "runs"


@pytest.fixture
def opened(runs: Path) -> TestClient:
    """A browser that has opened the printed address, with the header of an action."""
    keys = Keys(8123)
    browser = TestClient(application(World(clients=(), runs=runs), keys), base_url=BASE, headers={CSRF: keys.csrf})
    browser.get(f"/?token={keys.token}")
    return browser
