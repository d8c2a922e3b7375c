"""Reads runs, writes the report: the only module here that touches the disk."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from launch.core import runs
from launch.core.drawing.charts import Chart
from launch.report import charts_learning, charts_scaling, charts_time, findings, tables
from launch.report.cost import priced
from launch.report.findings import Findings
from launch.report.options import ReportOptions
from trainer.contract import Exit
from trainer.errors import SettingsError, not_written

PAGE, TABLE, OVERVIEW, FIGURES = "report.html", "table.csv", "overview.png", "figures"
FORMATS = ("png", "svg", "pdf")
# In the overview, as far as they are there: the first four.
FOREMOST = ("speedup", "breakdown", "time_per_epoch", "accuracy_over_time", "efficiency", "memory", "large_batch")


def report(places: Sequence[Path], options: ReportOptions, now: datetime, say: Callable[[str], None]) -> int:
    """Writes the report of all runs in `places`; returns the exit code.  Raises SettingsError, MachineError."""
    if not places:
        raise SettingsError("give the folders of runs first: python -m launch.report runs/ [--out DIR].")
    if unknown := [kind for kind in options.format if kind not in FORMATS]:
        raise SettingsError(f"--format {unknown[0]}: must be {', '.join(FORMATS)}, or several with commas between.")
    found = findings.find(priced(runs.find(places), options.usd_per_gpu_hour), options.baseline)
    made = all_charts(found)
    drawn = [chart for chart in made if not isinstance(chart, str)]
    missing = [one for one in made if isinstance(one, str) and one]
    try:
        written = _write(found, drawn, missing, options, now)
    except OSError as error:
        raise not_written(
            error, f"{options.out} cannot be written: {error.strerror}; name another with --out."
        ) from error
    _tell(found, missing, written, say)
    return Exit.DONE


def all_charts(found: Findings) -> list[Chart | str]:
    """Every chart there is data for, and for the others a sentence why not; empty where that is said already."""
    return [
        *charts_scaling.all_scaling(found.series, found.fits, found.unit),
        *charts_time.all_time(found.points, found.unit),
        *charts_learning.all_learning(found.points, found.series, found.compared, found.unit),
    ]


def _write(
    found: Findings, drawn: Sequence[Chart], missing: Sequence[str], options: ReportOptions, now: datetime
) -> list[Path]:
    from launch.core.drawing import picture
    from launch.report import page

    _remove_earlier(options.out)
    figures = options.out / FIGURES
    figures.mkdir(parents=True, exist_ok=True)
    pictures = [(chart, picture.save(chart, figures, options.format)) for chart in drawn]
    by_name = {chart.name: chart for chart in drawn}
    foremost = [by_name[name] for name in FOREMOST if name in by_name]
    written = [options.out / PAGE, options.out / TABLE, *([figures] if drawn else [])]
    if foremost:
        picture.save_overview(foremost, options.out / OVERVIEW)
        written.append(options.out / OVERVIEW)
    text = page.as_html(found, pictures, missing, tables.tables(found), title=options.title, made=now)
    (options.out / PAGE).write_text(text, encoding="utf-8")
    (options.out / TABLE).write_text(tables.as_csv(found), encoding="utf-8")
    return written


def _remove_earlier(out: Path) -> None:
    """Pictures of a report that was there before, for this one may not have them all.  What is not ours stays."""
    from launch.report.page import MARK, SECTIONS

    if not (out / PAGE).is_file() or MARK not in (out / PAGE).read_text(encoding="utf-8", errors="replace"):
        return
    names = [name for _, charts, _ in SECTIONS for name in charts]
    for path in (out / OVERVIEW, *(out / FIGURES / f"{name}.{kind}" for name in names for kind in FORMATS)):
        path.unlink(missing_ok=True)


def _tell(found: Findings, missing: Sequence[str], written: Sequence[Path], say: Callable[[str], None]) -> None:
    say(f"{findings.title(found)}\n")
    for sentence in findings.sentences(found):
        say(sentence)
    made = tables.tables(found)
    if "series" in made:
        say(f"\n{tables.as_text(made['series'])}")
    failed = [run for run in found.runs if run.state == "failed"]
    for run in failed[:10]:
        say(f"failed: {run.name}: {run.reason or 'no reason is recorded'}")
    if missing:
        say("\nnot drawn:")
    for sentence in missing:
        say(f"  {sentence}")
    say("\nwritten:")
    for path in written:
        say(f"  {path}")
