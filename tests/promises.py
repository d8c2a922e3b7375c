"""The marker slow("promise"), which tests `make test` leaves out, and the list of promises that a run did not try."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

WRITTEN = "mark.slow("  # in each file that has a slow test
MARKER = "slow(promise): takes long, so only `make test-all` tries it; promise: what it shows, in one sentence"
SLOW_LIMIT_S = 300  # pytest-timeout's, where a test names none of its own

_left_out = pytest.StashKey[Counter[str]]()
_slow = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="slow tests, too")
    parser.addoption("--rest", action="store_true", help="slow tests only: what a run without --all leaves out")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.stash[_left_out], config.stash[_slow] = Counter(), {}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --rest, no file without a slow test: each worker would import all that those need, for ten seconds."""
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if config.getoption("--rest") and is_test and WRITTEN not in collection_path.read_text() else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves slow tests out, unless an option or their name selects them."""
    promises = {item: promise for item in items if (promise := promise_of(item))}
    check_files({item.path for item in promises})
    for item in promises:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT_S))
    if config.getoption("--rest"):
        left_out = [item for item in items if item not in promises]
    elif config.getoption("--all") or any("::" in word for word in config.args):
        left_out = []
    else:
        left_out = list(promises)
        config.stash[_left_out].update(promises.values())
    config.stash[_slow].update({item.nodeid: promise for item, promise in promises.items()})
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def check_files(paths: Iterable[Path]) -> None:
    """Raises UsageError for a file with slow tests in which --rest would not look for them."""
    for path in paths:
        if WRITTEN not in path.read_text():
            raise pytest.UsageError(f"{path}: write pytest.{WRITTEN}...) in this file, or --rest leaves its tests out")


def promise_of(item: pytest.Item) -> str | None:
    """What a slow test shows; None for others.  Raises UsageError for a marker without a sentence."""
    marker = item.get_closest_marker("slow")
    if marker is None:
        return None
    if len(marker.args) != 1 or not isinstance(marker.args[0], str):
        raise pytest.UsageError(
            f'{item.nodeid}: say what the test shows: pytest.mark.slow("a real Slurm requeues ...")'
        )
    return marker.args[0]


# ---- pytest-xdist: workers collect, and the process that started them prints


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--rest") and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # nothing was left out
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = dict(session.config.stash[_left_out])
        output["slow"] = session.config.stash[_slow]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error) -> None:  # type: ignore[no-untyped-def]
    """Keeps what a worker has left out: each leaves out the same."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[_left_out] |= Counter(output.get("left_out", {}))
    node.config.stash[_slow].update(output.get("slow", {}))


# ---- the list


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = [*_lines_of_slow(config.stash[_left_out]), *_lines_of_skipped(terminalreporter, config.stash[_slow])]
    if lines:
        terminalreporter.section("promises not tried")
        for line in lines:
            terminalreporter.write_line(line)


def _lines_of_slow(left_out: Counter[str]) -> Iterable[str]:
    if left_out:
        yield "slow: make test-all"
        yield from (f"  {promise}{_times(number)}" for promise, number in sorted(left_out.items()))


def _lines_of_skipped(terminalreporter: pytest.TerminalReporter, slow: dict[str, str]) -> Iterable[str]:
    """By reason, which names the line that installs what is missing: slow tests' promises, and the others' files."""
    reasons: dict[str, Counter[str]] = {}
    for report in terminalreporter.getreports("skipped"):
        if isinstance(report.longrepr, tuple):  # an expected failure has none
            reason = report.longrepr[2].removeprefix("Skipped: ")
            reasons.setdefault(reason, Counter())[slow.get(report.nodeid, report.nodeid.split("::")[0])] += 1
    for reason, promises in sorted(reasons.items()):
        yield reason
        yield from (f"  {promise}{_times(number)}" for promise, number in sorted(promises.items()))


def _times(number: int) -> str:
    return f" ({number} tests)" if number > 1 else ""
