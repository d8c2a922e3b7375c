"""What can be done with jobs once they are started: status, logs, stop, leaks, attach.  acts.py does it."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from launch.core.cli import Verb
from launch.core.options import JobOptions, RegionOptions

if TYPE_CHECKING:
    from launch.sagemaker.start import World


class LogsOptions(JobOptions):
    follow: bool = Field(False, description="-f: go on until the job is over")
    node: int | None = Field(None, ge=1, description="only the instance with this number: algo-1 is 1")
    since: float | None = Field(None, gt=0, description="only the last so many minutes")


class StopOptions(JobOptions):
    all: bool = Field(False, description="every job in the region")
    yes: bool = Field(False, description="yes, --all of them")


class LeaksOptions(RegionOptions):
    all_regions: bool = Field(False, description="ask every region that the account has switched on")
    delete: bool = Field(False, description="end what is a leak")


class AttachOptions(JobOptions):
    fetch: bool = Field(True, description="fetch the result into runs/ at the end")


STATUS = """\
the jobs of a region, or one job: cost, time left, training, what to type next

  python -m launch.sagemaker status
  python -m launch.sagemaker status JOB
"""

LOGS = """\
what the training said, also after its end

  python -m launch.sagemaker logs JOB --follow
  python -m launch.sagemaker logs JOB --node 2 --since 30

Lines of several instances begin with their number: [1].  Ctrl-C ends the following, not the job.
"""

STOP = """\
ends a job, gives kept machines back, and makes sure of it

  python -m launch.sagemaker stop JOB
  python -m launch.sagemaker stop --all --yes

Logs, checkpoints and results stay.  Stopping a job twice is fine.
"""

LEAKS = """\
what jobs cost now, and what should not be there any more

  python -m launch.sagemaker leaks --all-regions
  python -m launch.sagemaker leaks --delete

A leak is a job past its time limit, and machines kept (--warm-pool-s) after a job.  Exit code 0: there is no leak, or
not any more; 4: there is one, or AWS could not be asked.  For cron.
"""

ATTACH = """\
follows a job again, and fetches its result

  python -m launch.sagemaker attach JOB
"""


def verbs(make_world: Callable[[str | None], "World"]) -> Mapping[str, Verb]:
    """The verbs by name.  make_world: a region, or None for the configured one -> what they act on."""

    def act(name: str) -> Callable[[Any], int]:
        def do(options: BaseModel) -> int:
            from launch.sagemaker.commands import Acts  # --help needs none of it

            done: int = getattr(Acts(make_world), name)(options)
            return done

        return do

    return {
        "status": Verb(STATUS, JobOptions, act("status")),
        "logs": Verb(LOGS, LogsOptions, act("logs")),
        "stop": Verb(STOP, StopOptions, act("stop")),
        "leaks": Verb(LEAKS, LeaksOptions, act("leaks")),
        "attach": Verb(ATTACH, AttachOptions, act("attach")),
    }
