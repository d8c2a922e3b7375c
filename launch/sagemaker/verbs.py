"""The verbs for jobs that were started: status, logs, stop, leaks, ssh, attach.  commands.py carries them out."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from launch.core.options import JobOptions, RegionOptions
from launch.core.verbs import Verb, verbs_of

if TYPE_CHECKING:
    from launch.sagemaker.runtime import RuntimeOf


class LogsOptions(JobOptions):
    follow: bool = Field(False, description="-f: keep following until the job has ended")
    node: int | None = Field(None, ge=1, description="only this instance; algo-1 is number 1 (default: all)")
    since: float | None = Field(None, gt=0, description="only the last N minutes (default: the whole log)")


class StopOptions(JobOptions):
    all: bool = Field(False, description="stop every job in the region")
    yes: bool = Field(False, description="skip the confirmation of --all")


class LeaksOptions(RegionOptions):
    all_regions: bool = Field(False, description="check every region that is enabled for the account")
    delete: bool = Field(False, description="stop the leaks, after confirmation")
    yes: bool = Field(False, description="skip the confirmation of --delete")


class SshOptions(JobOptions):
    node: int = Field(1, ge=1, description="the instance; algo-1 is number 1")


class AttachOptions(JobOptions):
    fetch: bool = Field(True, description="fetch the result into runs/ at the end")


STATUS = """\
show all jobs of a region, or one: cost, time left, progress, next commands

  python -m launch.sagemaker status
  python -m launch.sagemaker status JOB
"""

LOGS = """\
show the log of a job, also after its end

  python -m launch.sagemaker logs JOB --follow
  python -m launch.sagemaker logs JOB --node 2 --since 30

With several instances, lines begin with the instance's number: [1].  Ctrl-C stops following, not the job.
"""

STOP = """\
stop a job, release kept instances, and wait until that is done

  python -m launch.sagemaker stop JOB
  python -m launch.sagemaker stop --all --yes

Logs, checkpoints and results are kept.  Stopping a job twice is safe.
"""

LEAKS = """\
show what jobs cost now, and which of them should have ended

  python -m launch.sagemaker leaks --all-regions
  python -m launch.sagemaker leaks --delete

--delete asks first; --yes skips the question.  Resources with a job's tag but without all of the toolkit's tags
are listed and never touched.

A leak is a job past its time limit, or instances kept (--warm-pool-s) after a job.  Exit code 0: no leak is
left; 4: one is, or AWS did not answer.  Suitable for cron.
"""

SSH = """\
print the command that opens a shell in a job's container

  python -m launch.sagemaker --remote-debug ...
  python -m launch.sagemaker ssh JOB --node 1

Through AWS Systems Manager: no key, and no open port.  The job must have been started with --remote-debug.
"""

ATTACH = """\
follow a job again, and fetch its result

  python -m launch.sagemaker attach JOB
"""


def verbs(runtime_of: "RuntimeOf") -> Mapping[str, Verb]:
    """The verbs by name.  runtime_of: what commands act on, given a region."""

    def commands() -> object:
        from launch.sagemaker.commands import Commands  # --help does not need it

        return Commands(runtime_of)

    return verbs_of(commands, {
        "status": (STATUS, JobOptions),
        "logs": (LOGS, LogsOptions),
        "stop": (STOP, StopOptions),
        "leaks": (LEAKS, LeaksOptions),
        "ssh": (SSH, SshOptions),
        "attach": (ATTACH, AttachOptions),
    })  # fmt: skip
