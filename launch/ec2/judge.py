"""The next step for a job that is followed.  Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from launch.ec2.inventory import LIVE, Fleet, Node
from launch.ec2.outcome import (
    DONE,
    HEALTH,
    Record,
    at_time_limit,
    clearest,
    is_failure,
    is_silent,
    of_failure,
    sentence_of,
    stopped,
)
from trainer.contract import Exit
from trainer.outcome import Outcome

# How long a silent node's failure waits for another node's record, which may tell the cause.
RECORD_S = 60.0
# A node's own timer counts whole minutes, and rounds them down; see infra/ec2/boot.sh.
EARLY_S = 180.0
# EC2's reasons for the end of nodes that ran.
ENDED_ON_PURPOSE = ("Client.UserInitiated", "Client.InstanceInitiated")


@dataclass(frozen=True)
class Situation:
    """What a follower knows of a job.

    members: cluster.json; exits: the nodes' exit records, by instance; spec: job.json; now: seconds since the epoch.
    reported: the instances that have ever been heard of; has_results: whether the final weights are in the job folder;
    may_lag: EC2 may not list new nodes yet.
    """

    members: Mapping[str, Any]
    fleet: Fleet
    exits: Mapping[str, Record]
    spec: Mapping[str, Any]
    now: float
    reported: Collection[str] = frozenset()
    has_results: bool = True
    may_lag: bool = False

    @property
    def records(self) -> dict[int, Record]:
        """The exit records of the current nodes, by rank."""
        rows = self.members["nodes"]
        return {row["rank"]: self.exits[row["instance"]] for row in rows if row["instance"] in self.exits}

    @property
    def sick(self) -> dict[int, Record]:
        """The records of current nodes that failed their health check, by rank, where no earlier node had done so."""
        started, sick = self.members["started"], [r for r in self.exits.values() if r["step"] == HEALTH]
        ranks = [record["rank"] for record in sick if record.get("at", 0) >= started]
        return {
            rank: record for rank, record in self.records.items() if record["step"] == HEALTH and ranks.count(rank) == 1
        }

    @property
    def gone(self) -> set[int]:
        """The ranks whose nodes have ended.  EC2 lists new nodes late, and forgets ended ones after an hour."""
        states = {node.id: node.state for node in self.fleet.nodes}
        unlisted = "pending" if self.may_lag else "terminated"
        return {row["rank"] for row in self.members["nodes"] if states.get(row["instance"], unlisted) not in LIVE}

    @property
    def over(self) -> set[int]:
        """The ranks whose nodes have ended, or are about to."""
        return self.gone | set(self.records)


@dataclass(frozen=True)
class Waiting:
    """Nothing to do."""


@dataclass(frozen=True)
class Replace:
    """The nodes of these ranks are lost; new ones take their place.  reasons: sentences, as far as they are known."""

    ranks: tuple[int, ...]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class NeverReported:
    """This node ended without ever having reported: another one in its place would do the same."""

    rank: int
    instance: str


Verdict = Waiting | Replace | NeverReported | Outcome


def judge(situation: Situation, max_restarts: int) -> Verdict:
    """The next step for a job in this situation; an Outcome if it has ended."""
    if "ended" in situation.spec:
        return stopped("the job was stopped by another command")
    sick = situation.sick
    failures = [record for rank, record in situation.records.items() if is_failure(record) and rank not in sick]
    if failures:
        return _after_failure(situation, clearest([*failures, *sick.values()]))
    completion = _completion(situation)
    if completion is not None:
        return completion
    # Not those that are about to end: until then they count as running, and nothing can take their places.
    lost = sorted(situation.gone)
    if situation.now >= situation.members["deadline"] - (EARLY_S if lost else 0.0):
        return at_time_limit(situation.members["job"])
    return _after_loss(situation, lost, max_restarts) if lost else Waiting()


def _after_failure(situation: Situation, record: Record) -> Verdict:
    """Waits for nodes that may tell the cause if this record does not."""
    nodes_without_record = len(situation.members["nodes"]) - len(situation.over)
    may_learn_more = is_silent(record) and nodes_without_record > 0
    if may_learn_more and situation.now < record.get("at", 0.0) + RECORD_S:
        return Waiting()
    outcome = of_failure(record)
    if record["step"] == HEALTH and record not in situation.sick.values():
        return replace(outcome, reason=f"{outcome.reason}, as did the node that it replaced")
    return outcome


def _completion(situation: Situation) -> Verdict | None:
    """Whether the training is done, once every node has ended; None if it is not, or nodes were lost with results."""
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
    """The first lost node that never reported, unless EC2 itself ended it."""
    by_ec2 = {node.id for node in situation.fleet.nodes if node.reason.startswith("Server.")}
    heard_of = {*situation.reported, *situation.exits, *by_ec2}
    for row in situation.members["nodes"]:
        if row["rank"] in lost and row["instance"] not in heard_of:
            return NeverReported(row["rank"], row["instance"])
    return None


def _never_started(node: Node) -> bool:
    """Whether EC2 rejected a node because of its request, such as a key that the volumes cannot use."""
    return not node.lives and node.reason.startswith("Client.") and not node.reason.startswith(ENDED_ON_PURPOSE)


def leftover_nodes(situation: Situation, young_s: float, started: datetime | None = None) -> list[Node]:
    """Living nodes that are not in cluster.json and older than `young_s` seconds, or have left a record so long ago.

    Not those of a later start of the job than the one that `started` then: a follower may not know of it yet.
    """
    current = {row["instance"] for row in situation.members["nodes"]}
    found = []
    for node in situation.fleet.living:
        if started is not None and node.started is not None and node.started > started:
            continue
        since = node.launched_at.timestamp()
        if node.id in current:
            since = situation.exits.get(node.id, {}).get("at", situation.now)
        if situation.now - since > young_s:
            found.append(node)
    return found
