"""Shows a job's log as it grows, until the job is over."""

import os
from contextlib import suppress
from pathlib import Path

from launch.aws.retry import Retry
from launch.core.errors import LeftRunning
from launch.slurm.explain import why_it_waits
from launch.slurm.folder import read_folder
from launch.slurm.listing import QueuedJob
from launch.slurm.lookup import Slurm
from launch.slurm.names import command
from launch.slurm.runtime import Runtime
from launch.slurm.status import outcome_of
from trainer.contract import Exit
from trainer.errors import TrainerError
from trainer.outcome import Outcome

LOOK_EVERY_S = 1.0
# Polling the queue more often burdens Slurm's controller.
POLL_QUEUE_EVERY_S = 10.0
# After a job left the queue its last lines may take this long to appear on a shared file system.
ARRIVE_S = 5.0
# Maximum bytes of a log per poll.
MOST_SHOWN = 2**26


class FileTail:
    """Reads the complete lines that were added to a file since the last read."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self._path, self._place = path, start

    def new_lines(self, *, to_end: bool = False) -> list[str]:
        """The new lines, at most the last MOST_SHOWN bytes; none without a file.  to_end: with an incomplete line."""
        lines, added = list[str](), b""
        with suppress(OSError), self._path.open("rb") as file:
            new = os.fstat(file.fileno()).st_size - self._place
            if new > MOST_SHOWN:
                lines = [f"{new - MOST_SHOWN:,} bytes are not shown; they are in {self._path}"]
                self._place += new - MOST_SHOWN
            file.seek(self._place)
            added = file.read(MOST_SHOWN)
        if not to_end:
            added = added[: added.rfind(b"\n") + 1]
        self._place += len(added)
        return [*lines, *added.decode(errors="replace").splitlines()]


def follow(name: str, path: Path, tail: FileTail, slurm: Slurm, runtime: Runtime) -> Outcome:
    """Show the log until the job is over; return its outcome.  Ctrl-C only stops following.

    path: the job's folder.  Raises LeftRunning after ten minutes in which Slurm did not answer.
    """
    try:
        return follow_to_end(name, path, tail, slurm, runtime)
    except KeyboardInterrupt:
        runtime.say(f"the job continues; to stop it: {command('stop', name)}")
        raise


def follow_to_end(name: str, path: Path, tail: FileTail, slurm: Slurm, runtime: Runtime) -> Outcome:
    """Show the log until the job is over, and return how it ended."""
    queue = _QueueWatch(name, path, slurm, runtime)
    while True:
        folder = read_folder(path)
        is_over = folder.last_start is not None
        for line in tail.new_lines(to_end=is_over):
            runtime.say(line)
        if is_over or queue.job_has_left(folder.slurm_endings):
            return outcome_of(name, folder, slurm)
        runtime.clock.sleep(LOOK_EVERY_S)


class _QueueWatch:
    """Polls Slurm's queue for one job."""

    def __init__(self, name: str, path: Path, slurm: Slurm, runtime: Runtime) -> None:
        self._name, self._path, self._slurm, self._runtime = name, path, slurm, runtime
        self._poll_at, self._shown_reason, self._endings = 0.0, "", 0
        self._gone_since: float | None = None
        self._retry, self._has_warned = Retry(runtime.clock), False

    def job_has_left(self, slurm_endings: int) -> bool:
        """Whether the job left the queue for good.  slurm_endings: the number of its starts that Slurm ended."""
        now, is_ending = self._runtime.clock.now(), slurm_endings > self._endings
        if now < self._poll_at and not is_ending:
            return False
        queue = self._queue()
        if queue is None:
            self._poll_at = now + POLL_QUEUE_EVERY_S
            return False
        job = next((job for job in queue if job.name == self._name and job.folder == self._path), None)
        if job is None:
            self._gone_since, self._poll_at = self._gone_since or now, now + ARRIVE_S
            return is_ending or now - self._gone_since >= ARRIVE_S
        self._gone_since, self._poll_at = None, now + POLL_QUEUE_EVERY_S
        self._record(job, slurm_endings)
        return False

    def _record(self, job: QueuedJob, slurm_endings: int) -> None:
        if job.state in ("PENDING", "RUNNING"):  # so it was requeued
            self._endings = slurm_endings
        self._show_reason(job)

    def _queue(self) -> list[QueuedJob] | None:
        """The job in the queue; None if Slurm does not answer, as while its controller restarts."""
        try:
            queue = self._slurm.queue()
        except TrainerError as error:
            self._tolerate(error)
            return None
        self._retry.success()
        self._has_warned = False
        return queue

    def _tolerate(self, error: TrainerError) -> None:
        try:
            self._retry.failure(error)
        except TrainerError:
            words = f"{error}  The job goes on without this command; to follow it again, or to stop it:"
            commands = "\n  ".join(command(verb, self._name) for verb in ("attach", "stop"))
            raise LeftRunning(f"{words}\n  {commands}", Exit.MACHINE) from error
        if not self._has_warned:
            self._runtime.say(f"warning: {error}\n  trying again")
        self._has_warned = True

    def _show_reason(self, job: QueuedJob) -> None:
        """Print why the job waits, once per reason."""
        if job.is_waiting and job.reason != self._shown_reason:
            self._shown_reason = job.reason
            self._runtime.say(f"job {job.id} {why_it_waits(job.reason, job.id)}")
