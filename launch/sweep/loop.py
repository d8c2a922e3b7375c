"""Run a sweep: one run at a time in each slot, with a thread that follows its launcher.

All backends use this loop.  On this machine a slot is a share of the cores and GPUs; elsewhere slots only limit the
number of runs, and a job that outlives its launcher is resumed by launching it again.  For Slurm, all jobs are
submitted beforehand as arrays, and the launchers attach to them.
"""

import json
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import takewhile
from statistics import median
from typing import Any

from launch.core import shell
from launch.core.clock import duration
from launch.core.errors import Ended
from launch.core.job import Batch, Job, Member, Submit
from launch.core.metrics import Record, in_words, newest
from launch.core.runs import Run
from launch.core.shell import this_python
from launch.sweep import table
from launch.sweep.end import about
from launch.sweep.folder import Work, job_name
from launch.sweep.planned import Planned
from launch.sweep.price import error_of
from launch.sweep.runner import Context, perform
from trainer.contract import STOPPED, Exit
from trainer.errors import Interrupted, MachineError, SettingsError, import_function

# The main thread handles signals and must wake up often: two Ctrl-C within one wait would count as one.
AWAKE_S = 0.05
# Exit codes of failures that the next runs may share: settings, data, AWS.
SHARED = (Exit.SETTINGS, Exit.DATA, Exit.AWS)
# Not the name of a run, which has no leading dot.
ARRAY = ".array"
ENDED = ("done", "failed", "interrupted")
GOING_ON = ("waiting", "running", "stopping")  # states of a job: launch.core.jobs


@dataclass(frozen=True)
class Slot:
    """A share of this machine."""

    cores: tuple[int, ...]  # core numbers
    gpus: tuple[str, ...] = ()  # entries of CUDA_VISIBLE_DEVICES

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        """`env` with this slot's GPUs only."""
        return {**env, "CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else dict(env)

    def pin(self) -> None:
        """Bind this thread and processes that it starts to the slot's cores, if the system supports it."""
        if self.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.cores)


def machine(env: Mapping[str, str]) -> Slot:
    """All cores and GPUs that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = os.sched_getaffinity(0) if has_affinity else range(os.cpu_count() or 1)
    return Slot(tuple(sorted(cores)), _gpus(env))


def _gpus(env: Mapping[str, str]) -> tuple[str, ...]:
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        # CUDA ignores everything from the first invalid entry on; -1 is a common way to hide all.
        return tuple(takewhile(lambda word: word and word != "-1", visible.split(",")))
    try:
        listed = shell.output_of(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], env=env)
    except (FileNotFoundError, MachineError):
        return ()
    return tuple(listed.split())


def slots(whole: Slot, count: int, runs: Sequence[Planned]) -> list[Slot]:
    """Divide the machine into `count` equal slots.  Raises SettingsError if a run needs more than one."""
    cores, gpus = len(whole.cores) // count, len(whole.gpus) // count
    if not cores:
        raise SettingsError(f"--parallel {count}: this machine has {len(whole.cores)} cores; give at most that many.")
    for run in runs:
        ranks, on_cpu = run.replicas or 1, run.train.device == "cpu" or not whole.gpus
        has, unit = (cores, "core") if on_cpu else (gpus, "GPU")
        if ranks > has:
            raise SettingsError(
                f"--parallel {count} leaves {has} {unit}{'s' * (has != 1)} for each run, and {run.name} trains on "
                f"{ranks}; give a smaller --parallel."
            )
    return [Slot(whole.cores[n * cores : (n + 1) * cores], whole.gpus[n * gpus : (n + 1) * gpus]) for n in range(count)]


ONE_AT_A_TIME = (Slot(()),)


def sweep(work: Work, context: Context, places: Sequence[Slot] = ONE_AT_A_TIME) -> list[Run]:
    """Perform the runs, one in each slot at a time, and update the table; return the state of all runs.

    Call it from the main thread.  Raises Interrupted or Ended when it is stopped, and Ended if the next runs would fail
    for the same reason.  After a run that ended otherwise, such as by its time limit, the next one starts.
    """
    table.write_csv(rows(work, work.before, context), context.out)
    error: BaseException | None = None
    with shell.parallel() as commands, ThreadPoolExecutor(len(places)) as threads:
        batch = _Batch(work, replace(context, run=commands.run), places, threads)
        while True:
            try:
                while commands.asked_by is None and batch.may_submit:
                    batch.submit()
                if batch.is_idle:
                    break
                for ended in batch.ended():
                    batch.collect(ended)
            except BaseException as failed:
                if error is None:
                    error = failed
                    commands.stop()  # the other runs save, and remove their machines
    if error:
        raise error
    batch.conclude(commands.asked_by)
    return rows(work, batch.known, context)


# A run as it ended, and the signal that stopped it, if any; or the error that prevented it.
Ending = Future[tuple[Run, int | None]]


class _Batch:
    """The runs of a sweep: waiting, running in a thread and a slot each, or ended."""

    def __init__(self, work: Work, context: Context, places: Sequence[Slot], threads: ThreadPoolExecutor) -> None:
        self.known = dict(work.before)
        self._work, self._context, self._places = work, context, places
        self._todo, self._free = deque(work.todo), deque(places)
        self._threads, self._at_work, self._ended = threads, dict[Ending, Slot](), list[Run]()
        self._unfinished = list[str]()  # names of runs that a signal stopped
        self._gave_up: Ended | None = None  # once set it stays, as a backend's ended batch cannot be restarted

    @property
    def may_submit(self) -> bool:
        return bool(self._todo and self._free and not self._hopeless)

    @property
    def _hopeless(self) -> Ended | None:
        """The error to raise if waiting runs would fail like the last one."""
        why = "" if self._context.collects else why_give_up(self._ended)
        going_on = self._context.going_on(self._todo)
        return self._gave_up or (given_up(why, self._ended[-1], len(self._todo), going_on) if why else None)

    @property
    def is_idle(self) -> bool:
        return not self._at_work

    @property
    def _one_at_a_time(self) -> bool:
        return len(self._places) == 1

    def submit(self) -> None:
        """Start the launcher of the next run, in a thread that follows it."""
        run, slot, context = self._todo.popleft(), self._free.popleft(), self._context
        number = len(self._work.todo) - len(self._todo)
        context.say(f"{number}/{len(self._work.todo)}  {run.name}: {table.log_hint(context.folder(run))}")
        on_record = self._progress_of(run) if self._one_at_a_time else lambda record: None
        self._show_counts()
        self._at_work[self._threads.submit(self._perform, run, slot, on_record)] = slot

    def _show_counts(self) -> None:
        if not self._one_at_a_time:
            busy = len(self._places) - len(self._free)
            self._context.show(f"{len(self._ended)} of {len(self._work.todo)} done, {busy} at work")

    def _perform(self, run: Planned, slot: Slot, on_record: Callable[[Record], None]) -> tuple[Run, int | None]:
        """Perform a run in this thread, which with its child processes is bound to the slot's cores."""
        slot.pin()
        own = replace(self._context, env=slot.env(self._context.env))
        return perform(run, self._work.prices[run.name], self._work.before.get(run.name), own, on_record)

    def ended(self) -> Iterator[Ending]:
        """Wait briefly, and return the runs that have ended."""
        done, _ = wait(self._at_work, AWAKE_S, FIRST_COMPLETED)
        for ending in done:
            self._free.append(self._at_work.pop(ending))
            yield ending

    def collect(self, ending: Ending) -> None:
        """Add an ended run to the table.  Raises the error that prevented it, and OSError on a full disk."""
        run, asked_by = ending.result()
        context = self._context
        self.known[run.name] = run
        self._ended.append(run)
        if asked_by is not None and run.state != "done":
            self._unfinished.append(run.name)
        table.write_csv(rows(self._work, self.known, context), context.out)
        left = self._time_left() if self._todo and self._one_at_a_time else ""
        context.say(f"     {table.outcome(run)}{left}")
        self._show_counts()
        self._give_up_if_hopeless()

    def _give_up_if_hopeless(self) -> None:
        """If waiting runs would fail alike, stop the submitted batch, which would start them without this process.

        Jobs in a queue of AWS are left alone: others than these may train, and well.
        """
        if self._todo and self._context.batch and not self._gave_up and self._hopeless:
            self._gave_up = self._hopeless
            if self._todo[0].backend.shares_folders:
                self._context.end_together(self._todo[0])

    def conclude(self, asked_by: int | None) -> None:
        """Raise if the sweep was asked to stop, or if the remaining runs would fail as well."""
        if asked_by is not None and (self._todo or self._unfinished):
            raise stopped(self._unfinished, self._ended, asked_by, self._context.going_on(self._todo))
        if self._todo and (error := self._hopeless):
            raise error

    def _progress_of(self, run: Planned) -> Callable[[Record], None]:
        """A function that shows the progress of the run and of the whole sweep after each record."""
        place = f"{len(self._ended) + 1}/{len(self._work.todo)}  {run.name}"
        context = self._context
        started = context.clock.now()
        context.show(f"{place}{self._time_left()}")

        def show(record: Record) -> None:
            share, how_far = share_done(record, run.train.epochs)
            left = self._time_left(run.name, context.clock.now() - started, share)
            context.show(f"{place}, {how_far}{left}")

        return show

    def _time_left(self, current: str = "", elapsed_s: float = 0.0, share: float = 0.0) -> str:
        """'; about 4 min left for all runs', or empty if their time is not known."""
        begun = {current, *(run.name for run in self._ended)}
        to_begin = [run.name for run in self._work.todo if run.name not in begun]
        expected_s = {name: price.expected_s for name, price in self._work.prices.items()}
        took_s = [run.seconds for run in self._ended if run.state == "done" and run.seconds is not None]
        seconds = left_s(expected_s, to_begin, took_s, current, elapsed_s, share)
        return "" if seconds is None else f"; about {duration(timedelta(seconds=seconds))} left for all runs"


def left_s(
    expected_s: Mapping[str, float | None],
    to_begin: Sequence[str],
    took_s: Sequence[float],
    current: str = "",
    elapsed_s: float = 0.0,
    share: float = 0.0,
) -> float | None:
    """Seconds until the last run ends; None if the time of a run is not known.

    expected_s: by name, of the forecast; to_begin: runs that have not begun; took_s: of runs that ended.
    current: the run at work, with the time since it began and the share of its epochs that are done.
    """
    projected_s = elapsed_s / share if share > 0 else None
    typical_s = median(took_s) if took_s else projected_s
    durations = [_first_known(expected_s.get(name), typical_s) for name in to_begin]
    if current:
        whole_s = _first_known(projected_s, expected_s.get(current), typical_s)
        durations.append(None if whole_s is None else max(0.0, whole_s - elapsed_s))
    known = [duration for duration in durations if duration is not None]
    return sum(known) if len(known) == len(durations) else None


def _first_known(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def share_done(record: Record, epochs: int | None) -> tuple[float, str]:
    """The share of a training that is done, 0 if not known, and its progress in words; for a script its metrics.

    epochs: of the whole training; None for a script.
    """
    epoch = record.get("epoch")
    if epochs is None or epoch is None:
        return 0.0, in_words(newest([record]))
    return epoch / epochs, f"epoch {epoch}/{epochs}"


def why_give_up(ended: Sequence[Run]) -> str:
    """Why the next runs would fail as well, or empty.  ended: in this sweep, in order."""
    if not ended or ended[-1].state != "failed":
        return ""
    last = ended[-1]
    if last.exit_code == Exit.DISK:
        return "the disk is full"
    if last.exit_code == Exit.AWS and len(ended) == 1:
        return "AWS refused the first run and would refuse the others"
    return _why_both_failed(*ended[-2:]) if len(ended) > 1 and last.exit_code in SHARED else ""


def _why_both_failed(before: Run, last: Run) -> str:
    if before.state == "failed" and before.reason == last.reason:
        return "two runs in a row failed alike, and so would the others"
    if before.state == "interrupted" and before.exit_code == last.exit_code == Exit.AWS:  # the earlier job goes on
        return "AWS was lost in one run and refuses the next, as it would the others"
    return ""


def given_up(why: str, last: Run, left: int, going_on: str = "") -> Ended:
    """The error to raise if the `left` remaining runs would fail like the last.  going_on: see Context."""
    begun = f"{'1 run was' if left == 1 else f'{left} runs were'} not {'followed' if going_on else 'started'}"
    return Ended(f"{why}: {last.reason} {begun}. Fix the cause and run the same command with --retry-failed."
                 f"{going_on}", last.exit_code or Exit.BUG)  # fmt: skip


def stopped(unfinished: Sequence[str], ended: Sequence[Run], asked_by: int, going_on: str = "") -> Exception:
    """The error to raise after a signal, in the `unfinished` runs or after one.  going_on: see Context."""
    if unfinished:
        where = f"in run{'s' * (len(unfinished) > 1)} {', '.join(unfinished)}"
    else:
        where = f"after run {ended[-1].name}" if ended else "before the first run"
    sentence = f"stopped {where}; the same command resumes the sweep.{going_on}"
    return Interrupted(sentence) if asked_by == signal.SIGTERM else Ended(sentence, STOPPED)


def submitted(work: Work, context: Context, at_once: int) -> tuple[Work, Context]:
    """Submit all runs as a batch; return the work in the order of their starts, and a context to attach to the jobs.

    Both are unchanged if the backend cannot submit a batch.  Raises TrainerError.
    """
    if not work.todo or not work.todo[0].backend.batch:
        return work, context
    name = job_name(context.sweep, ARRAY, context.identity)
    members = [_member(run, work, context) for run in work.todo]
    submit: Submit = import_function(work.todo[0].backend.batch)
    names = submit(members, Batch(name, context.out, at_once, context.env, context.say))
    in_order = sorted(work.todo, key=lambda run: names.index(own) if (own := context.job(run)) in names else len(names))
    return replace(work, todo=in_order), replace(context, batch=name, attached=frozenset(names))


def collectable(work: Work, context: Context) -> tuple[Work, Context]:
    """The work of collecting the jobs that have ended, and a context to attach to them.

    Runs whose jobs wait or run become `running`; those that were not submitted stay as they are.  Raises Ended.
    """
    ended, known = list[Planned](), dict(work.before)
    for run in work.todo:
        found = _status(run, context)
        if found.get("status") in GOING_ON:
            row = _row(run, known, context)
            known[run.name] = replace(row, state="running", reason=f"its job is {found['status']}", exit_code=None)
        elif found:
            ended.append(run)
    return replace(work, todo=ended, before=known), replace(
        context, attached=frozenset(map(context.job, ended)), collects=True
    )


def _status(run: Planned, context: Context) -> Mapping[str, Any]:
    """What `status --json` prints about the run's job; empty if there is none.  Raises Ended."""
    captured = shell.run_captured([*this_python(), *about(run, "status", context.job(run)), "--json"], context.env)
    if captured.code in (Exit.DONE, Exit.SETTINGS):
        return dict(json.loads(captured.out)) if captured.code == Exit.DONE else {}
    raise Ended(f"run {run.name}: {error_of(captured)}", captured.code)


def _member(run: Planned, work: Work, context: Context) -> Member:
    before = work.before.get(run.name)
    is_unseen = before is None or before.state not in ENDED
    return Member(context.job(run), context.folder(run), Job(run.train, run.where), is_unseen)


def rows(work: Work, known: Mapping[str, Run], context: Context) -> list[Run]:
    """All runs, started or not, and those of the folder that are no longer in the sweep's file."""
    return [*(_row(run, known, context) for run in work.runs), *work.others]


def _row(run: Planned, known: Mapping[str, Run], context: Context) -> Run:
    if run.name in known:
        return replace(known[run.name], folder=context.folder(run))
    return Run(
        run.name, context.folder(run), run.settings, (), run.backend.name, run.shown_options, run.point, "planned"
    )
