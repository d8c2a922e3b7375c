"""Read runs and write the report: the only module here that uses files."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from launch.core import runs
from launch.core.drawing.charts import Chart
from launch.core.drawing.curves import METRIC
from launch.core.drawing.picture import save, save_overview
from launch.core.pages import picture_of
from launch.core.terminal import one_row, terminal_width
from launch.report import findings, page, tables
from launch.report.cost import priced
from launch.report.findings import Findings
from launch.report.options import ReportOptions
from trainer.contract import Exit
from trainer.errors import SettingsError, not_written
from trainer.files import write_atomically

PAGE, TABLE, OVERVIEW, FIGURES = "report.html", "table.csv", "overview.png", "figures"
FORMATS = ("png", "svg", "pdf")
# The first four of these that exist are in the overview.
FOREMOST = ("speedup", "breakdown", "time_per_epoch", "accuracy_over_time", "efficiency", "memory", "large_batch")


def report(places: Sequence[Path], options: ReportOptions, now: datetime, say: Callable[[str], None]) -> int:
    """Write the report of all runs in `places`; return the exit code.  Raises SettingsError, MachineError."""
    _check(places, options)
    results = found(places, options)
    charts, missing = page.drawable(results)
    try:
        written = _write(results, charts, missing, options, now)
    except OSError as error:
        sentence = f"{options.out} cannot be written: {error.strerror}; give another folder with --out."
        raise not_written(error, sentence) from error
    _print(results, missing, written, say)
    return Exit.DONE


def found(places: Sequence[Path], options: ReportOptions) -> Findings:
    """What the runs in `places` show.  Raises SettingsError, MachineError."""
    known, unread = runs.readable(places)
    known = priced(known, options.usd_per_gpu_hour)
    return findings.find(known, options.baseline, target=options.target_accuracy, unread=unread)


def _check(places: Sequence[Path], options: ReportOptions) -> None:
    if not places:
        raise SettingsError("give the folders of runs first: python -m launch.report runs/ [--out DIR].")
    for kind in options.format:
        if kind not in FORMATS:
            raise SettingsError(f"--format {kind}: must be {', '.join(FORMATS)}, or several with commas between.")


def _write(
    results: Findings, charts: Sequence[Chart], missing: Sequence[str], options: ReportOptions, now: datetime
) -> list[Path]:
    """Write all files; return their paths."""
    _remove_earlier(options.out)
    figures = options.out / FIGURES
    figures.mkdir(parents=True, exist_ok=True)
    pictures = [picture_of(chart, save(chart, figures, options.format)) for chart in charts]
    by_name = {chart.name: chart for chart in charts}
    foremost = [by_name[name] for name in FOREMOST if name in by_name] or charts
    written = [options.out / PAGE, options.out / TABLE, *([figures] if charts else [])]
    if foremost:
        save_overview(foremost, options.out / OVERVIEW)
        written.append(options.out / OVERVIEW)
    text = page.as_html(results, pictures, missing, title=options.title, made=now)
    write_atomically(options.out / PAGE, text)
    write_atomically(options.out / TABLE, tables.as_csv(results))
    return written


def _remove_earlier(out: Path) -> None:
    """Remove the pictures of an earlier report, as this one may have fewer.  Other files stay."""
    try:
        is_ours = page.MARK.encode() in (out / PAGE).read_bytes()
    except OSError:  # no earlier report
        return
    if not is_ours:
        return
    names = [name for _, charts, _ in page.SECTIONS for name in charts]
    pictures = [out / FIGURES / f"{name}.{kind}" for name in names for kind in FORMATS]
    pictures += [path for kind in FORMATS for path in (out / FIGURES).glob(f"{METRIC}*.{kind}")]
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
