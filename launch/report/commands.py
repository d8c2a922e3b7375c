"""Read runs and write the report, one self-contained HTML page: the only module here that uses files.

infra/report/ has the page's template and style.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from launch.core import runs
from launch.core.drawing.charts import TIMES, Bars, Chart, alt, figure
from launch.core.drawing.picture import data_uri, save, save_overview
from launch.core.metrics import shown
from launch.core.terminal import one_row, terminal_width
from launch.report import charts, findings, own, tables
from launch.report.cost import cost, priced
from launch.report.findings import Findings
from launch.report.options import ReportOptions
from launch.report.own import CHART, MOST_TOLD
from launch.report.series import efficiency, limit, speedup
from launch.report.tables import Table
from trainer.contract import Exit
from trainer.errors import SettingsError, not_written
from trainer.files import write_atomically
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
    """The HTML page.  charts: each with its SVG; missing: why others are missing; title: given by the user."""
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


PAGE, TABLE, OVERVIEW, FIGURES = "report.html", "table.csv", "overview.png", "figures"
FORMATS = ("png", "svg", "pdf")
# The first four of these that exist are in the overview.
FOREMOST = ("speedup", "breakdown", "time_per_epoch", "accuracy_over_time", "efficiency", "memory", "large_batch")


def report(places: Sequence[Path], options: ReportOptions, now: datetime, say: Callable[[str], None]) -> int:
    """Write the report of all runs in `places`; return the exit code.  Raises SettingsError, MachineError."""
    _check(places, options)
    known, unread = runs.readable(places)
    results = findings.find(
        priced(known, options.usd_per_gpu_hour), options.baseline, target=options.target_accuracy, unread=unread
    )
    charts, missing = list[Chart](), list[str]()
    for chart in all_charts(results):
        if not isinstance(chart, str):
            charts.append(chart)
        elif chart:
            missing.append(chart)
    try:
        written = _write(results, charts, missing, options, now)
    except OSError as error:
        sentence = f"{options.out} cannot be written: {error.strerror}; give another folder with --out."
        raise not_written(error, sentence) from error
    _print(results, missing, written, say)
    return Exit.DONE


def _check(places: Sequence[Path], options: ReportOptions) -> None:
    if not places:
        raise SettingsError("give the folders of runs first: python -m launch.report runs/ [--out DIR].")
    for kind in options.format:
        if kind not in FORMATS:
            raise SettingsError(f"--format {kind}: must be {', '.join(FORMATS)}, or several with commas between.")


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


def _write(
    results: Findings, charts: Sequence[Chart], missing: Sequence[str], options: ReportOptions, now: datetime
) -> list[Path]:
    """Write all files; return their paths."""
    _remove_earlier(options.out)
    figures = options.out / FIGURES
    figures.mkdir(parents=True, exist_ok=True)
    pictures = [(chart, save(chart, figures, options.format)) for chart in charts]
    by_name = {chart.name: chart for chart in charts}
    foremost = [by_name[name] for name in FOREMOST if name in by_name] or charts
    written = [options.out / PAGE, options.out / TABLE, *([figures] if charts else [])]
    if foremost:
        save_overview(foremost, options.out / OVERVIEW)
        written.append(options.out / OVERVIEW)
    text = as_html(results, pictures, missing, tables.tables(results), title=options.title, made=now)
    write_atomically(options.out / PAGE, text)
    write_atomically(options.out / TABLE, tables.as_csv(results))
    return written


def _remove_earlier(out: Path) -> None:
    """Remove the pictures of an earlier report, as this one may have fewer.  Other files stay."""
    try:
        is_ours = MARK.encode() in (out / PAGE).read_bytes()
    except OSError:  # no earlier report
        return
    if not is_ours:
        return
    names = [name for _, charts, _ in SECTIONS for name in charts]
    pictures = [out / FIGURES / f"{name}.{kind}" for name in names for kind in FORMATS]
    pictures += [path for kind in FORMATS for path in (out / FIGURES).glob(f"{own.CHART}*.{kind}")]
    for path in (out / OVERVIEW, *pictures):
        path.unlink(missing_ok=True)


def _print(results: Findings, missing: Sequence[str], written: Sequence[Path], say: Callable[[str], None]) -> None:
    say(f"{findings.title(results)}\n")
    for sentence in findings.sentences(results):
        say(one_row(sentence))
    for table in tables.for_terminal(results):
        say(f"\n{tables.as_text(table, width=terminal_width())}")
    for run in [run for run in results.runs if run.state == "failed"][:10]:
        say(f"failed: {run.name}: {run.reason or 'no reason is recorded'}")
    if missing:
        say("\nnot drawn:")
    for sentence in missing:
        say(f"  {one_row(sentence)}")
    say("\nwritten:")
    for path in written:
        say(f"  {path}")
