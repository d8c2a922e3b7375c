"""The verbs for jobs that were started: status, logs, stop, leaks, ssh, attach.  commands.py carries them out."""

from collections.abc import Mapping

from pydantic import Field

from launch.core.options import Options, WordList
from launch.core.verbs import Verb, verbs_of
from launch.ec2.runtime import Runtime


class RegionsOptions(Options):
    """Options of every verb."""

    region: WordList = Field((), description="AWS regions to look in (default: the one in your AWS configuration)")


class JobOptions(RegionsOptions):
    """Options of a verb about one job."""

    job: str | None = Field(None, description="name of the job; may be given first, without the flag")


class BucketOptions(JobOptions):
    bucket: str | None = Field(None, description="bucket of the job folder, for an ended job that had its own --bucket")


class LogsOptions(BucketOptions):
    follow: bool = Field(False, description="-f: keep printing until the job's last node has ended")
    node: int | None = Field(None, ge=0, description="only the node with this rank")
    since: float | None = Field(None, gt=0, description="only the last N minutes")


class StopOptions(BucketOptions):
    all: bool = Field(False, description="every job in the regions")
    yes: bool = Field(False, description="skip the confirmation of --all")


class LeaksOptions(RegionsOptions):
    all_regions: bool = Field(False, description="check every region that is enabled for the account")
    delete: bool = Field(False, description="remove the leaks, after confirmation")
    yes: bool = Field(False, description="skip the confirmation of --delete")
    running: bool = Field(False, description="with --delete: also remove jobs within their time limit")


class SshOptions(JobOptions):
    node: int = Field(0, ge=0, description="rank of the node")


STATUS = """\
show the jobs of a region, or one job: nodes, cost, time left, progress, next commands

  python -m launch.ec2 status
  python -m launch.ec2 status JOB
"""

LOGS = """\
print the log of a training, even after its nodes are gone

  python -m launch.ec2 logs JOB --follow
  python -m launch.ec2 logs JOB --node 1 --since 30

With several nodes, each line begins with the rank of its node: [1].  Ctrl-C ends this command, not the job.
"""

STOP = """\
stop a job: remove all its resources and verify that none is left

  python -m launch.ec2 stop JOB
  python -m launch.ec2 stop --all --yes

Logs and the job's folder in S3, with its results, are kept.  Stopping a job twice is safe.
"""

LEAKS = """\
list the resources of all jobs, their price, and which of them are leaks

  python -m launch.ec2 leaks --all-regions
  python -m launch.ec2 leaks --delete

--delete asks first; --yes skips the question.

A resource is a leak if its job is past the time limit, or has no nodes any more and does not wait for capacity.
Snapshots, logs and job folders never are.  Exit code 0: no leak is left; 4: one is, or AWS did not answer.  Suitable
for cron.
"""

SSH = """\
print the command that opens a shell on a node, without keys or open ports

  python -m launch.ec2 ssh JOB --node 1
"""

ATTACH = """\
follow a detached job to its end, replace nodes that it loses, and remove it

  python -m launch.ec2 attach JOB
"""


def verbs(runtime: Runtime) -> Mapping[str, Verb]:
    """The verbs by name."""

    def commands() -> object:
        from launch.ec2.commands import Commands  # --help does not need it

        return Commands(runtime)

    return verbs_of(commands, {
        "status": (STATUS, BucketOptions),
        "logs": (LOGS, LogsOptions),
        "stop": (STOP, StopOptions),
        "leaks": (LEAKS, LeaksOptions),
        "ssh": (SSH, SshOptions),
        "attach": (ATTACH, BucketOptions),
    })  # fmt: skip
