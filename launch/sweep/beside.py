"""Runs a sweep, several runs at a time: each in a thread that waits for its launcher."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Thread

from launch.core import shell
from launch.core.run import Run
from launch.sweep import table
from launch.sweep.planned import Planned
from launch.sweep.runner import Context, perform
from launch.sweep.sequence import Work, given_up, rows, stopped, why_give_up
from launch.sweep.slots import Slot

# Signals are handled in this thread, which must not sleep through them.
AWAKE_S = 0.5

# Why the runs that are left are not begun, and the last that ended by then.
GaveUp = tuple[str, Run]


@dataclass(frozen=True)
class Result:
    """What became of a run: itself, or the error that kept it from being performed."""

    planned: Planned
    slot: Slot
    run: Run | None = None
    error: BaseException | None = None


def sweep_beside(work: Work, context: Context, places: Sequence[Slot]) -> list[Run]:
    """As sequence.sweep(), with as many runs at a time as there are slots.  Call it from the main thread."""
    table.write_csv(rows(work, work.before, context), context.out)
    error: BaseException | None = None
    with _commands(context) as (commands, own):
        at_work = _AtWork(work, own, places)
        while True:
            while commands.asked_by is None and at_work.may_begin:
                at_work.begin()
            if at_work.is_idle:
                break
            at_work.show()
            if (result := at_work.next()) is None:
                continue
            failed = result.error or at_work.noted(result)
            if failed and error is None:
                error = failed
                commands.stop()  # what runs beside it saves, and removes its machines
    if error:
        raise error
    at_work.conclude(commands.asked_by)
    return rows(work, at_work.known, context)


class _AtWork:
    """The runs of a sweep that wait, those at work, each in a thread and a slot of its own, and those that ended."""

    def __init__(self, work: Work, context: Context, places: Sequence[Slot]) -> None:
        self.known = dict(work.before)
        self._work, self._context, self._places = work, context, places
        self._todo, self._free = deque(work.todo), deque(places)
        self._results, self._ended = SimpleQueue[Result](), list[Run]()
        self._gave_up: GaveUp | None = None

    @property
    def may_begin(self) -> bool:
        return bool(self._todo and self._free and not self._hopeless)

    @property
    def is_idle(self) -> bool:
        return len(self._free) == len(self._places)

    @property
    def _hopeless(self) -> GaveUp | None:
        """Whether those that wait would fail as well.  What Slurm was told to end does not begin again."""
        why = why_give_up(self._ended) if self._ended else ""
        return self._gave_up or ((why, self._ended[-1]) if why else None)

    def begin(self) -> None:
        run, slot, own = self._todo.popleft(), self._free.popleft(), self._context
        number = len(self._work.todo) - len(self._todo)
        own.say(f"{number}/{len(self._work.todo)}  {run.name}: {table.log_hint(own.folder(run))}")
        words = (run, slot, self._work, own, self._results)
        Thread(target=_perform, args=words, name=run.name, daemon=True).start()

    def show(self) -> None:
        busy = len(self._places) - len(self._free)
        self._context.show(f"{len(self._ended)} of {len(self._work.todo)} done, {busy} at work")

    def next(self) -> Result | None:
        """The next that ends; None if none does for a while."""
        try:
            result = self._results.get(timeout=AWAKE_S)
        except Empty:
            return None
        self._free.append(result.slot)
        return result

    def noted(self, result: Result) -> Exception | None:
        """Notes a result, and gives the error that prevented it, such as a full disk; None where none did."""
        assert result.run is not None
        try:
            self._note(result.run)
        except Exception as error:
            return error
        return None

    def _note(self, run: Run) -> None:
        own = self._context
        self.known[run.name] = run
        self._ended.append(run)
        table.write_csv(rows(self._work, self.known, own), own.out)
        own.say(f"     {run.name}: {table.outcome(run)}")
        if self._todo and own.together and not self._gave_up and (gave_up := self._hopeless):
            self._gave_up = gave_up
            own.end_together(self._todo[0])  # they would begin without us

    def conclude(self, asked_by: int | None) -> None:
        """Raises if somebody asked to stop, and where the runs that are left would fail as well."""
        unfinished = [run.name for run in self._ended if run.state == "interrupted"]
        if asked_by is not None and (self._todo or unfinished):
            raise stopped(f"in {', '.join(unfinished)}" if unfinished else "between runs", asked_by)
        if self._todo and (gave_up := self._hopeless):
            raise given_up(*gave_up, len(self._todo))


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
