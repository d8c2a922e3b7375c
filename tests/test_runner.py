"""Which tests are left out, and what is said of those."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

TESTS = """
import os, signal, time
import pytest

@pytest.mark.slow("a cluster requeues a job")
@pytest.mark.parametrize("number", [1, 2])
def test_slow(number): pass

@pytest.mark.slow("a browser opens the page")
@pytest.mark.skipif(True, reason="needs chromium: apt-get install chromium")
def test_skipped(): pass

@pytest.mark.skipif(True, reason="needs chromium: apt-get install chromium")
def test_quick_and_skipped(): pass

def test_quick(record_property): record_property("counted", ("a", 1))
"""


def run_pytest(folder: Path, text: str, *words: str, **popen: object) -> subprocess.CompletedProcess[str]:
    """pytest in `folder` with the plugins of these tests and one file of tests."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    (folder / "test_it.py").write_text(text)
    plugins = [f"-ptests.{name}" for name in ("surroundings", "promises", "order")]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "--rootdir", folder, *plugins, *words],
        cwd=folder, capture_output=True, text=True, **{"env": {**os.environ, "PYTHONPATH": str(ROOT)}, **popen},
    )  # type: ignore[call-overload, no-any-return]  # fmt: skip


def not_tried(output: str) -> list[str]:
    """The lines below "promises not tried"."""
    lines = output.splitlines()
    first = next((number for number, line in enumerate(lines, 1) if " promises not tried " in line), len(lines))
    return [line for line in lines[first:-1] if line]


NEEDS = "needs chromium: apt-get install chromium"


LISTED = [
    "slow: make test-all",
    "  a browser opens the page",
    "  a cluster requeues a job (2 tests)",
    NEEDS,
    "  test_it.py",
]


@pytest.mark.parametrize(
    ("words", "workers", "closing", "lines"),
    [
        ((), "2", "1 passed, 1 skipped", LISTED),  # pytest-xdist does not count what its workers leave out
        (("--rest",), "0", "2 passed, 1 skipped, 2 deselected", [NEEDS, "  a browser opens the page"]),
    ],
)
def test_a_run_ends_with_the_promises_that_it_did_not_try(
    words: tuple[str, ...], workers: str, closing: str, lines: list[str], tmp_path: Path
) -> None:
    ended = run_pytest(tmp_path, TESTS, "-n", workers, *words)

    assert ended.stdout.splitlines()[-1].split(" in ")[0].strip("= ") == closing
    assert not_tried(ended.stdout) == lines
    assert ended.returncode == 0


def test_a_slow_test_that_the_rest_would_miss_is_refused(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, "import pytest as p\n\nm = p.mark\n@m.slow('it lasts')\ndef test_it(): pass\n")

    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "write pytest.mark.slow(...) in this file" in ended.stderr
