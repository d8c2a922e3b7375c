"""Follows a job: shows its logs and, as judge.py decides, replaces lost nodes and sees its end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.logs import LogTail
from launch.core.lookup import read_json, spec_of
from launch.core.names import Folder
from launch.core.perform import Say
from launch.ec2.fleet import find
from launch.ec2.judge import Over, Replace, Situation, Verdict, judge, strays
from launch.ec2.logs import streams_of
from launch.ec2.names import BACKEND
from launch.ec2.requests import Cluster
from trainer.contract import WEIGHTS, Exit
from trainer.errors import TrainerError

POLL_S = 5.0
# How long AWS may be out of reach, or have no machines for lost nodes, before we give up.
PATIENCE_S = 600.0
# How long after they were started nodes may be missing in EC2's listings.
APPEAR_S = 300.0


@dataclass(frozen=True)
class Follower:
    """Follows one job.  replace_lost: brings the nodes back to their number, and returns the new cluster.json; None:
    lost nodes end the job.
    """

    cluster: Cluster
    aws: Aws
    clock: Clock
    say: Say
    replace_lost: Callable[[], Mapping[str, Any]] | None

    def follow(self) -> Over:
        """Shows the logs until the job is over.  Raises TrainerError if something went wrong for long."""
        several = self.cluster.nodes > 1
        tail = LogTail(self.aws, streams_of(self.cluster.job), several=several, since=self.cluster.started)
        members, told_at = cluster_json(self.aws, self.cluster.folder), self.clock.now()
        trouble_since: float | None = None
        while True:
            try:
                verdict = self._look(tail, members, told_at)
                if isinstance(verdict, Over):
                    return verdict
                if isinstance(verdict, Replace):
                    if self.replace_lost is None:
                        return Over(Exit.MACHINE, "its nodes are gone, without a word of how they ended")
                    self._tell_loss(verdict)
                    members, told_at = self.replace_lost(), self.clock.now()
                trouble_since = None
            except TrainerError as error:
                now = self.clock.now()
                trouble_since = now if trouble_since is None else trouble_since
                if now - trouble_since > PATIENCE_S:
                    raise
                self.say(f"warning: {error}\n  trying again")
            self.clock.sleep(POLL_S)

    def _look(self, tail: LogTail, members: Mapping[str, Any], told_at: float) -> Verdict:
        folder = self.cluster.folder
        # The records first: a node writes its own after its last line of log.
        exits = exit_records(self.aws, folder)
        seen = Situation(
            members,
            find(self.aws, self.cluster.job),
            exits,
            spec_of(self.aws, folder, BACKEND) or {},
            now=self.clock.now(),
            has_results=bool(exits) and self._has_results(),
            are_late=self.clock.now() - told_at < APPEAR_S,
        )
        self._show(tail)
        if unneeded := [node.id for node in strays(seen, APPEAR_S)]:
            self.say(f"ending {', '.join(unneeded)}, which belong to no start of the job")
            self.aws.call("ec2", "TerminateInstances", {"InstanceIds": unneeded})
        return judge(seen, self.cluster.resolved.options.max_restarts)

    def _has_results(self) -> bool:
        """Whether this start of the job has left its weights: the node that writes them may be lost before it can."""
        folder = self.cluster.folder
        query = {"Bucket": folder.bucket, "Prefix": folder.run + WEIGHTS}
        found = self.aws.pages("s3", "ListObjectsV2", "Contents", query)
        return any(item["LastModified"] >= self.cluster.started for item in found)

    def _show(self, tail: LogTail) -> None:
        """Logs are good to have; a job does not end for want of them."""
        try:
            for line in tail.new_lines():
                self.say(line)
        except AwsError as error:
            self.say(f"warning: {error}")

    def _tell_loss(self, lost: Replace) -> None:
        which = ", ".join(map(str, lost.ranks))
        self.say(f"node {which} is lost; replacing it, and the job goes on from its newest checkpoint")


def cluster_json(aws: Aws, folder: Folder) -> Mapping[str, Any]:
    """The job's cluster.json.  Raises AwsError if it has none."""
    members = read_json(aws, folder.bucket, folder.cluster)
    if members is None:
        raise AwsError(
            f"{folder.uri}/cluster.json is not there; stop the job with python -m launch.ec2 stop {folder.job}"
        )
    return members


def exit_records(aws: Aws, folder: Folder) -> dict[str, Mapping[str, Any]]:
    """The records that nodes leave when they end, by instance id."""
    listed = aws.pages("s3", "ListObjectsV2", "Contents", {"Bucket": folder.bucket, "Prefix": folder.exits})
    records = [_record(aws, folder.bucket, item["Key"]) for item in listed]
    return {record["instance"]: record for record in records if record is not None}


def _record(aws: Aws, bucket: str, key: str) -> Mapping[str, Any] | None:
    """A damaged record says no more than none: the node is gone."""
    try:
        return read_json(aws, bucket, key)
    except AwsError as error:
        if error.aws_code != "NotJson":
            raise
        return None
