"""One run of a sweep: its launcher as a child process, from its start to what it left."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launch.core import runs, shell
from launch.core.clock import Clock
from launch.core.runs import Run
from launch.sweep.backends import BILLED, SHARES_FOLDERS, machine
from launch.sweep.folder import bring, job_name, keep_records, on_nodes_s
from launch.sweep.output import Listener, open_log
from launch.sweep.planned import Planned
from launch.sweep.price import Price
from trainer.contract import METRICS, Exit
from trainer.errors import MachineError

LOG = "log.txt"
# Its launcher and all that this starts carry it, so that a sweep that was killed finds them when it is started again.
MARK = "LAUNCH_SWEEP_RUN"
# How long a launcher has to save, or to take its machines down.
GRACE_S, TAKE_DOWN_S = 60.0, 900.0
# Exit codes of what was stopped or ran into a time limit, and goes on when it is started again.
STOPPED = (Exit.INTERRUPTED, 129, 130, 143)


@dataclass(frozen=True)
class Stage:
    """Where a sweep plays.  results: where launchers leave what they fetch; env: of this process."""

    sweep: str
    identity: str
    out: Path
    results: Path
    env: Mapping[str, str]
    clock: Clock
    rehearsed: bool
    say: Callable[[str], None]

    def folder(self, run: Planned) -> Path:
        return self.out / run.name

    def job(self, run: Planned) -> str:
        return job_name(self.sweep, run.name, self.identity)


def perform(run: Planned, price: Price, before: Run | None, stage: Stage) -> tuple[Run, int | None]:
    """Runs it to its end, or goes on with it.  Main thread only.

    What came of it, which is also written, and the signal that asked to stop, if one did: a run may be done then.
    """
    folder = stage.folder(run)
    end_left_over(folder)
    begun = _begun(run, price, before, stage)
    runs.write(begun)
    if run.backend not in SHARES_FOLDERS:
        bring(stage.job(run), stage.results, folder)  # of a sweep that was killed before it could
    if stage.rehearsed:  # whose AWS is gone, so it begins anew
        (folder / METRICS).unlink(missing_ok=True)
    started = stage.clock.now()
    with open_log(folder / LOG) as log:
        listener = Listener(log)
        code, asked_by = _child(command(run, stage), run, stage, listener)
    seconds = stage.clock.now() - started
    _collect(run, stage, listener)
    ended = replace(begun, **_end(code, asked_by, listener), seconds=(begun.seconds or 0.0) + seconds)
    ended = replace(ended, usd=_usd(begun, listener, seconds, price, stage), epochs=runs.read_epochs(folder))
    runs.write(ended)
    return ended, asked_by


def command(run: Planned, stage: Stage) -> list[str]:
    """The launcher's command line."""
    words = [sys.executable, "-m", f"launch.{run.backend}", *run.argv]
    if run.backend in SHARES_FOLDERS:
        words += ["--run-dir", str(stage.folder(run))]
    if "job_name" in type(run.where).model_fields:
        words += ["--job-name", stage.job(run)]
    if run.backend == "slurm":
        words += ["--wait"]  # which the others do by themselves
    return [*words, "--rehearse"] if stage.rehearsed else words


def end_left_over(folder: Path) -> None:
    """Ends what a sweep that was killed had started for this folder, so that two do not write into it."""
    shell.kill_marked(f"{MARK}={_mark(folder)}\0")


def _mark(folder: Path) -> str:
    return str(folder.resolve())


def _begun(run: Planned, price: Price, before: Run | None, stage: Stage) -> Run:
    """What is known when it starts; of an earlier start, when that was and what it took."""
    return Run(
        name=run.name,
        folder=stage.folder(run),
        settings=run.settings,
        backend=run.backend,
        options=run.shown_options,
        point=run.point,
        state="running",
        started=before.started if before else stage.clock.utc().strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=before.seconds if before else None,
        usd_per_hour=price.usd_per_hour,
        usd=before.usd if before else None,
    )


def _child(words: list[str], run: Planned, stage: Stage, listener: Listener) -> tuple[int, int | None]:
    """Its exit code, which a launcher that somebody killed has, too; and the signal that asked us to stop."""
    # Slurm's jobs inherit what sbatch has, and are not to end with who follows them.
    env = {**stage.env, **({} if run.backend == "slurm" else {MARK: _mark(stage.folder(run))})}
    if run.visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(_gpus(stage.env)[: run.visible] or map(str, range(run.visible)))
    grace_s = TAKE_DOWN_S if run.backend not in SHARES_FOLDERS else GRACE_S
    signals: list[int] = []
    try:
        code = shell.run(words, env, grace_s=grace_s, on_line=listener.hear, on_signal=signals.append)
    except MachineError as error:
        listener.reason = str(error)
        code = Exit.MACHINE
    return code, signals[0] if signals else None


def _gpus(env: Mapping[str, str]) -> list[str]:
    return [word for word in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]


def _collect(run: Planned, stage: Stage, listener: Listener) -> None:
    """Brings its records into its folder: its own file, or what it said."""
    folder = stage.folder(run)
    if run.backend in SHARES_FOLDERS:
        return
    bring(stage.job(run), stage.results, folder)
    if listener.records and not (stage.rehearsed or _is_newer(folder / METRICS, listener)):
        keep_records(folder, listener.records, _known(run))


def _is_newer(path: Path, listener: Listener) -> bool:
    """Whether the job's own file has all that was heard."""
    epochs = [int(record["epoch"]) for record in runs.read_epochs(path.parent)] if path.exists() else []
    return bool(epochs) and max(epochs) >= max(listener.records)


def _known(run: Planned) -> dict[str, Any]:
    """Of a record, what is no number: [METRIC] lines have numbers only."""
    instance = machine(run.backend, run.options)
    told = {
        "device": instance.gpu_model or "CPU" if instance else None,
        "strategy": run.train.strategy if run.train.strategy != "auto" else None,
        "precision": run.train.precision if run.train.precision != "auto" else None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _end(code: int, asked_by: int | None, listener: Listener) -> dict[str, Any]:
    """State, reason and exit code.  Stopped by us, a launcher's other error is about its stopping."""
    if code == Exit.DONE:
        return {"state": "done", "reason": "", "exit_code": code}
    if code in STOPPED or asked_by is not None:
        reason = "" if asked_by is not None and code in STOPPED else listener.reason
        return {"state": "interrupted", "reason": reason or "stopped; the same command goes on", "exit_code": code}
    last = f", after {listener.last!r}" if listener.last else ""
    reason = listener.reason or f"ended with exit code {code}{last}; see {LOG}"
    return {"state": "failed", "reason": reason, "exit_code": code}


def _usd(begun: Run, listener: Listener, seconds: float, price: Price, stage: Stage) -> float | None:
    """What it cost so far: the launcher's bill, or the time at the machine's price."""
    if stage.rehearsed or (price.usd_per_hour is None and listener.usd is None):
        return begun.usd
    if begun.backend == "slurm":
        return on_nodes_s(begun.folder) / 3600 * (price.usd_per_hour or 0.0)
    own = listener.usd if begun.backend in BILLED else None
    if own is None:
        own = seconds / 3600 * (price.usd_per_hour or 0.0)
    return (begun.usd or 0.0) + own
