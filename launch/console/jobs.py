"""All jobs as rows, and one job with all that is known of it.  Everything is asked of the backends' own functions."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from launch.aws.progress import in_words, newest_of
from launch.console.world import HERE, Place, World
from launch.core import runs
from launch.core.drawing import timeline as drawing
from launch.core.jobs import Phase, State, Summary
from launch.core.metrics import values_of
from launch.core.runs import RUN, Run
from trainer.contract import METRICS, OUTCOME, PACE, SETTINGS
from trainer.errors import SettingsError, TrainerError
from trainer.settings.hidden import HIDDEN, is_secret

HOLDS_S, PROGRESS_HOLDS_S = 5.0, 60.0
ACTIVE = ("waiting", "running", "stopping")
MOST_ASKED = 20  # running jobs whose progress is on the page of all jobs; each takes a dozen requests a minute
MOST_RECORDS = 50  # in the table of a job's figures
KEPT_RUNS = 5000
OLDEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Row:
    """One job in the list.  Times are in UTC."""

    on: str  # the backend's name, or HERE
    name: str
    status: str
    backend: str  # where it trains, as a word for a reader
    region: str | None = None
    nodes: int = 0
    started: datetime | None = None
    ended: datetime | None = None
    deadline: datetime | None = None
    usd_per_hour: float | None = None
    usd: float | None = None
    usd_at_most: float | None = None  # if it runs on until its time limit
    progress: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Listing:
    """The rows, newest first."""

    jobs: Sequence[Row]
    left_out: Sequence[str]  # a sentence for each place that could not be asked
    usd_per_hour: float  # of all of them, now
    is_awaited: bool = False  # some of it


def listing(world: World) -> Listing:
    """All jobs of all backends and of this machine."""
    away, left_out, is_awaited = world.everywhere("status", partial(_asked, world), HOLDS_S)
    known = {row.name for row in away}  # what was fetched of them is the same job
    here = [row for row in _runs_here(world) if row.name not in known]
    newest_first = sorted((*away, *here), key=lambda row: row.started or OLDEST, reverse=True)
    rows, all_known = _with_progress(world, newest_first)
    usd_per_hour = math.fsum(row.usd_per_hour or 0.0 for row in away)
    return Listing(rows, left_out, usd_per_hour, is_awaited or not all_known)


def listing_here(world: World) -> Listing:
    """The runs of this machine only, which are there at once."""
    return Listing(_runs_here(world), (), 0.0)


def _asked(world: World, place: Place) -> tuple[list[Row], str]:
    can_list_ended = "ended" in place.client.launcher.verbs["status"].options.model_fields
    jobs, options = place.asked("status", **({"ended": True} if can_list_ended else {}))
    found = [job for overview in jobs.overview(options) for job in overview.jobs]
    return [row_of(place.client.name, job, world.now()) for job in found], ""


def row_of(on: str, job: Summary, now: datetime) -> Row:
    """A job as `status --json` has it, in whole cents, so that a page is not asked for again for less."""
    return Row(
        on, job.job, job.status, on, job.region, job.nodes, job.started, job.ended, job.deadline, job.usd_per_hour,
        _cents(job.usd), _cents(_at_most(job, now)), "", job.reason,
    )  # fmt: skip


def _cents(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 2)


def _at_most(job: Summary, now: datetime) -> float | None:
    """What it costs if it runs until its time limit, unless that has passed; once it has ended, what it has cost."""
    if job.status not in ACTIVE:
        return job.usd
    if job.usd is None or job.usd_per_hour is None or job.deadline is None or job.deadline <= now:
        return None
    return job.usd + job.usd_per_hour * ((job.deadline - now) / timedelta(hours=1))


def _with_progress(world: World, rows: Sequence[Row]) -> tuple[list[Row], bool]:
    """The rows, the newest that run with their progress, and whether all of that is known."""
    running = [row for row in rows if row.on != HERE and row.status == "running"][:MOST_ASKED]
    asks = {_key(row): partial(_progress, world, row) for row in running}
    found = world.cache.soon(asks, PROGRESS_HOLDS_S)
    shown = [replace(row, progress=found[_key(row)]) if _key(row) in found else row for row in rows]
    return shown, len(found) == len(asks)


def _key(row: Row) -> Hashable:
    return "progress", row.on, row.region, row.name


def _progress(world: World, row: Row) -> str:
    try:
        state = _state(world.place(row.on, row.region), row.name)
    except TrainerError:
        return ""  # its own page has the reason
    facts = dict(state.facts) if isinstance(state, State) else {}
    return facts.get("progress") or facts.get("training") or ""


def _state(place: Place, name: str) -> Any:
    jobs, options = place.asked("status", job=name)
    return jobs.state(options)


# ---- runs of this machine


def _runs_here(world: World) -> list[Row]:
    return world.cache.get("here", lambda: [_row_here(name, run) for name, run in runs_here(world).items()], HOLDS_S)


def runs_here(world: World) -> dict[str, Run]:
    """The runs in the folder of runs by their path in it; one that cannot be read is left out."""
    if not world.runs.is_dir():
        return {}
    found = {}
    for folder in runs.folders([world.runs], may_be_empty=True):
        if run := _run_in(folder):
            found[folder.relative_to(world.runs).as_posix()] = run
    return found


def _run_in(folder: Path) -> Run | None:
    return _read(folder, tuple(_changed(folder / name) for name in (RUN, METRICS, OUTCOME, SETTINGS)))


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(KEPT_RUNS)
def _read(folder: Path, stamps: tuple[int, ...]) -> Run | None:
    """The run; read again only once one of its files has changed."""
    try:
        return runs.read(folder)
    except SettingsError:
        return None


def _row_here(name: str, run: Run) -> Row:
    rehearsed = run.rehearsed or (run.folder / "receipt.html").is_file()
    backend = f"{run.backend}, rehearsed" if rehearsed else run.backend
    started = _time(run.started)
    ended = started + timedelta(seconds=run.seconds) if started and run.seconds is not None else None
    return Row(
        HERE, name, run.state, backend, nodes=int(run.options.get("nodes") or 0), started=started, ended=ended,
        usd=run.usd, usd_at_most=run.usd, progress=_trained(run), reason=run.reason,
    )  # fmt: skip


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _trained(run: Run) -> str:
    record = newest_of(run.epochs)
    return in_words(record, str(run.settings.get("epochs", "?"))) if record else ""


# ---- one job


@dataclass(frozen=True)
class Job:
    """One job with all that its backend says of it."""

    row: Row
    headline: str
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[str] = ()  # of text, as the terminal shows them
    notes: Sequence[str] = ()
    commands: Mapping[str, str] = field(default_factory=dict)  # what this page can do -> the command that does the same
    receipt: bool = False  # it was rehearsed, and the receipt is here
    phases: Sequence[Phase] = ()


def job(world: World, on: str, name: str, region: str | None) -> Job:
    """One job.  Raises TrainerError."""
    if on == HERE:
        return _job_here(name, run_here(world, name))
    place = world.place(on, region)
    state = world.cache.get(("job", str(place), name), partial(_state, place, name), HOLDS_S)
    commands = {verb: place.command(verb, name) for verb in ("stop", "attach")}
    if not isinstance(state, State):  # several that were submitted as one
        return Job(Row(on, name, "running", on, region), str(state), commands=commands)
    row = row_of(on, state.summary, world.now())
    commands = commands if row.status in ACTIVE else {}
    return Job(row, state.headline, state.facts, state.tables, state.notes, commands, phases=state.phases)


def run_here(world: World, name: str) -> Run:
    """The run of that name in the folder of runs.  Raises SettingsError."""
    found = runs_here(world).get(name)
    if found is None:
        raise SettingsError(f"there is no run {name!r} in {world.runs}.")
    return found


def _job_here(name: str, run: Run) -> Job:
    row = _row_here(name, run)
    told = [("training", row.progress), ("reason", run.reason), ("folder", str(run.folder))]
    facts = tuple((word, text) for word, text in told if text)
    return Job(row, f"{name}: {run.state}", facts, receipt=(run.folder / "receipt.html").is_file())


# ---- its records and settings


def run_of(world: World, on: str, name: str, region: str | None) -> Run | None:
    """The job's run folder with its records and settings, fetched into the folder of runs; None if it has none yet."""
    if on == HERE:
        return run_here(world, name)
    place = world.place(on, region)

    def fetch() -> Path:
        jobs, options = place.asked("fetch", job=name)
        folder: Path = jobs.fetch(options, _records).folder
        return folder

    folder = world.cache.get(("records", str(place), name), fetch, HOLDS_S)
    return _run_in(folder)


def _records(sizes: Mapping[str, int]) -> Sequence[str]:
    """Of a job's files those that the page shows."""
    return [name for name in sizes if name in (METRICS, SETTINGS, PACE)]


def records(run: Run | None) -> list[dict[str, float]]:
    """The numbers of the run's newest records, the newest first."""
    return [values_of(record) for record in (run.epochs if run else ())[: -MOST_RECORDS - 1 : -1]]


def settings(run: Run | None) -> dict[str, str]:
    """The trainer's settings, and the backend's, without what looks like a secret."""
    found = {**run.settings, **run.options} if run else {}
    return {str(name): HIDDEN if is_secret(str(name), str(value)) else str(value) for name, value in found.items()}


def timeline(phases: Sequence[Phase], now: datetime) -> dict[str, Any]:
    """The values of timeline.html.j2: the phases until now, in s since the first began."""
    moments = [(one.name, one.began - phases[0].began, (one.ended or now) - phases[0].began) for one in phases]
    spans = [(name, began.total_seconds(), ended.total_seconds()) for name, began, ended in moments]
    total = max((ended for _, _, ended in spans), default=0.0)
    goes_on = bool(phases) and phases[-1].ended is None
    return {"bars": drawing.bars(spans, total), "ticks": drawing.ticks(total), "goes_on": goes_on}
