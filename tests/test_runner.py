"""How tests are run: what they find around them, which are left out, what is said of those, and in which order."""

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests import order
from tests.conftest import ROOT
from tests.surroundings import is_foreign

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
AROUND = """
import os, signal, time
from pathlib import Path

def test_signals():
    assert [signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)] == [signal.SIG_DFL] * 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()

def test_environment():
    assert not {"AWS_PROFILE", "https_proxy", "NO_COLOR", "COLUMNS", "PYTHONWARNINGS"} & set(os.environ)
    assert (os.environ["LC_ALL"], os.environ["TERM"]) == ("C.UTF-8", "xterm")
    assert not Path("~/.aws").expanduser().exists()

def test_umask():
    assert os.umask(0o022) == 0o022
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
        ((), "0", "1 passed, 1 skipped, 3 deselected", LISTED),
        ((), "2", "1 passed, 1 skipped", LISTED),  # pytest-xdist does not count what its workers leave out
        (("--all",), "0", "3 passed, 2 skipped", [NEEDS, "  a browser opens the page", "  test_it.py"]),
        (("--rest",), "0", "2 passed, 1 skipped, 2 deselected", [NEEDS, "  a browser opens the page"]),
        (("--rest",), "2", "2 passed, 1 skipped", [NEEDS, "  a browser opens the page"]),
        (("test_it.py::test_slow",), "0", "2 passed", []),
    ],
)
def test_a_run_ends_with_the_promises_that_it_did_not_try(
    words: tuple[str, ...], workers: str, closing: str, lines: list[str], tmp_path: Path
) -> None:
    ended = run_pytest(tmp_path, TESTS, "-n", workers, *words)

    assert ended.stdout.splitlines()[-1].split(" in ")[0].strip("= ") == closing
    assert not_tried(ended.stdout) == lines
    assert ended.returncode == 0


@pytest.mark.parametrize("workers", ["0", "2"])
def test_nothing_that_is_slow_is_no_failure_of_the_rest(workers: str, tmp_path: Path) -> None:
    assert run_pytest(tmp_path, "def test_quick(): pass\n", "-n", workers, "--rest").returncode == 0


def test_the_rest_imports_no_file_without_a_slow_test(tmp_path: Path) -> None:
    (tmp_path / "test_quick.py").write_text("raise RuntimeError('imported')\n")

    assert run_pytest(tmp_path, TESTS, "--rest").returncode == 0


def test_a_slow_test_that_the_rest_would_miss_is_refused(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, "import pytest as p\n\nm = p.mark\n@m.slow('it lasts')\ndef test_it(): pass\n")

    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "write pytest.mark.slow(...) in this file" in ended.stderr


def test_a_slow_test_says_what_it_shows(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, "import pytest\n\n@pytest.mark.slow\ndef test_it(): pass\n")

    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_it.py::test_it: say what the test shows" in ended.stderr


def test_a_test_that_hangs_is_named(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, "def test_hangs():\n    while True: pass\n", "--timeout", "0.2")

    assert "FAILED test_it.py::test_hangs - Failed: Timeout" in ended.stdout


def test_results_are_written_for_other_programs(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, TESTS, "-o", "junit_family=xunit1", "-Werror", "--junitxml", "results.xml")

    assert ended.returncode == 0, ended.stdout
    properties = ElementTree.parse(tmp_path / "results.xml").iter("property")
    assert [(it.get("name"), it.get("value")) for it in properties] == [("counted", "('a', 1)")]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_tests_find_the_same_around_them_however_they_are_started(workers: str, tmp_path: Path) -> None:
    theirs = {"AWS_PROFILE": "work", "https_proxy": "http://proxy", "NO_COLOR": "1", "COLUMNS": "40", "TERM": "dumb",
              "PYTHONWARNINGS": "ignore", "LC_ALL": "C", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}  # fmt: skip
    (tmp_path / ".aws").mkdir()

    def ignore() -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        os.umask(0o077)

    ended = run_pytest(tmp_path, AROUND, "-n", workers, env={**os.environ, **theirs}, preexec_fn=ignore)

    assert ended.returncode == 0, ended.stdout


def test_what_runs_programs_stays() -> None:
    assert not any(is_foreign(name) for name in ("PATH", "HOME", "TMPDIR", "USER", "LD_LIBRARY_PATH"))


def test_the_longest_come_first_and_what_shares_stays_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "DURATIONS", tmp_path / "durations.json")
    order.DURATIONS.write_text(
        json.dumps({"b.py": 3, "b.py::test_2": 2, "b.py::test_long": 20, "tests/launch/slurm/x.py": 7})
    )
    tests = ["a.py::test_1", "b.py::test_2", "tests/launch/slurm/x.py::t", "b.py::test_long", "b.py::test_3",
             "tests/launch/slurm/y.py::t"]  # fmt: skip
    caches = (order.durations, order.unit_of)
    for cached in caches:
        cached.cache_clear()

    ordered = order.sorted_by_duration(tests)

    for cached in caches:
        cached.cache_clear()
    assert ordered == [tests[3], tests[2], tests[5], tests[1], tests[4], tests[0]]


def test_measuring_a_part_keeps_what_is_known_of_the_rest() -> None:
    known = {"a.py": 4.0, "a.py::test_1": 3.0, "a.py::test_2": 2.0, "b.py::test_3": 9.0}
    measured = [("a.py::test_1", False, 1.0), ("a.py::test_1", True, 5.0), ("a.py::test_4", True, 0.1)]
    assert order.merge(known, measured) == {"a.py": 4.0, "a.py::test_1": 5.0, "a.py::test_2": 2.0, "b.py::test_3": 9.0}
