"""Follows a job: shows its logs, and replaces lost nodes or sees its end, as judge.py decides."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.logs import LogDisplay, LogTail
from launch.core.names import Folder
from launch.core.patience import Patience
from launch.core.perform import Say
from launch.ec2.boot import Booting, console
from launch.ec2.finding import nodes_of
from launch.ec2.judge import NeverReported, Replace, Situation, Verdict, judge, leftover_nodes
from launch.ec2.logs import streams_of
from launch.ec2.names import BACKEND_NAME, command
from launch.ec2.outcome import Record
from launch.ec2.requests import Cluster
from launch.ec2.stop_marker import says_stopped
from launch.ec2.written import members_of, record_at, spec_of
from trainer.contract import WEIGHTS, Exit
from trainer.errors import TrainerError
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
        patience = Patience(self.clock, may_pass=lambda error: not says_stopped(error))
        members, written_at = read_roster(self.aws, self.cluster.folder), self.clock.now()
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
                patience.success()
            except TrainerError as error:
                patience.failure(error)
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


def read_roster(aws: Aws, folder: Folder) -> Mapping[str, Any]:
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
