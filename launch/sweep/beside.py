"""Runs a sweep, several runs at a time: each in a thread that waits for its launcher."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Thread

from launch.core import shell
from launch.core.runs import Run
from launch.sweep import table
from launch.sweep.planned import Planned
from launch.sweep.runner import Context, perform
from launch.sweep.sequence import Work, given_up, rows, stopped, why_give_up
from launch.sweep.slots import Slot

# Signals are handled in this thread, which must not sleep through them.
AWAKE_S = 0.5


@dataclass(frozen=True)
class Result:
    """What became of a run: itself, or the error that kept it from being performed."""

    planned: Planned
    slot: Slot
    run: Run | None = None
    error: BaseException | None = None


def sweep_beside(work: Work, context: Context, places: Sequence[Slot]) -> list[Run]:
    """As sequence.sweep(), with as many runs at a time as there are slots.  Call it from the main thread."""
    known, ended, begun = dict(work.before), list[Run](), list[str]()
    todo, free, results = deque(work.todo), deque(places), SimpleQueue[Result]()
    table.write_csv(rows(work, known, context), context.out)
    with _commands(context) as (commands, own):
        while True:
            while todo and free and commands.asked_by is None and not _hopeless(ended):
                run, slot = todo.popleft(), free.popleft()
                begun.append(run.name)
                own.say(f"{len(begun)}/{len(work.todo)}  {run.name}: {table.log_hint(own.folder(run))}")
                Thread(target=_perform, args=(run, slot, work, own, results), name=run.name, daemon=True).start()
            if len(free) == len(places):
                break
            own.show(f"{len(ended)} of {len(work.todo)} done, {len(places) - len(free)} at work")
            if (result := _next(results)) is None:
                continue
            free.append(result.slot)
            if result.error:
                commands.stop()  # what runs beside it saves, and can be resumed
                raise result.error
            assert result.run
            known[result.run.name] = result.run
            ended.append(result.run)
            table.write_csv(rows(work, known, context), context.out)
            own.say(f"     {result.run.name}: {table.outcome(result.run)}")
    _conclude(ended, commands.asked_by, len(todo))
    return rows(work, known, context)


@contextmanager
def _commands(context: Context) -> Iterator[tuple[shell.Together, Context]]:
    with shell.together() as commands:
        yield commands, replace(context, run=commands.run)


def _perform(run: Planned, slot: Slot, work: Work, context: Context, results: "SimpleQueue[Result]") -> None:
    """In a thread of its own, which with all that it starts stays on the slot's cores."""
    try:
        slot.pin()
        own = replace(context, env=slot.env(context.env))
        ended, _ = perform(run, work.prices[run.name], work.before.get(run.name), own, lambda record: None)
        results.put(Result(run, slot, run=ended))
    except BaseException as error:  # the main thread raises it
        results.put(Result(run, slot, error=error))


def _next(results: "SimpleQueue[Result]") -> Result | None:
    try:
        return results.get(timeout=AWAKE_S)
    except Empty:
        return None


def _hopeless(ended: Sequence[Run]) -> str:
    return why_give_up(ended) if ended else ""


def _conclude(ended: Sequence[Run], asked_by: int | None, left: int) -> None:
    """Raises if somebody asked to stop, and where the runs that are left would fail as well."""
    unfinished = [run.name for run in ended if run.state == "interrupted"]
    if asked_by is not None and (left or unfinished):
        raise stopped(f"in {', '.join(unfinished)}" if unfinished else "between runs", asked_by)
    if left and (why := _hopeless(ended)):
        raise given_up(why, ended[-1], left)
