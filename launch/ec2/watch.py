"""Follows a job: shows its logs, decides on the next step, replaces lost nodes, and returns its outcome."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from launch.aws.client import Aws
from launch.aws.instances.inventory import LIVE, Fleet, Node, nodes_of
from launch.aws.logs import LogDisplay, LogTail, Streams
from launch.aws.lookup import spec_of
from launch.aws.names import Folder
from launch.aws.retry import Retry
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.terminal import Say
from launch.ec2.backend import BACKEND_NAME, LOG_GROUP, command
from launch.ec2.costs import BILLED
from launch.ec2.job_folder import exit_records, is_stopped_error, members_of
from launch.ec2.records import (
    DONE,
    HEALTH,
    Booting,
    Record,
    at_time_limit,
    clearest,
    console,
    is_failure,
    is_silent,
    of_failure,
    sentence_of,
    stopped,
)
from launch.ec2.requests import Cluster
from trainer.contract import WEIGHTS, Exit
from trainer.errors import SettingsError, TrainerError
from trainer.outcome import Outcome

# After a failure without a reason, wait this long for another node's record, which may have it.
RECORD_S = 60.0
# A node's timer counts whole minutes, rounded down; see infra/ec2/boot.sh.
EARLY_S = 180.0
# EC2's reasons for ending running nodes.
ENDED_ON_PURPOSE = ("Client.UserInitiated", "Client.InstanceInitiated")


@dataclass(frozen=True)
class Situation:
    """Everything that a follower knows about a job."""

    members: Mapping[str, Any]  # cluster.json
    fleet: Fleet
    exits: Mapping[str, Record]  # the nodes' exit records, by instance
    spec: Mapping[str, Any]  # job.json
    now: float  # seconds since the epoch
    reported: Collection[str] = frozenset()  # instances that have ever reported
    has_results: bool = True  # whether the final weights are in the job folder
    may_lag: bool = False  # EC2 may not list new nodes yet

    @property
    def records(self) -> dict[int, Record]:
        """The exit records of the current nodes, by rank."""
        rows = self.members["nodes"]
        return {row["rank"]: self.exits[row["instance"]] for row in rows if row["instance"] in self.exits}

    @property
    def sick(self) -> dict[int, Record]:
        """The records of current nodes that failed their health check, by rank, the first time at that rank."""
        started, sick = self.members["started"], [r for r in self.exits.values() if r["step"] == HEALTH]
        ranks = [record["rank"] for record in sick if record.get("at", 0) >= started]
        return {
            rank: record for rank, record in self.records.items() if record["step"] == HEALTH and ranks.count(rank) == 1
        }

    @property
    def is_stopped(self) -> bool:
        """Whether another command has ended the job; not if its nodes wait for a next one, as it ended by itself."""
        records = self.records
        is_warm = len(records) == len(self.members["nodes"]) and all("warm_until" in one for one in records.values())
        return "ended" in self.spec and not is_warm

    @property
    def gone(self) -> set[int]:
        """The ranks whose nodes have ended.  EC2 lists new nodes late, and forgets ended ones after an hour."""
        states = {node.id: node.state for node in self.fleet.nodes}
        unlisted = "pending" if self.may_lag else "terminated"
        return {row["rank"] for row in self.members["nodes"] if states.get(row["instance"], unlisted) not in LIVE}

    @property
    def over(self) -> set[int]:
        """The ranks whose nodes have ended or are ending."""
        return self.gone | set(self.records)


@dataclass(frozen=True)
class Waiting:
    """Nothing to do."""


@dataclass(frozen=True)
class Replace:
    """The nodes of these ranks are lost and must be replaced."""

    ranks: tuple[int, ...]
    reasons: tuple[str, ...] = ()  # sentences, if known


@dataclass(frozen=True)
class NeverReported:
    """This node ended without ever reporting; a replacement would fail alike."""

    rank: int
    instance: str


Verdict = Waiting | Replace | NeverReported | Outcome


def decide(situation: Situation, max_restarts: int) -> Verdict:
    """The next step for a job; an Outcome if it has ended."""
    if situation.is_stopped:
        return stopped("the job was stopped by another command")
    sick = situation.sick
    failures = [record for rank, record in situation.records.items() if is_failure(record) and rank not in sick]
    if failures:
        return _after_failure(situation, clearest([*failures, *sick.values()]))
    completion = _completion(situation)
    if completion is not None:
        return completion
    # Only ended nodes: those that are ending still count as running, and cannot be replaced yet.
    lost = sorted(situation.gone)
    if situation.now >= situation.members["deadline"] - (EARLY_S if lost else 0.0):
        return at_time_limit(situation.members["job"])
    return _after_loss(situation, lost, max_restarts) if lost else Waiting()


def _after_failure(situation: Situation, record: Record) -> Verdict:
    """The outcome, or Waiting for other nodes' records if this one has no reason."""
    nodes_without_record = len(situation.members["nodes"]) - len(situation.over)
    may_learn_more = is_silent(record) and nodes_without_record > 0
    if may_learn_more and situation.now < record.get("at", 0.0) + RECORD_S:
        return Waiting()
    outcome = of_failure(record)
    if record["step"] == HEALTH and record not in situation.sick.values():
        return replace(outcome, reason=f"{outcome.reason}, as did the node that it replaced")
    return outcome


def _completion(situation: Situation) -> Verdict | None:
    """The outcome of a finished training once every node has ended; None if it is not finished, or results are lost."""
    done = [record for record in situation.records.values() if record["code"] == Exit.DONE]
    total = len(situation.members["nodes"])
    if done and len(situation.over) < total:
        return Waiting()
    return DONE if len(done) == total or (done and situation.has_results) else None


def _after_loss(situation: Situation, lost: list[int], max_restarts: int) -> Verdict:
    current = {row["instance"] for row in situation.members["nodes"]}
    for node in situation.fleet.nodes:
        if node.id in current and _never_started(node):
            return Outcome("failed", Exit.AWS, f"EC2 could not start {node.id}: {node.reason}")
    if silent := _never_reported(situation, lost):
        return silent
    sick = situation.sick
    if situation.members.get("restarts", 0) >= max_restarts:
        if sick:
            return of_failure(sick[min(sick)])
        reason = f"node {lost[0]} was lost, and no restarts are left; see --max-restarts"
        return Outcome("failed", Exit.MACHINE, reason)
    return Replace(tuple(lost), tuple(sentence_of(sick[rank]) for rank in lost if rank in sick))


def _never_reported(situation: Situation, lost: list[int]) -> NeverReported | None:
    """The first lost node that never reported, unless EC2 ended it or it was another job's warm node."""
    by_ec2 = {node.id for node in situation.fleet.nodes if node.reason.startswith("Server.")}
    heard_of = {*situation.reported, *situation.exits, *by_ec2, *situation.members.get("taken_over", ())}
    for row in situation.members["nodes"]:
        if row["rank"] in lost and row["instance"] not in heard_of:
            return NeverReported(row["rank"], row["instance"])
    return None


def _never_started(node: Node) -> bool:
    """Whether EC2 ended a node at its start because of its request, such as an unusable key of its volumes."""
    return not node.lives and node.reason.startswith("Client.") and not node.reason.startswith(ENDED_ON_PURPOSE)


def leftover_nodes(situation: Situation, young_s: float, started: datetime | None = None) -> list[Node]:
    """Living nodes older than `young_s` that are not in cluster.json, or whose exit record is older than that.

    Excludes warm nodes, and nodes of a start later than `started`: a follower may not know of it yet.
    """
    current = {row["instance"] for row in situation.members["nodes"]}
    found = []
    for node in situation.fleet.living:
        if started is not None and node.started is not None and node.started > started:
            continue
        since = node.launched_at.timestamp()
        if situation.exits.get(node.id, {}).get("warm_until", 0) > situation.now:
            continue
        if node.id in current:
            since = situation.exits.get(node.id, {}).get("at", situation.now)
        if situation.now - since > young_s:
            found.append(node)
    return found


POLL_S = 5.0
# EC2 may not list nodes for this long after their start.
APPEAR_S = 300.0


@dataclass(frozen=True)
class Follower:
    """Follows one job."""

    cluster: Cluster
    aws: Aws
    clock: Clock
    say: Say
    replace_lost: Callable[[], Mapping[str, Any]] | None  # returns the new cluster.json; None: a lost node ends the job

    def follow(self) -> Outcome:
        """Show the logs until the job has ended; return its outcome.  Raises TrainerError if AWS fails for long."""
        several = self.cluster.nodes > 1
        tail = LogTail(self.aws, streams_of(self.cluster.job), several=several, since=self.cluster.started)
        display = LogDisplay(tail, self.clock, self.say)
        retry = Retry(self.clock, is_transient=lambda error: not is_stopped_error(error))
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
        """Poll once.  written_at: when cluster.json became `members`."""
        folder = self.cluster.folder
        # Read records before logs: a node writes its record after its last line.
        exits = exit_records(self.aws, folder)
        situation = Situation(
            members,
            nodes_of(self.aws, self.cluster.job),
            exits,
            spec_of(self.aws, folder, BACKEND_NAME) or {},
            now=self.clock.now(),
            reported=booting.report(members),
            has_results=bool(exits) and self._has_results(),
            may_lag=self.clock.now() - written_at < APPEAR_S,
        )
        display.show()
        if unneeded := [node.id for node in leftover_nodes(situation, APPEAR_S, self.cluster.started)]:
            self.say(f"terminating {', '.join(unneeded)}: not part of this start of the job")
            self.aws.call("ec2", "TerminateInstances", {"InstanceIds": unneeded})
        return decide(situation, self.cluster.resolved.options.max_restarts)

    def _has_results(self) -> bool:
        """Whether this start has uploaded its weights; the node that writes them may be lost before."""
        folder = self.cluster.folder
        objects = self.aws.objects(folder.bucket, folder.run + WEIGHTS)
        return any(item["LastModified"] >= self.cluster.started for item in objects)

    def _never_reported(self, lost: NeverReported) -> Outcome:
        """The outcome of a job whose node never reported, after showing its console."""
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
    """The job's cluster.json.  Raises AwsError if it is missing."""
    members = members_of(aws, folder)
    if members is None:
        stop = command("stop", folder.job, aws.region)
        raise AwsError(f"{folder.uri}/cluster.json does not exist; remove the job with {stop}")
    return members


def streams_of(job: str) -> Streams:
    """The nodes' log streams in CloudWatch; a stream's number is its node's rank."""
    return Streams(LOG_GROUP, f"{job}/node-")


def find_ends(aws: Aws, folder: Folder, fleet: Fleet) -> Fleet:
    """`fleet` with its nodes' end times from exit records and job.json; unchanged if S3 does not answer.

    Also unchanged if job.json belongs to another backend: a stop must not fail because of it.
    """
    if not any(_is_open(node) for node in fleet.nodes if node.job == folder.job):
        return fleet
    try:
        return with_ends(fleet, folder.job, exit_records(aws, folder), spec_of(aws, folder, BACKEND_NAME))
    except (AwsError, SettingsError):
        return fleet


def with_ends(fleet: Fleet, job: str, exits: Mapping[str, Record], spec: Mapping[str, Any] | None) -> Fleet:
    """`fleet` with its nodes' end times, from files that were read.  Pure."""
    ended = (spec or {}).get("ended")

    def known(node: Node) -> Node:
        if node.job != job or not _is_open(node):
            return node
        at = exits.get(node.id, {}).get("at", ended)
        return node if at is None else replace(node, ended_at=datetime.fromtimestamp(at, UTC))

    return replace(fleet, nodes=tuple(map(known, fleet.nodes)))


def _is_open(node: Node) -> bool:
    return node.state not in BILLED and node.ended_at is None
