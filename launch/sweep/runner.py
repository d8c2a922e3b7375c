"""Perform one run of a sweep: start its launcher, follow it, and collect its results."""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from launch.core import runs, shell
from launch.core.clock import Clock
from launch.core.metrics import Record
from launch.core.runs import Run
from launch.core.shell import this_python
from launch.core.signals import kill_marked
from launch.sweep.end import MOST_OF_LINE, End, Watched, about, ending
from launch.sweep.folder import LAUNCHER, LOG, collect_results, job_name, lacks, write_records
from launch.sweep.planned import Planned
from launch.sweep.price import Price, spent
from trainer import contract
from trainer import outcome as outcomes
from trainer.contract import METRICS, OUTCOME, Exit
from trainer.errors import MachineError, SettingsError, one_line
from trainer.outcome import Outcome
from trainer.script.relay import values_within

# In the environment of a launcher and its child processes, so that a sweep can kill those of an earlier, killed sweep.
MARK = "LAUNCH_SWEEP_RUN"
# How long a launcher may take to save, or to remove its machines.
GRACE_S, REMOVAL_S = 60.0, 900.0


class Output:
    """Writes a run's lines to its log, and collects its metrics.

    last: the last line; records: the [METRIC] lines, as in metrics.jsonl.
    """

    def __init__(self, log: IO[str], on_record: Callable[[Record], None] = lambda record: None) -> None:
        self._log, self._on_record = log, on_record
        self.last = ""
        self.records: list[Record] = []

    def add(self, line: str) -> None:
        with suppress(OSError):  # on a full disk the run itself fails with that error
            self._log.write(f"{line}\n")
            self._log.flush()  # for `tail -f`
        self.last = line.strip() or self.last
        if record := values_within(line):
            self.records.append(record)
            self._on_record(record)


def open_log(path: Path) -> IO[str]:
    """Open the log of a run for appending.  Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a", encoding="utf-8", errors="backslashreplace")


def command(run: Planned, context: "Context") -> list[str]:
    """The launcher's command line."""
    folder = context.folder(run).resolve()
    if context.is_attached(run):
        # absolute() instead of resolve(), to get the same path as when it was submitted.
        named = str(context.folder(run).absolute()) if run.backend.shares_folders else context.job(run)
        return [*this_python(), *about(run, "attach", named), "--outcome", str(folder / LAUNCHER)]
    words = ["--yes", "--outcome", str(folder / LAUNCHER)]
    if run.backend.shares_folders:
        words += ["--run-dir", str(context.folder(run))]
    if "job_name" in run.backend.options.model_fields:
        words += ["--job-name", context.job(run)]
    if context.rehearsed:
        words += ["--rehearse"]
    return [*this_python(), "-m", run.backend.module, *run.words(*words)]


@dataclass(frozen=True)
class Context:
    """The context shared by all runs of a sweep."""

    sweep: str
    identity: str
    out: Path
    results: Path  # where launchers leave what they fetch
    env: Mapping[str, str]  # of this process
    clock: Clock
    rehearsed: bool
    say: Callable[[str], None]  # writes a line
    show: Callable[[str], None] = lambda text: None  # overwrites the line of progress
    launcher: Callable[[Planned, "Context"], list[str]] = command  # a run's command line
    run: Callable[..., int] = shell.run  # runs it
    diverged_at: float | None = 0.0  # multiple of the lowest loss that ends a run; 0: never; None: default
    batch: str = ""  # the name of the submitted batch
    attached: frozenset[str] = frozenset()  # the names of the jobs to attach to
    collects: bool = False  # all of these have ended

    def folder(self, run: Planned) -> Path:
        return self.out / run.name

    def job(self, run: Planned) -> str:
        return job_name(self.sweep, run.name, self.identity)

    def end_together(self, run: Planned) -> None:
        """Stop all waiting and running jobs of the batch of `run`."""
        shell.run_captured([*this_python(), "-m", run.backend.module, "stop", self.batch], self.env)

    def going_on(self, left: Sequence[Planned]) -> str:
        """The sentence on jobs of `left` in a queue of AWS, which go on without the sweep, and how to stop them."""
        runs = [run for run in left if self.is_attached(run) and not run.backend.shares_folders]
        if not runs or self.collects:
            return ""
        jobs, stop = " ".join(map(self.job, runs)), " ".join(["python", *about(runs[0], "stop", "$job")])
        return f"  Submitted jobs go on ({len(runs)}); to stop them:\n  for job in {jobs}; do {stop}; done"

    def is_attached(self, run: Planned) -> bool:
        return self.job(run) in self.attached


def perform(
    run: Planned, price: Price, before: Run | None, context: Context, on_record: Callable[[Record], None]
) -> tuple[Run, int | None]:
    """Start or resume a run, and wait for its end; main thread only.  on_record: called with each record.

    Returns the run, which is also written, and the signal that asked to stop, if any; the run may be done even then.
    """
    folder = context.folder(run)
    end_left_over(folder)
    started = _started(run, price, before, context)
    runs.write(started)
    if not run.backend.shares_folders:
        collect_results(context.job(run), context.results, folder)  # of a sweep that was killed before
    if context.rehearsed:  # its embedded AWS is gone, so it starts over
        (folder / METRICS).unlink(missing_ok=True)
    with open_log(folder / LOG) as log:
        ends = ending(run, context.job(run), context.env, rehearsed=context.rehearsed)
        at = run.train.diverged_at if context.diverged_at is None else context.diverged_at
        watched = Watched(at, ends, runs.read_epochs(folder))
        output = Output(log, watched.before(on_record))
        end = _launch(run, context, output, watched)
    end, epochs = _results(run, context, output, end)
    ended = replace(
        started,
        state=end.state,
        reason=end.reason,
        exit_code=end.code,
        seconds=(started.seconds or 0.0) + end.seconds,
        usd=_usd(run, started, end, context),
        epochs=epochs,
    )
    runs.write(ended)
    return ended, end.signal


def end_left_over(folder: Path) -> None:
    """End processes that a killed sweep left running for this folder, so that no two write into it."""
    kill_marked(f"{MARK}={_mark(folder)}\0")


def _mark(folder: Path) -> str:
    return str(folder.resolve())


def _started(run: Planned, price: Price, before: Run | None, context: Context) -> Run:
    """The run as it starts; after an earlier start, with that one's time and price."""
    return Run(
        name=run.name,
        folder=context.folder(run),
        settings=run.settings,
        backend=run.backend.name,
        options=run.shown_options,
        point=run.point,
        state="running",
        started=before.started if before else context.clock.utc().strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=before.seconds if before else None,
        usd_per_hour=price.usd_per_hour,
        usd=spent(before, price) if before else None,
        rehearsed=context.rehearsed,
    )


def _launch(run: Planned, context: Context, output: Output, watched: Watched) -> End:
    """Run the launcher to its end."""
    folder = context.folder(run)
    (folder / LAUNCHER / OUTCOME).unlink(missing_ok=True)
    if not context.is_attached(run):  # of an earlier start
        (folder / OUTCOME).unlink(missing_ok=True)
    grace_s = GRACE_S if run.backend.shares_folders else REMOVAL_S
    signals: list[int] = []
    error = ""
    began = context.clock.now()

    def launch(context: Context) -> int:
        return context.run(
            context.launcher(run, context), _env(run, context), grace_s=grace_s, on_line=output.add,
            on_start=watched.begin, on_signal=signals.append,
        )  # fmt: skip

    try:
        code = launch(context)
        if code == Exit.DONE and not signals and _is_submitted_only(run, context):
            code = launch(replace(context, attached=frozenset({context.job(run)})))
    except MachineError as lost:
        error, code = str(lost), int(Exit.MACHINE)
    seconds = context.clock.now() - began
    trainer = outcomes.read(folder)
    return End(
        code,
        signals[0] if signals else None,
        seconds,
        error,
        outcomes.read(folder / LAUNCHER),
        trainer.reason if trainer else "",
        output.last,
        watched.diverged,
        _stop_command(run, context),
    )


def _is_submitted_only(run: Planned, context: Context) -> bool:
    """Whether the run's launcher, which is not the sweep's attach, has returned before the job's end."""
    return run.backend.returns_at_once(run.where) and not context.rehearsed and not context.is_attached(run)


def _stop_command(run: Planned, context: Context) -> str:
    """The command that stops a job that outlives its launcher; empty if it does not."""
    if context.rehearsed or not (run.backend.is_billed or run.backend.outlives_launcher):
        return ""
    return shlex.join(["python", *about(run, "stop", context.job(run))])


def _env(run: Planned, context: Context) -> dict[str, str]:
    env = dict(context.env)
    if run.backend.marks_children:
        env[MARK] = _mark(context.folder(run))
        if run.backend.shares_folders:  # on other backends a job may continue without its sweep
            env[contract.LAUNCHER] = str(os.getpid())
    if run.visible is not None:
        devices = [word for word in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
        env["CUDA_VISIBLE_DEVICES"] = ",".join(devices[: run.visible] or map(str, range(run.visible)))
    return env


def _results(run: Planned, context: Context, output: Output, end: End) -> tuple[End, tuple[Mapping[str, Any], ...]]:
    """How the run ended, and its epochs.  A run with unreadable results counts as failed, and the sweep continues."""
    try:
        _collect(run, context, output)
        return end, runs.read_epochs(context.folder(run))
    except SettingsError as error:
        if end.code != Exit.DONE:
            return end, ()
        reason = f"its results cannot be read: {one_line(error, MOST_OF_LINE)}"
        outcome = replace(end.outcome or Outcome("failed", 0), state="failed", exit_code=Exit.DATA, reason=reason)
        return replace(end, code=Exit.DATA, outcome=outcome), ()


def _collect(run: Planned, context: Context, output: Output) -> None:
    """Collect the run's records from the job's own file, or else from its [METRIC] lines."""
    if run.backend.shares_folders:
        return
    folder = context.folder(run)
    collect_results(context.job(run), context.results, folder)
    if not context.rehearsed and lacks(folder, output.records):
        write_records(folder, output.records, _constants(run))


def _constants(run: Planned) -> dict[str, Any]:
    """The text fields of a record, as [METRIC] lines have only numbers."""
    constants: dict[str, Any] = {}
    if instance := run.backend.machine(run.options):
        constants["device"] = instance.gpu_model or "CPU"
    for name in ("strategy", "precision"):
        value = run.settings.get(name)
        if value not in (None, "auto"):
            constants[name] = value
    return constants


def _usd(run: Planned, started: Run, end: End, context: Context) -> float | None:
    """The run's cost so far: by the launcher's outcome, or else its time at the machine's price."""
    if context.rehearsed:
        return started.usd
    earlier = started.usd or 0.0
    if run.backend.is_billed and end.outcome and end.outcome.usd is not None:
        return earlier + end.outcome.usd
    if started.usd_per_hour is None:
        return started.usd
    held_s = run.backend.held_s(started.folder)  # in all its starts
    if held_s is not None:
        return held_s / 3600 * started.usd_per_hour
    return earlier + end.seconds / 3600 * started.usd_per_hour
