"""What the page of a report contains, and the page itself, one self-contained file of HTML.

infra/report/ has its template and style.  The console shows the same content, see report/content.html.j2.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from launch.core.drawing.charts import TIMES, Chart, figure
from launch.core.drawing.curves import METRIC
from launch.core.metrics import shown
from launch.core.pages import BASE, Picture, asset, environment
from launch.report import charts, findings, own, tables
from launch.report.cost import cost
from launch.report.findings import Findings
from launch.report.own import MOST_TOLD
from launch.report.series import efficiency, limit, speedup
from launch.report.tables import Table
from trainer.terminal import encodable

# Marks a page as a report, which a later report may replace.
MARK = '<meta name="generator" content="launch.report">'
# Headings, with the charts below them and the table at their end.
SECTIONS = (
    ("Scaling", ("speedup", "efficiency", "time_per_epoch", "weak_scaling", "amdahl", "gustafson"), "series"),
    ("Where the time goes", ("breakdown", "compute_communication", "all_reduce", "memory"), "points"),
    ("What is learnt", ("accuracy_over_time", "accuracy_over_epochs", "accuracy", "loss"), ""),
    ("Large batches", ("large_batch", "large_batch_gap"), "batches"),
    ("Cost", ("cost_per_epoch", "cost_per_accuracy"), "costs"),
    ("To the target accuracy", (), "targets"),
)

Section = tuple[str, list[Picture], Table | None]
Tile = tuple[str, str, str]


def drawable(results: Findings) -> tuple[list[Chart], list[str]]:
    """The charts with data, and sentences on the others."""
    found = all_charts(results)
    charts = [chart for chart in found if not isinstance(chart, str)]
    return charts, [why for why in found if isinstance(why, str) and why]


def all_charts(results: Findings) -> list[Chart | str]:
    """Every chart with data, and a sentence for each without, empty if another chart's covers it."""
    if results.is_of_scripts:
        return own.charts(results.own)
    return [
        *own.charts(results.own),
        *charts.all_scaling(results.series, results.laws, results.unit),
        *charts.all_time(results.points, results.unit),
        *charts.all_learning(results.points, results.series, results.compared, results.unit),
    ]


def as_html(
    results: Findings, pictures: Sequence[Picture], missing: Sequence[str], *, title: str | None, made: datetime
) -> str:
    """The HTML page.  missing: why charts are missing; title: given by the user."""
    template = environment().get_template("report/report.html.j2")
    style = asset(BASE) + asset("report/report.css")
    return encodable(
        template.render(content(results, pictures, missing), title=title, made=made, mark=MARK, style=style)
    )


def content(results: Findings, pictures: Iterable[Picture], missing: Sequence[str]) -> dict[str, Any]:
    """The values of report/content.html.j2."""
    known = tables.tables(results)
    return {
        "finding": findings.title(results),
        "sentences": findings.sentences(results),
        "tiles": tiles(results),
        "sections": _sections({picture.name: picture for picture in pictures}, known),
        "runs": known.get("runs"),
        "has_ours": bool(results.points) or not results.own.runs,
        "has_scripts": bool(results.own.runs),
        "missing": missing,
    }


def _sections(pictures: Mapping[str, Picture], tables: Mapping[str, Table]) -> list[Section]:
    """Headings with their pictures and table, without empty ones."""
    own = [picture for name, picture in pictures.items() if name.startswith(METRIC)]
    sections: list[Section] = [("Metrics", own, tables.get("metrics"))]
    for heading, names, table in SECTIONS:
        sections.append((heading, [pictures[name] for name in names if name in pictures], tables.get(table)))
    return [section for section in sections if section[1] or section[2]]


def tiles(results: Findings) -> list[Tile]:
    """(name, figure, remark) of the main numbers."""
    done = sum(run.state == "done" for run in results.runs)
    runs = ("Runs", str(len(results.runs)), f"{done} done" if done < len(results.runs) else "all done")
    return [runs, *_own_tiles(results), *_scaling_tiles(results), *_accuracy_tile(results), *_cost_tile(results)]


def _own_tiles(results: Findings) -> list[Tile]:
    bests = results.own.bests[:MOST_TOLD]
    return [(f"{one.word.capitalize()} {one.metric}", shown(one.value), one.run) for one in bests]


def _scaling_tiles(results: Findings) -> list[Tile]:
    best = results.best
    if best is None:
        return []
    shown, last = [], best.points[-1]
    fast, share = speedup(last, best.base), efficiency(last, best.base)
    if fast and share:
        shown.append(("Speedup", f"{figure(fast.value)}{TIMES}", f"on {last.replicas} {results.unit}s"))
        shown.append(("Efficiency", f"{share.value:.0f}%", "of ideal"))
    if (law := results.law_of(best)) and law.describes:
        most = limit(law)
        bound = f"at most {figure(most)}{TIMES}" if most and math.isfinite(most) else ""
        shown.append(("Serial part", f"{law.serial:.1%}", bound))
    return shown


def _accuracy_tile(results: Findings) -> list[Tile]:
    scores = [end.value for point in results.points if (end := point.ended_with("eval_top1"))]
    return [("Test accuracy, best", f"{max(scores):.1%}", "")] if scores else []


def _cost_tile(results: Findings) -> list[Tile]:
    costs = [one.per_epoch.value for point in results.points if (one := cost(point)) and one.per_epoch]
    return [("Cheapest epoch", figure(min(costs)), "USD")] if costs else []
