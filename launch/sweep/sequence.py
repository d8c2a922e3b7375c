"""A sweep, run after run: what is left to do, and when it makes no sense to go on."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from launch.core import runs
from launch.core.errors import Ended
from launch.core.runs import RUN, Run
from launch.sweep import table
from launch.sweep.one import Stage, perform
from launch.sweep.planned import SIZES, Planned
from launch.sweep.price import Price
from trainer.contract import Exit
from trainer.errors import Interrupted, SettingsError

# What another run may meet as well: settings, data, AWS.
SHARED = (Exit.SETTINGS, Exit.DATA, Exit.AWS)


def earlier(planned: Sequence[Planned], out: Path, *, retry_failed: bool) -> dict[str, Run]:
    """The runs that an earlier start of the sweep began, by name.  Raises SettingsError for one of other settings.

    retry_failed: one that failed before its first epoch may have been mended by other settings.
    """
    found = {run.name: runs.read(out / run.name) for run in planned if (out / run.name / RUN).exists()}
    for run in planned:
        before = found.get(run.name)
        if before is None or (retry_failed and before.state == "failed" and not before.epochs):
            continue
        if changed := _changed(run, before):
            raise SettingsError(
                f"{out / run.name} has a run with other settings ({changed}); give another --out, or remove it."
            )
    return found


def _changed(run: Planned, before: Run) -> str:
    """Which settings differ, in words; empty where none does.  Of the options those count that change what is measured,
    and not, say, a time limit.
    """
    counted = {*SIZES, *run.point}
    options, past = ({k: v for k, v in all_.items() if k in counted} for all_ in (run.shown_options, before.options))
    now = {"backend": run.backend, **options, **run.settings}
    then = {"backend": before.backend, **past, **before.settings}
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return ", ".join(f"{name} was {then.get(name)}, now {now.get(name)}" for name in names[:3])


def left(planned: Sequence[Planned], before: Mapping[str, Run], *, retry_failed: bool) -> list[Planned]:
    """What is still to run: not what is done, and what failed only if it is to be tried again."""
    resolved = ("done",) if retry_failed else ("done", "failed")
    return [run for run in planned if run.name not in before or before[run.name].state not in resolved]


def sweep(
    planned: Sequence[Planned], todo: Sequence[Planned], prices: Mapping[str, Price], before: Mapping[str, Run],
    stage: Stage,
) -> list[Run]:  # fmt: skip
    """Runs what is to do, in order, and keeps the table of all; every run as it is then.

    Raises Interrupted or Ended when it is stopped, and Ended when the next runs would fail alike.  A run that its own
    time limit or somebody else ends is a row, and the next begins.
    """
    known, number = dict(before), 0
    table.write_csv([_row(run, known, stage) for run in planned], stage.out)
    started: list[Run] = []
    for number, run in enumerate(todo, 1):
        stage.say(f"{number}/{len(todo)}  {run.name}: {table.log_hint(stage.folder(run))}")
        ended, asked_by = perform(run, prices[run.name], before.get(run.name), stage)
        known[run.name] = ended
        started.append(ended)
        table.write_csv([_row(run, known, stage) for run in planned], stage.out)
        stage.say(f"     {table.outcome(ended)}")
        _stop_if_stopped(ended, asked_by, len(todo) - number)
        if number < len(todo) and (why := hopeless(started)):
            raise Ended(f"{why}: {ended.reason} Not begun: {len(todo) - number}. After mending it, give the same "
                        "command with --retry-failed.", ended.exit_code or Exit.BUG)  # fmt: skip
    return [_row(run, known, stage) for run in planned]


def hopeless(started: Sequence[Run]) -> str:
    """Why the next runs would fail as well; empty if they may not.  started: in this sweep, in order."""
    last = started[-1]
    if last.state != "failed":
        return ""
    if last.exit_code == Exit.DISK:
        return "the disk is full"
    if last.exit_code == Exit.AWS and len(started) == 1:
        return "AWS refused the first run, and would the others"
    two = started[-2:]
    if len(two) == 2 and two[0].state == "failed" and two[0].reason == last.reason and last.exit_code in SHARED:
        return "two runs failed alike, so the others would"
    return ""


def _stop_if_stopped(ended: Run, asked_by: int | None, more: int) -> None:
    """Raises if somebody asked to stop, also where the run was done by then."""
    if asked_by is None or (ended.state == "done" and not more):
        return
    done = ended.state == "done"
    where, what = ("after", "") if done else ("in", " with it")
    sentence = f"stopped {where} run {ended.name}; the same command goes on{what}."
    raise Interrupted(sentence) if asked_by == signal.SIGTERM else Ended(sentence, 130)


def _row(run: Planned, known: Mapping[str, Run], stage: Stage) -> Run:
    """The run as it is, begun or not."""
    if run.name in known:
        return replace(known[run.name], folder=stage.folder(run))
    return Run(run.name, stage.folder(run), run.settings, (), run.backend, run.shown_options, run.point, "planned")
