"""Follows a job: its logs, its nodes, its end.  What to do next is decided by judge(), which is pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from launch.aws import Aws
from launch.ec2.fleet import LIVE, Fleet, Node, find
from launch.ec2.logs import LogTail
from launch.ec2.lookup import read_json
from launch.ec2.names import Folder
from launch.ec2.requests import Cluster
from launch.ec2.stop import Clock
from launch.errors import AwsError
from launch.perform import Say
from trainer.contract import Exit

POLL_S = 10.0
# How long AWS may be out of reach, and how long it may have no machines for lost nodes, before we give up.
OUT_OF_REACH_S, NO_REPLACEMENT_S = 600.0, 600.0

# Steps of an exit record, see infra/ec2/boot.sh, that say nothing against the node: AWS took it, or somebody ended it.
TAKEN = ("spot", "signal")


# Reasons that EC2 gives for nodes that ran.
ENDED_ON_PURPOSE = ("Client.UserInitiated", "Client.InstanceInitiated")


@dataclass(frozen=True)
class Waiting:
    """Nothing to do."""


@dataclass(frozen=True)
class Replace:
    """These ranks have no node any more; others shall take their place."""

    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Over:
    """The job has ended.  code: what the launcher ends with."""

    code: int
    sentence: str


Verdict = Waiting | Replace | Over


def judge(
    members: Mapping[str, Any], fleet: Fleet, exits: Mapping[str, Mapping[str, Any]], restarts_left: int
) -> Verdict:
    """What follows from cluster.json, the nodes that EC2 shows, and the exit records by instance."""
    state = {node.id: node.state for node in fleet.nodes}
    rows = members["nodes"]
    records = {row["rank"]: exits[row["instance"]] for row in rows if row["instance"] in exits}
    failed = [rank for rank, record in records.items() if record["code"] != 0 and record["step"] not in TAKEN]
    if failed:
        # Of several, one that did not merely lose the others tells more.
        rank = min(failed, key=lambda rank: (records[rank]["code"] == Exit.MACHINE, rank))
        return Over(records[rank]["code"], _failed(rank, records[rank]))
    if broken := [node for node in fleet.nodes if node.id in {r["instance"] for r in rows} and _never_started(node)]:
        return Over(Exit.AWS, f"EC2 could not start {broken[0].id}: {broken[0].reason}")
    # A node that EC2 does not show yet is not lost: its listings follow its answers.
    gone = [row["rank"] for row in rows if state.get(row["instance"], "pending") not in LIVE]
    if any(record["code"] == 0 for record in records.values()):
        waiting = set(range(len(rows))) - set(records) - set(gone)
        return Waiting() if waiting else Over(Exit.DONE, "the training is done")
    lost = sorted({*gone, *records})
    if not lost:
        return Waiting()
    if restarts_left <= 0:
        return Over(Exit.MACHINE, f"node {lost[0]} was lost, and no restart is left; see --max-restarts")
    return Replace(tuple(lost))


def _never_started(node: Node) -> bool:
    """Whether EC2 gave up on a node because of what was asked for, such as a key that the volumes cannot use."""
    return not node.lives and node.reason.startswith("Client.") and not node.reason.startswith(ENDED_ON_PURPOSE)


def _failed(rank: int, record: Mapping[str, Any]) -> str:
    where = f"node {rank} ({record['instance']}) failed in step {record['step']}"
    return f"{where} with code {record['code']}: {record['reason']}"


@dataclass(frozen=True)
class Follower:
    """Follows one job.  replace_lost: brings the nodes back to their number, and returns the new cluster.json."""

    cluster: Cluster
    aws: Aws
    clock: Clock
    say: Say
    replace_lost: Callable[[], Mapping[str, Any]]

    def follow(self) -> Over:
        """Shows the logs until the job is over.  Raises AwsError when AWS was out of reach for long."""
        several = self.cluster.nodes > 1
        tail = LogTail(self.aws, self.cluster.job, several=several, since=self.cluster.started)
        members = cluster_json(self.aws, self.cluster.folder)
        heard_at = complete_at = self.clock.now()
        while True:
            try:
                verdict = self._look(tail, members)
                heard_at = self.clock.now()
            except AwsError as error:
                if self.clock.now() - heard_at > OUT_OF_REACH_S:
                    raise
                self.say(f"warning: {error}")
                verdict = Waiting()
            if isinstance(verdict, Over):
                return verdict
            if isinstance(verdict, Replace):
                members = self._replace(verdict, members)
                if self.clock.now() - complete_at > NO_REPLACEMENT_S:
                    return Over(Exit.AWS, "AWS had no machines in place of the lost ones; start the job again later")
            else:
                complete_at = self.clock.now()
            self.clock.sleep(POLL_S)

    def _look(self, tail: LogTail, members: Mapping[str, Any]) -> Verdict:
        # The records first: a node writes its own after its last line of log.
        exits = exit_records(self.aws, self.cluster.folder)
        fleet = find(self.aws, self.cluster.job)
        self._show(tail)
        return judge(members, fleet, exits, self.cluster.settled.options.max_restarts - members["restarts"])

    def _show(self, tail: LogTail) -> None:
        """Logs are good to have; a job does not end for want of them."""
        try:
            for line in tail.new_lines():
                self.say(line)
        except AwsError as error:
            self.say(f"warning: {error}")

    def _replace(self, lost: Replace, members: Mapping[str, Any]) -> Mapping[str, Any]:
        """The new cluster.json, or the old one if there was nothing to replace the lost nodes with."""
        which = ", ".join(map(str, lost.ranks))
        self.say(f"node {which} is lost; replacing it, and the job goes on from its newest checkpoint")
        try:
            return self.replace_lost()
        except AwsError as error:
            if error.aws_code not in ("NothingLeftToTry", "EndedAtOnce"):
                raise
            self.say(f"{error}\ntrying again")
            return members


def cluster_json(aws: Aws, folder: Folder) -> Mapping[str, Any]:
    """The job's cluster.json.  Raises AwsError if it has none."""
    members = read_json(aws, folder.bucket, folder.cluster)
    if members is None:
        raise AwsError(
            f"{folder.uri}/cluster.json is not there; stop the job with python -m launch.ec2 stop {folder.job}."
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
