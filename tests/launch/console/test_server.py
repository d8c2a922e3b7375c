"""The console as a command: its address, and how it ends."""

import os
import signal
import stat
import subprocess
import sys
import webbrowser
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from launch.console.__main__ import main
from launch.console.server import listening
from tests.conftest import ROOT


def test_ctrl_c_ends_it_and_the_printed_address_is_the_only_way_in(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "launch.console", "--no-open"]
    with subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        first, address = console.stdout.readline(), console.stdout.readline().strip()
        assert "until Ctrl-C" in first
        assert address.startswith("http://127.0.0.1:")
        with pytest.raises(HTTPError, match="403"):
            urlopen(address.partition("?")[0])
        with urlopen(address) as answer:
            assert "HttpOnly" in answer.headers["set-cookie"]
        console.send_signal(signal.SIGINT)
        assert console.wait(10) == 0


def test_it_ends_when_no_page_was_in_sight_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--no-open", "--idle-minutes", "0.01"]) == 0
    assert "no page was in sight for 0.01 min" in capsys.readouterr().out


def test_the_browser_gets_a_private_file_that_leads_to_the_page_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = list[tuple[Path, int, str]]()

    def open_there(address: str) -> None:
        path = Path(address.removeprefix("file://"))
        opened.append((path, stat.S_IMODE(path.stat().st_mode), path.read_text()))

    monkeypatch.setattr(webbrowser, "open", open_there)
    assert main(["--idle-minutes", "0.01", "--runs", str(tmp_path)]) == 0

    ((path, mode, text),) = opened
    address = capsys.readouterr().out.splitlines()[1].strip()
    assert (path.parent, mode) == (tmp_path, 0o600)
    assert f"url={address}" in text
    assert not path.exists()


def test_a_port_that_is_taken_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with listening(0) as taken:
        port = taken.getsockname()[1]
        assert main(["--no-open", "--port", str(port)]) == 2
    assert f"--port {port} cannot be used" in capsys.readouterr().err
