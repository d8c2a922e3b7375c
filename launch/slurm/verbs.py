"""What can be done with jobs once they are submitted: status, logs, attach, stop.  commands.py does it."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from launch.core.cli import Verb

if TYPE_CHECKING:
    from launch.slurm.runtime import Runtime


class VerbOptions(BaseModel):
    """What every verb takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    job: str | None = Field(None, description="name of the job, or its Slurm id; also without the flag, as first word")


class LogsOptions(VerbOptions):
    follow: bool = Field(False, description="-f: show new lines until the job ends")


STATUS = """\
list your jobs in the queue, or show one job: why it waits, time left, progress, how it ended

  python -m launch.slurm status
  python -m launch.slurm status JOB
"""

LOGS = """\
show the log of all starts of a job; also after its end

  python -m launch.slurm logs JOB --follow

Ctrl-C stops following; the job continues.
"""

ATTACH = """\
follow a job to its end and exit with the training's exit code

  python -m launch.slurm attach JOB
"""

STOP = """\
stop a job after it has saved; submit it with the same command to resume

  python -m launch.slurm stop JOB

Jobs that were not submitted by this toolkit are never touched.  Stopping a job twice does no harm.
"""


def verbs(runtime: Callable[[], "Runtime"]) -> Mapping[str, Verb]:
    """The verbs by name."""

    def act(name: str) -> Callable[[Any], int]:
        def run(options: BaseModel) -> int:
            from launch.slurm.commands import Commands

            code: int = getattr(Commands(runtime()), name)(options)
            return code

        return run

    return {
        "status": Verb(STATUS, VerbOptions, act("status")),
        "logs": Verb(LOGS, LogsOptions, act("logs")),
        "attach": Verb(ATTACH, VerbOptions, act("attach")),
        "stop": Verb(STOP, VerbOptions, act("stop")),
    }
