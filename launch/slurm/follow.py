"""Shows a job's log as it grows, until the job is over."""

from dataclasses import dataclass
from pathlib import Path

from launch.core.clock import Clock
from launch.core.perform import Say
from launch.slurm.ended import Over, by_itself, by_slurm
from launch.slurm.explain import waits
from launch.slurm.listing import Queued
from launch.slurm.lookup import Slurm, read_folder

LOOK_EVERY_S = 1.0
# Who runs a cluster dislikes to be asked more often.
ASK_EVERY_S = 10.0
# How long after a job left the queue its last lines may take to arrive over a shared file system.
ARRIVE_S = 5.0


class Tail:
    """The whole lines that were added to a file since the last look."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self._path, self._place = path, start

    def new_lines(self, *, to_end: bool = False) -> list[str]:
        """to_end: a last line that is not whole, too."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as opened:
            opened.seek(self._place)
            fresh = opened.read()
        if not to_end:
            fresh = fresh[: fresh.rfind(b"\n") + 1]
        self._place += len(fresh)
        return fresh.decode(errors="replace").splitlines()


@dataclass(frozen=True)
class Follower:
    """Follows one job by its folder."""

    slurm: Slurm
    clock: Clock
    say: Say

    def follow(self, name: str, path: Path, tail: Tail) -> Over:
        """Shows the log until the job is over; says how it went.  Raises TrainerError."""
        queue = _Queue(self, name, path)
        while True:
            folder = read_folder(path)
            ended = folder.ended()
            for line in tail.new_lines(to_end=ended is not None):
                self.say(line)
            if ended:
                return by_itself(ended, folder, name)
            if queue.is_left(folder.endings):
                return by_slurm(self.slurm.last_state(folder.ids[-1])[0] if folder.ids else "", name)
            self.clock.sleep(LOOK_EVERY_S)


class _Queue:
    """Slurm's queue as it is asked about one job, now and then."""

    def __init__(self, follower: Follower, name: str, path: Path) -> None:
        self._follower, self._name, self._path = follower, name, path
        self._ask_at, self._waited, self._endings = 0.0, "", 0
        self._gone_since: float | None = None

    def is_left(self, endings: int) -> bool:
        """Whether the job left the queue for good.  endings: how often it said that Slurm was ending it."""
        now, is_ending = self._follower.clock.now(), endings > self._endings
        if now < self._ask_at and not is_ending:
            return False
        queue = self._follower.slurm.queue()
        job = next((job for job in queue if job.name == self._name and job.folder == self._path), None)
        if job is not None:
            self._gone_since, self._ask_at = None, now + ASK_EVERY_S
            if job.state in ("PENDING", "RUNNING"):  # so it only had to leave its nodes
                self._endings = endings
            self._tell(job)
            return False
        self._gone_since, self._ask_at = self._gone_since or now, now + ARRIVE_S
        return is_ending or now - self._gone_since >= ARRIVE_S

    def _tell(self, job: Queued) -> None:
        """Why it waits, once a reason."""
        if job.is_waiting and job.reason != self._waited:
            self._waited = job.reason
            self._follower.say(f"job {job.id} {waits(job.reason)}")
