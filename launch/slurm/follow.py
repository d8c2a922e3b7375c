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
# Administrators dislike it if the queue is polled more often.
POLL_QUEUE_EVERY_S = 10.0
# How long after a job left the queue its last lines may take to arrive over a shared file system.
ARRIVE_S = 5.0
# Bytes of a log at a look: another user's may be a file without end.
MOST_SHOWN = 2**26


class FileTail:
    """The complete lines that were added to a file since the last look."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self._path, self._place = path, start

    def new_lines(self, *, to_end: bool = False) -> list[str]:
        """None where there is no file, and of more than MOST_SHOWN bytes the last.  to_end: an incomplete line, too."""
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
    """Shows the log until the job is over; returns how it ended.  Ctrl-C ends the following only.

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
    """Polls Slurm's queue for one job now and then."""

    def __init__(self, name: str, path: Path, slurm: Slurm, runtime: Runtime) -> None:
        self._name, self._path, self._slurm, self._runtime = name, path, slurm, runtime
        self._poll_at, self._shown_reason, self._endings = 0.0, "", 0
        self._gone_since: float | None = None
        self._retry, self._has_warned = Retry(runtime.clock), False

    def job_has_left(self, slurm_endings: int) -> bool:
        """Whether the job left the queue for good.  slurm_endings: how many of its starts were ended by Slurm."""
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
        self._note(job, slurm_endings)
        return False

    def _note(self, job: QueuedJob, slurm_endings: int) -> None:
        if job.state in ("PENDING", "RUNNING"):  # so it was requeued
            self._endings = slurm_endings
        self._show_reason(job)

    def _queue(self) -> list[QueuedJob] | None:
        """None where Slurm does not answer, as a busy or restarted controller does: the job does not mind."""
        try:
            queue = self._slurm.queue()
        except TrainerError as error:
            self._bear(error)
            return None
        self._retry.success()
        self._has_warned = False
        return queue

    def _bear(self, error: TrainerError) -> None:
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
        """Says why the job waits, once per reason."""
        if job.is_waiting and job.reason != self._shown_reason:
            self._shown_reason = job.reason
            self._runtime.say(f"job {job.id} {why_it_waits(job.reason, job.id)}")
