"""What can be done with jobs once they are started: status, logs, stop, leaks, ssh.  acts.py does it."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from launch.core.cli import Verb
from launch.core.options import JobOptions, RegionOptions

if TYPE_CHECKING:
    from launch.core.aws import Aws
    from launch.core.clock import Clock

Say = Callable[[str], None]


class StatusOptions(JobOptions):
    bucket: str | None = Field(None, description="where the job's folder is, if it is over and had a --bucket")


class LogsOptions(JobOptions):
    follow: bool = Field(False, description="-f: go on until the job's last node has ended")
    node: int | None = Field(None, ge=0, description="only the node of this rank")
    since: float | None = Field(None, gt=0, description="only the last so many minutes")
    bucket: str | None = Field(None, description="where the job's folder is, if it is over and had a --bucket")


class StopOptions(JobOptions):
    all: bool = Field(False, description="every job in the region")
    yes: bool = Field(False, description="yes, --all of them")
    bucket: str | None = Field(None, description="where the job's folder is, if it is over and had a --bucket")


class LeaksOptions(RegionOptions):
    all_regions: bool = Field(False, description="ask every region that the account has switched on")
    delete: bool = Field(False, description="remove what is a leak")
    running: bool = Field(False, description="with --delete: jobs within their time limit too")


class SshOptions(JobOptions):
    node: int = Field(0, ge=0, description="rank of the node")


STATUS = """\
the jobs of a region, or one job: nodes, cost, time left, training, what to type next

  python -m launch.ec2 status
  python -m launch.ec2 status JOB
"""

LOGS = """\
what the training said, also after the nodes are gone

  python -m launch.ec2 logs JOB --follow
  python -m launch.ec2 logs JOB --node 1 --since 30

Lines of several nodes begin with the node's rank: [1].  Ctrl-C ends the following, not the job.
"""

STOP = """\
ends a job: removes all that it has, and makes sure that nothing is left

  python -m launch.ec2 stop JOB
  python -m launch.ec2 stop --all --yes

Logs, and the job's folder in S3 with its results, stay.  Stopping a job twice is fine.
"""

LEAKS = """\
what jobs have in the account, what it costs, and what should not be there any more

  python -m launch.ec2 leaks --all-regions
  python -m launch.ec2 leaks --delete

A leak is what is past its job's time limit, or is left of a job without nodes.  Snapshots, logs and job folders
never are.  Exit code 0: there is no leak, or not any more; 4: there is one, or AWS could not be asked.  For cron.
"""

SSH = """\
the command that opens a shell on a node, without keys or open ports

  python -m launch.ec2 ssh JOB --node 1
"""


def verbs(make_aws: Callable[[str | None], "Aws"], clock: Callable[[], "Clock"], say: Say) -> Mapping[str, Verb]:
    """The verbs by name.  make_aws: a region, or None for the configured one -> calls to it."""

    def act(name: str) -> Callable[[Any], int]:
        def do(options: BaseModel) -> int:
            from launch.ec2.commands import Acts  # --help needs none of it

            done: int = getattr(Acts(make_aws, clock(), say), name)(options)
            return done

        return do

    return {
        "status": Verb(STATUS, StatusOptions, act("status")),
        "logs": Verb(LOGS, LogsOptions, act("logs")),
        "stop": Verb(STOP, StopOptions, act("stop")),
        "leaks": Verb(LEAKS, LeaksOptions, act("leaks")),
        "ssh": Verb(SSH, SshOptions, act("ssh")),
    }
