"""Reports on scripts of the user's own: their metrics in their own names, and nothing that they do not have."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from launch.core.drawing.charts import Bars, Lines
from launch.core.runs import Run
from launch.report import findings, own, tables
from launch.report.commands import report
from launch.report.options import ReportOptions
from launch.report.page import all_charts
from tests.launch.report.made import kept, run


def script(name: str, *losses: float, score: float = 0.5, **point: Any) -> Run:
    records: list[dict[str, Any]] = [{"step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
    return Run(name, Path(name), {"script": "train.py"}, (*records, {"score": score}), point={"args.lr": 1, **point})


def test_the_best_run_by_each_metric_is_the_finding() -> None:
    results = findings.find([script("a", 3.0, 0.2, 0.4), script("b", 3.0, 0.5, score=0.75)])

    assert findings.title(results) == "2 runs: lowest loss 0.2, by a"
    assert findings.sentences(results) == [
        "The lowest loss is 0.2, by a of 2 runs.", "The highest score is 0.75, by b of 2 runs.", own.LEFT_OUT,
    ]  # fmt: skip


def test_a_metric_is_drawn_over_its_steps_and_one_that_is_known_once_as_bars() -> None:
    results = findings.find([script("a", 400.0, 0.2), script("b", 3.0, 0.5, score=0.75)])

    loss, score = all_charts(results)

    assert isinstance(loss, Lines)
    assert (loss.name, loss.x_label, loss.is_log_y) == ("metric_loss", "step", True)
    assert [(line.label, [(x, y.value) for x, y in line.points]) for line in loss.lines] == [
        ("a", [(1, 400.0), (2, 0.2)]), ("b", [(1, 3.0), (2, 0.5)]),
    ]  # fmt: skip
    assert isinstance(score, Bars)
    assert [(bar.label, bar.text) for bar in score.rows] == [("a", "0.5"), ("b", "0.75")]


def test_the_table_has_the_settings_that_differ_and_each_metric_newest_and_best() -> None:
    table = tables.tables(findings.find([script("a", 3.0, 0.2, 0.4)]))["metrics"]

    assert table.columns == ("run", "args.lr", "records", "loss", "score", "lowest loss", "highest score")
    assert table.rows == (("a", "1", "4", "0.4", "0.5", "0.2", "0.5"),)


def test_scripts_that_print_the_same_are_not_copies() -> None:
    assert findings.find([script("a", 1.0), script("b", 1.0)]).copies == ()


def test_runs_of_both_kinds_are_each_reported_in_their_own_way() -> None:
    results = findings.find([script("a", 1.0, 0.5), run("one"), run("two", 2)])

    assert not results.is_of_scripts
    assert [point.replicas for point in results.points] == [1, 2]
    assert "The lowest loss is 0.5, by a." in findings.sentences(results)
    assert {"metrics", "series"} <= tables.tables(results).keys()


@pytest.mark.slow("a report on a script is drawn")
def test_a_report_is_written(tmp_path: Path) -> None:
    place, said = kept(tmp_path / "runs", script("a", 2.0, 1.0)), list[str]()
    options = ReportOptions(out=tmp_path / "report")

    report([place], options, datetime.now(UTC), said.append)

    page = (options.out / "report.html").read_text()
    assert '<h2 id="section-1">Metrics</h2>' in page
    assert "Amdahl" not in page
    assert "not drawn" not in "\n".join(said)
    assert (options.out / "figures" / "metric_loss.png").exists()
    assert "metric.loss" in (options.out / "table.csv").read_text()
