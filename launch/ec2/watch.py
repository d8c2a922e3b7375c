"""Follows a job: shows its logs, and replaces lost nodes or sees its end, as judge.py decides."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from launch.aws.client import Aws
from launch.aws.logs import LogDisplay, LogTail, Streams
from launch.aws.names import Folder
from launch.aws.retry import Retry
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.terminal import Say
from launch.ec2.boot import Booting, console
from launch.ec2.costs import BILLED
from launch.ec2.inventory import Fleet, Node, nodes_of
from launch.ec2.job_folder import members_of, record_at, says_stopped, spec_of
from launch.ec2.judge import NeverReported, Replace, Situation, Verdict, judge, leftover_nodes
from launch.ec2.names import BACKEND_NAME, LOG_GROUP, command
from launch.ec2.outcome import Record
from launch.ec2.requests import Cluster
from trainer.contract import WEIGHTS, Exit
from trainer.errors import SettingsError, TrainerError
from trainer.outcome import Outcome

POLL_S = 5.0
# How long after their start nodes may be missing in EC2's listings.
APPEAR_S = 300.0


@dataclass(frozen=True)
class Follower:
    """Follows one job.

    replace_lost: brings the nodes back to their number and returns the new cluster.json; None: a lost node ends the
    job.
    """

    cluster: Cluster
    aws: Aws
    clock: Clock
    say: Say
    replace_lost: Callable[[], Mapping[str, Any]] | None

    def follow(self) -> Outcome:
        """Shows the logs until the job has ended.  Raises TrainerError if AWS fails for long."""
        several = self.cluster.nodes > 1
        tail = LogTail(self.aws, streams_of(self.cluster.job), several=several, since=self.cluster.started)
        display = LogDisplay(tail, self.clock, self.say)
        retry = Retry(self.clock, is_transient=lambda error: not says_stopped(error))
        members, written_at = read_cluster_file(self.aws, self.cluster.folder), self.clock.now()
        booting = Booting(self.aws, self.cluster.folder, self.clock, self.say)
        while True:
            try:
                verdict = self._look(display, booting, members, written_at)
                if isinstance(verdict, Outcome):
                    return verdict
                if isinstance(verdict, NeverReported):
                    return self._never_reported(verdict)
                if isinstance(verdict, Replace):
                    if self.replace_lost is None:
                        return Outcome("failed", Exit.MACHINE, "the nodes ended without a record of the reason")
                    self._announce(verdict)
                    members, written_at = self.replace_lost(), self.clock.now()
                retry.success()
            except TrainerError as error:
                retry.failure(error)
                self.say(f"warning: {error}\n  retrying")
            self.clock.sleep(POLL_S)

    def _look(self, display: LogDisplay, booting: Booting, members: Mapping[str, Any], written_at: float) -> Verdict:
        """written_at: when cluster.json became `members`."""
        folder = self.cluster.folder
        # The records before the logs: a node writes its record after its last line.
        exits = exit_records(self.aws, folder)
        situation = Situation(
            members,
            nodes_of(self.aws, self.cluster.job),
            exits,
            spec_of(self.aws, folder, BACKEND_NAME) or {},
            now=self.clock.now(),
            reported=booting.look(members),
            has_results=bool(exits) and self._has_results(),
            may_lag=self.clock.now() - written_at < APPEAR_S,
        )
        display.show()
        if unneeded := [node.id for node in leftover_nodes(situation, APPEAR_S, self.cluster.started)]:
            self.say(f"terminating {', '.join(unneeded)}: not part of this start of the job")
            self.aws.call("ec2", "TerminateInstances", {"InstanceIds": unneeded})
        return judge(situation, self.cluster.resolved.options.max_restarts)

    def _has_results(self) -> bool:
        """Whether this start of the job has uploaded its weights; the node that writes them may be lost before."""
        folder = self.cluster.folder
        query = {"Bucket": folder.bucket, "Prefix": folder.run + WEIGHTS}
        objects = self.aws.pages("s3", "ListObjectsV2", "Contents", query)
        return any(item["LastModified"] >= self.cluster.started for item in objects)

    def _never_reported(self, lost: NeverReported) -> Outcome:
        """The end of a job whose node never reported, with what EC2 has of its console."""
        self.say(f"the console of node {lost.rank} ({lost.instance}):")
        for line in console(self.aws, lost.instance):
            self.say(f"  {line}")
        return Outcome(
            "failed",
            Exit.MACHINE,
            f"node {lost.rank} ({lost.instance}) ended without ever reporting; its console, above, may say why: "
            "usually its subnet cannot reach S3, or the boot script could not run",
        )

    def _announce(self, lost: Replace) -> None:
        for reason in lost.reasons:
            self.say(reason)
        ranks = ", ".join(map(str, lost.ranks))
        nodes, are = ("node", "is") if len(lost.ranks) == 1 else ("nodes", "are")
        self.say(f"{nodes} {ranks} {are} lost; starting a replacement, then resuming from the newest checkpoint")


def read_cluster_file(aws: Aws, folder: Folder) -> Mapping[str, Any]:
    """The job's cluster.json.  Raises AwsError if it has none."""
    members = members_of(aws, folder)
    if members is None:
        stop = command("stop", folder.job, aws.region)
        raise AwsError(f"{folder.uri}/cluster.json does not exist; remove the job with {stop}")
    return members


def exit_records(aws: Aws, folder: Folder) -> dict[str, Record]:
    """The records that nodes leave when they end, by instance id."""
    listed = aws.pages("s3", "ListObjectsV2", "Contents", {"Bucket": folder.bucket, "Prefix": folder.exits})
    records = [record_at(aws, folder.bucket, item["Key"]) for item in listed]
    return {record["instance"]: record for record in records if record is not None}


def streams_of(job: str) -> Streams:
    """The nodes' streams in CloudWatch; the number of each is its node's rank."""
    return Streams(LOG_GROUP, f"{job}/node-")


def find_ends(aws: Aws, folder: Folder, fleet: Fleet) -> Fleet:
    """`fleet` with its nodes' ends from their exit records and job.json; as it is if S3 does not answer.

    Or if job.json names another backend: any launcher may write it, and no stop may fail because of it.
    """
    if not any(_is_open(node) for node in fleet.nodes if node.job == folder.job):
        return fleet
    try:
        return with_ends(fleet, folder.job, exit_records(aws, folder), spec_of(aws, folder, BACKEND_NAME))
    except (AwsError, SettingsError):
        return fleet


def with_ends(fleet: Fleet, job: str, exits: Mapping[str, Record], spec: Mapping[str, Any] | None) -> Fleet:
    """`fleet` with its nodes' ends, from files that were read.  Pure."""
    ended = (spec or {}).get("ended")

    def known(node: Node) -> Node:
        if node.job != job or not _is_open(node):
            return node
        at = exits.get(node.id, {}).get("at", ended)
        return node if at is None else replace(node, ended_at=datetime.fromtimestamp(at, UTC))

    return replace(fleet, nodes=tuple(map(known, fleet.nodes)))


def _is_open(node: Node) -> bool:
    return node.state not in BILLED and node.ended_at is None
