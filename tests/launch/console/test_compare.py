"""The page that compares runs: the report's own figures, of runs that are here."""

import html
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from launch.console import compare
from launch.core.pages import picture_of
from launch.report import findings
from tests.launch.report.made import kept, run

HOSTILE = "<img src=x onerror=alert(1)>"


def test_the_page_lists_every_run_that_has_records(opened: TestClient, runs: Path) -> None:
    assert "No run with records" in opened.get("/compare").text

    kept(runs / "sweep", run("one"), run(HOSTILE, 2), run("empty", epochs=0))
    opened.app.state.world.cache.forget()  # type: ignore[attr-defined]  # an ASGI app of any kind
    text = opened.get("/compare").text

    assert re.findall(r'name="run" value="([^"]+)"', text) == [html.escape(f"sweep/{HOSTILE}"), "sweep/one"]
    assert HOSTILE not in text


def test_the_ticked_runs_have_the_figures_of_the_report(
    opened: TestClient, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "pictures", lambda charts: [picture_of(chart, "<svg/>") for chart in charts])  # quick
    made = [run("one"), run("four", 4, rate=3000.0), run("other", 8)]
    kept(runs, *made)

    text = opened.get("/compare", params={"run": ["one", "four"]}).text

    assert html.escape(findings.title(findings.find(made[:2]))) in text
    assert re.search(r'<figure id="speedup">.*?<img src="data:image/svg\+xml;base64,', text, re.DOTALL)
    assert f"python -m launch.report {runs}/one {runs}/four --out report" in text
    assert text.count(" checked>") == 2


def test_a_folder_that_is_not_listed_is_refused(opened: TestClient, runs: Path, tmp_path: Path) -> None:
    kept(runs, run("one"))
    kept(tmp_path / "elsewhere", run("two"))

    answer = opened.get("/compare", params={"run": "../elsewhere/two"})

    assert answer.status_code == 400
    assert "there is no run ../elsewhere/two" in answer.text
