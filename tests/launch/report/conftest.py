"""One whole report of everything, for the tests that look at it."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from launch.report.commands import report
from launch.report.options import ReportOptions
from tests.launch.report.made import EVERYTHING, kept, run

NOON = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
FAILED = replace(run("oom", 8, 4096), epochs=(), state="failed", exit_code=5,
                 reason="rank 3 ran out of GPU memory; lower --batch-size.")  # fmt: skip


@dataclass(frozen=True)
class Made:
    """Where a report is, and what was said about it."""

    out: Path
    said: str


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder, said = tmp_path_factory.mktemp("report"), list[str]()
    hostile = replace(FAILED, name=HOSTILE, folder=Path("hostile"), reason=HOSTILE)
    runs = kept(folder / "runs", *EVERYTHING, FAILED, hostile)
    assert report([runs], ReportOptions(out=folder / "out", title=f"Our {HOSTILE}"), NOON, said.append) == 0
    return Made(folder / "out", "\n".join(said))
