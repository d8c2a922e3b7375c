"""The report as one self-contained HTML page; infra/report/ has its template and style."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources import files

from launch.core.drawing.charts import TIMES, Bars, Chart, alt, figure
from launch.core.drawing.picture import data_uri
from launch.core.metrics import shown
from launch.report import findings
from launch.report.cost import cost
from launch.report.findings import Findings
from launch.report.own import CHART, MOST_TOLD
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


# A chart, its data URI, whether it is wide, and its alternative text.
Picture = tuple[Chart, str, bool, str]
Section = tuple[str, list[Picture], Table | None]
Tile = tuple[str, str, str]


def as_html(
    results: Findings,
    charts: Sequence[tuple[Chart, str]],
    missing: Sequence[str],
    tables: dict[str, Table],
    *,
    title: str | None,
    made: datetime,
) -> str:
    """The whole page.  charts: each with its SVG; missing: why others are missing; title: the user's own."""
    from jinja2 import Environment, StrictUndefined

    folder = files("infra").joinpath("report")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(folder.joinpath("report.html.j2").read_text(encoding="utf-8"))
    pictures = {chart.name: (chart, data_uri(svg), isinstance(chart, Bars), alt(chart)) for chart, svg in charts}
    text = template.render(
        title=title,
        finding=findings.title(results),
        sentences=findings.sentences(results),
        tiles=tiles(results),
        sections=_sections(pictures, tables),
        runs=tables.get("runs"),
        has_ours=bool(results.points) or not results.own.runs,
        has_scripts=bool(results.own.runs),
        missing=missing,
        made=made,
        mark=MARK,
        style=folder.joinpath("report.css").read_text(encoding="utf-8"),
    )
    return encodable(text)


def _sections(pictures: Mapping[str, Picture], tables: Mapping[str, Table]) -> list[Section]:
    """Headings with their pictures and table, without empty ones."""
    own = [picture for name, picture in pictures.items() if name.startswith(CHART)]
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
