"""Runs a sweep, one run after the other: what is left to do, and when to give up."""

import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from launch.core import runs
from launch.core.clock import duration
from launch.core.errors import Ended
from launch.core.metrics import in_words, newest
from launch.core.run import Run
from launch.core.runs import RUN
from launch.sweep import table
from launch.sweep.output import Record
from launch.sweep.planned import SIZES, Planned
from launch.sweep.price import Price
from launch.sweep.progress import left_s
from launch.sweep.runner import Context, perform
from trainer.contract import STOPPED, Exit
from trainer.errors import Interrupted, SettingsError
from trainer.process.own_folder import refuse_anothers_link

# Failures that the next runs may share: settings, data, AWS.
SHARED = (Exit.SETTINGS, Exit.DATA, Exit.AWS)


def earlier(planned: Sequence[Planned], out: Path, *, retry_failed: bool) -> dict[str, Run]:
    """The runs that an earlier start of the sweep began, by name.

    Raises SettingsError for one of other settings, and for a link of another user's where a run would be written.
    retry_failed: other settings may be the remedy for a run that failed before its first epoch.
    """
    known = {run.name: runs.read(out / run.name) for run in planned if (out / run.name / RUN).exists()}
    for run in planned:
        before = known.get(run.name)
        if before is None or before.state != "done":
            refuse_anothers_link(out / run.name, "remove the link, or give another --out")
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


def sweep(work: Work, context: Context) -> list[Run]:
    """Carries the runs out in order and keeps the table up to date; returns the state of every run.

    Raises Interrupted or Ended when it is stopped, and Ended when the next runs would fail alike.  A run that its own
    time limit or somebody else ends is a row, and the next begins.
    """
    known, ended = dict(work.before), list[Run]()
    table.write_csv(rows(work, known, context), context.out)
    for number, run in enumerate(work.todo, 1):
        context.say(f"{number}/{len(work.todo)}  {run.name}: {table.log_hint(context.folder(run))}")
        watch = _watch(work, ended, run, context)
        result, asked_by = perform(run, work.prices[run.name], work.before.get(run.name), context, watch)
        known[run.name] = result
        ended.append(result)
        table.write_csv(rows(work, known, context), context.out)
        to_begin = work.todo[number:]
        context.say(f"     {table.outcome(result)}{_time_left(work, ended) if to_begin else ''}")
        _stop_if_asked(result, asked_by, len(to_begin))
        if to_begin and (why := why_give_up(ended)):
            raise given_up(why, result, len(to_begin))
    return rows(work, known, context)


def _watch(work: Work, ended: Sequence[Run], run: Planned, context: Context) -> Callable[[Record], None]:
    """Shows how far the run at work and the whole sweep are, at its start and after each epoch."""
    place = f"{len(ended) + 1}/{len(work.todo)}  {run.name}"
    started = context.clock.now()
    context.show(f"{place}{_time_left(work, ended)}")
    finished = list(ended)

    def show(record: Record) -> None:
        share, how_far = _share(record, run.train.epochs)
        left = _time_left(work, finished, run.name, context.clock.now() - started, share)
        context.show(f"{place}, {how_far}{left}")

    return show


def _share(record: Record, epochs: int | None) -> tuple[float, str]:
    """How much of its training is done, 0 where nothing says it, and in words: of a script its metrics.

    epochs: of the whole training, None where only the script knows.
    """
    epoch = record.get("epoch")
    if epochs is None or epoch is None:
        return 0.0, in_words(newest([record]))
    return epoch / epochs, f"epoch {epoch}/{epochs}"


def _time_left(work: Work, ended: Sequence[Run], current: str = "", elapsed_s: float = 0.0, share: float = 0.0) -> str:
    """'; about 4 min left for all runs', empty where nothing says how long they take.  ended: of the runs to do."""
    begun = {current, *(run.name for run in ended)}
    to_begin = [run.name for run in work.todo if run.name not in begun]
    expected_s = {name: price.expected_s for name, price in work.prices.items()}
    took_s = [run.seconds for run in ended if run.state == "done" and run.seconds is not None]
    seconds = left_s(expected_s, to_begin, took_s, current, elapsed_s, share)
    return "" if seconds is None else f"; about {duration(timedelta(seconds=seconds))} left for all runs"


def why_give_up(ended: Sequence[Run]) -> str:
    """Why the next runs would fail as well; empty if they may not.  ended: in this sweep, in order."""
    last = ended[-1]
    if last.state != "failed":
        return ""
    if last.exit_code == Exit.DISK:
        return "the disk is full"
    if last.exit_code == Exit.AWS and len(ended) == 1:
        return "AWS refused the first run and would refuse the others"
    return _why_both_failed(*ended[-2:]) if len(ended) > 1 and last.exit_code in SHARED else ""


def _why_both_failed(before: Run, last: Run) -> str:
    if before.state == "failed" and before.reason == last.reason:
        return "two runs in a row failed alike, and so would the others"
    if before.state == "interrupted" and before.exit_code == last.exit_code == Exit.AWS:  # its job goes on
        return "AWS was lost in one run and refuses the next, as it would the others"
    return ""


def given_up(why: str, last: Run, left: int) -> Ended:
    """The error to raise where the `left` runs would fail as the last did."""
    begun = "1 run was" if left == 1 else f"{left} runs were"
    return Ended(f"{why}: {last.reason} {begun} not started. Fix the cause and run the same command with "
                 "--retry-failed.", last.exit_code or Exit.BUG)  # fmt: skip


def _stop_if_asked(run: Run, asked_by: int | None, more: int) -> None:
    """Raises if somebody asked to stop, also where the run was done by then."""
    done = run.state == "done"
    if asked_by is None or (done and not more):
        return
    raise stopped(f"{'after' if done else 'in'} run {run.name}", asked_by)


def stopped(where: str, asked_by: int) -> Exception:
    """The error to raise where a signal asked the sweep to stop."""
    sentence = f"stopped {where}; the same command resumes the sweep."
    return Interrupted(sentence) if asked_by == signal.SIGTERM else Ended(sentence, STOPPED)


def rows(work: Work, known: Mapping[str, Run], context: Context) -> list[Run]:
    """Every run as it is, begun or not, and those of the folder that the sweep's file has no more."""
    return [*(_row(run, known, context) for run in work.runs), *work.others]


def _row(run: Planned, known: Mapping[str, Run], context: Context) -> Run:
    if run.name in known:
        return replace(known[run.name], folder=context.folder(run))
    return Run(
        run.name, context.folder(run), run.settings, (), run.backend.name, run.shown_options, run.point, "planned"
    )
