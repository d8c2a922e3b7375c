"""In which order and on which worker tests run: the longest first, so that no worker is left alone at the end.

Tests are handed out in units: a folder whose tests share something that takes long to make; a test that takes long by
itself; or a file, as its tests share what is set up for it.  durations.json has the seconds of tests, and of what the
tests of a file set up and take down, as measured by --write-durations.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

DURATIONS = Path(__file__).parent / "durations.json"
FOLDERS = ("tests/launch/slurm/", "tests/launch/report/", "tests/container/")  # one cluster; one report; one image
LONG_S = 8.0  # a test that takes longer is a unit, without what is set up for the others of its file as well
SHORT_S = 0.5  # what takes less is not worth a line
USUAL_S = 0.05  # a test without a line


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-durations", action="store_true", help="measure how long tests take, for their order")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sorts them, where pytest-xdist's scheduler takes them from."""
    if hasattr(config, "workerinput"):
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[nodeid] for nodeid in sorted_by_duration(list(by_name))]


def sorted_by_duration(nodeids: list[str]) -> list[str]:
    """The longest units first; tests keep their order in a unit."""
    expected_s = defaultdict[str, float](float)
    for nodeid in nodeids:
        expected_s[unit_of(nodeid)] += durations().get(nodeid, USUAL_S)
    for file in {nodeid.split("::")[0] for nodeid in nodeids}:
        expected_s[unit_of(file)] += durations().get(file, 0.0)
    return sorted(nodeids, key=lambda nodeid: (-expected_s[unit_of(nodeid)], unit_of(nodeid)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three more than cores, as many tests wait for processes of their own; each collects all tests first."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 3


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    config.option.loadscopereorder = False
    return Units(config, log)  # type: ignore[arg-type]


class Units(LoadScopeScheduling):
    """Hands out units in the order of the tests."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


@cache
def unit_of(nodeid: str) -> str:
    """What is handed out as a whole: a folder, a test that takes long, or a file."""
    if folder := next((folder for folder in FOLDERS if nodeid.startswith(folder)), None):
        return folder
    return nodeid if durations().get(nodeid, 0.0) >= LONG_S else nodeid.split("::")[0]


@cache
def durations() -> dict[str, float]:
    """Seconds by test, without what it shares with others; and of that by file."""
    measured: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return measured


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--write-durations"):
        reports = [report for kind in ("passed", "failed", "") for report in terminalreporter.getreports(kind)]
        measured = [report for report in reports if isinstance(report, pytest.TestReport)]
        merged = merge(durations(), [(report.nodeid, report.when == "call", report.duration) for report in measured])
        DURATIONS.write_text(json.dumps(merged, indent=0, sort_keys=True) + "\n")


def merge(known: Mapping[str, float], reports: Iterable[tuple[str, bool, float]]) -> dict[str, float]:
    """`known`, with what was measured in place of what it said of those tests.  Pure.

    reports: (test, whether this is its call and not what is around it, seconds).  Of a file whose tests ran in part,
    what they share was perhaps made in part; the most that was ever seen holds.
    """
    calls, around = defaultdict[str, float](float), defaultdict[str, float](float)
    for nodeid, is_call, seconds in reports:
        calls[nodeid] += seconds * is_call
        around[nodeid.split("::")[0]] += seconds * (not is_call)
    files = {file: max(seconds, known.get(file, 0.0)) for file, seconds in around.items()}
    new = {**known, **calls, **files}
    return {name: round(seconds, 1) for name, seconds in new.items() if seconds >= SHORT_S}
