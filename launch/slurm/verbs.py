"""What can be done with jobs once they are submitted: status, logs, attach, stop.  acts.py does it."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from launch.core.cli import Verb

if TYPE_CHECKING:
    from launch.slurm.commands import Acts


class OfJob(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    job: str | None = Field(None, description="its name, or Slurm's id; the flag may be left out")


class LogsOptions(OfJob):
    follow: bool = Field(False, description="-f: go on until the job is over")


STATUS = """\
your jobs in the queue, or one job: why it waits, time left, training, how it ended, what to type next

  python -m launch.slurm status
  python -m launch.slurm status JOB
"""

LOGS = """\
what the job said, in all its starts; also after its end

  python -m launch.slurm logs JOB --follow

Ctrl-C ends the following, not the job.
"""

ATTACH = """\
follows a job to its end, and ends with the training's exit code

  python -m launch.slurm attach JOB
"""

STOP = """\
ends a job, which saves first; submitted with the same command again it goes on

  python -m launch.slurm stop JOB

Only jobs that this toolkit submitted are touched.  Stopping a job twice is fine.
"""


def verbs(make_acts: Callable[[], "Acts"]) -> Mapping[str, Verb]:
    """The verbs by name."""

    def act(name: str) -> Callable[[Any], int]:
        def do(options: BaseModel) -> int:
            done: int = getattr(make_acts(), name)(options)
            return done

        return do

    return {
        "status": Verb(STATUS, OfJob, act("status")),
        "logs": Verb(LOGS, LogsOptions, act("logs")),
        "attach": Verb(ATTACH, OfJob, act("attach")),
        "stop": Verb(STOP, OfJob, act("stop")),
    }
