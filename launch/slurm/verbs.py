"""What can be done with jobs once they are submitted: status, logs, attach, stop.  commands.py does it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from launch.core.options import Options
from launch.core.verbs import Verb, verbs_of

if TYPE_CHECKING:
    from launch.slurm.runtime import Runtime


class VerbOptions(Options):
    """What every verb takes."""

    job: str | None = Field(None, description="name of the job, or its Slurm id; may be given first, without the flag")


class AttachOptions(VerbOptions):
    outcome: Path | None = Field(None, description="folder to write outcome.json into: state, exit code, seconds")


class LogsOptions(VerbOptions):
    follow: bool = Field(False, description="-f: show new lines until the job ends")


STATUS = """\
list your jobs in the queue, or show one: why it waits, time left, progress, how it ended

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
stop a job after it has saved; the same command with --job-name resumes it

  python -m launch.slurm stop JOB

Jobs that were not submitted by this toolkit are never touched.  Stopping a job twice is safe.
"""


def verbs(runtime: Callable[[], "Runtime"]) -> Mapping[str, Verb]:
    """The verbs by name."""

    def commands() -> object:
        from launch.slurm.commands import Commands  # --help does not need it

        return Commands(runtime())

    return verbs_of(commands, {
        "status": (STATUS, VerbOptions),
        "logs": (LOGS, LogsOptions),
        "attach": (ATTACH, AttachOptions),
        "stop": (STOP, VerbOptions),
    })  # fmt: skip
