"""What is left to do of a sweep: its runs, and those that earlier starts of it began.  Reads its folder only."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from launch.core import runs
from launch.core.run import Run
from launch.core.runs import RUN
from launch.sweep.planned import SIZES, Planned
from launch.sweep.price import Price
from launch.sweep.runner import Context
from trainer.errors import SettingsError


def earlier(planned: Sequence[Planned], out: Path, *, retry_failed: bool) -> dict[str, Run]:
    """The runs that an earlier start of the sweep began, by name.

    Raises SettingsError for one of other settings.
    retry_failed: other settings may be the remedy for a run that failed before its first epoch.
    """
    known = {run.name: runs.read(out / run.name) for run in planned if (out / run.name / RUN).exists()}
    for run in planned:
        before = known.get(run.name)
        if before is None or (retry_failed and before.state == "failed" and not before.epochs):
            continue
        _refuse_changes(run, before, out)
    return known


def _refuse_changes(run: Planned, before: Run, out: Path) -> None:
    if changes := _changes(run, before):
        raise SettingsError(
            f"{out / run.name} has a run with other settings ({changes}); give another --out, or remove it."
        )


def _changes(run: Planned, before: Run) -> str:
    """Which settings differ, in words; empty where none does.

    Of the options those count that change what is measured, and not, say, a time limit.
    """
    counted = {*SIZES, *run.point}
    now = {"backend": run.backend.name, **_only(run.shown_options, counted), **run.settings}
    then = {"backend": before.backend, **_only(before.options, counted), **before.settings}
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return ", ".join(f"{name} was {then.get(name)}, now {now.get(name)}" for name in names[:3])


def _only(values: Mapping[str, object], names: set[str]) -> dict[str, object]:
    return {name: value for name, value in values.items() if name in names}


def left(planned: Sequence[Planned], before: Mapping[str, Run], *, retry_failed: bool) -> list[Planned]:
    """The runs to do: not those that are done, and those that failed only if they are to be tried again."""
    finished = ("done",) if retry_failed else ("done", "failed")
    return [run for run in planned if run.name not in before or before[run.name].state not in finished]


@dataclass(frozen=True)
class Work:
    """runs: of the whole sweep; todo: those to do now, in order; prices: of those; before: runs begun earlier.

    others: earlier runs that the sweep's file does not name any more, or not now.
    """

    runs: Sequence[Planned]
    todo: Sequence[Planned]
    prices: Mapping[str, Price]
    before: Mapping[str, Run]
    others: Sequence[Run] = ()


def others(planned: Sequence[Planned], out: Path) -> list[Run]:
    """The runs in `out` that are not planned, such as those of a grid that was larger; unreadable ones left out."""
    names = {run.name for run in planned}
    found = []
    for mark in sorted(out.glob(f"*/{RUN}")):
        with suppress(SettingsError):
            if mark.parent.name not in names:
                found.append(runs.read(mark.parent))
    return found


def rows(work: Work, known: Mapping[str, Run], context: Context) -> list[Run]:
    """Every run as it is, begun or not, and those of the folder that the sweep's file has no more."""
    return [*(_row(run, known, context) for run in work.runs), *work.others]


def _row(run: Planned, known: Mapping[str, Run], context: Context) -> Run:
    if run.name in known:
        return replace(known[run.name], folder=context.folder(run))
    return Run(
        run.name, context.folder(run), run.settings, (), run.backend.name, run.shown_options, run.point, "planned"
    )
