"""The next step for a job that is followed.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launch.ec2.fleet import LIVE, Fleet, Node
from launch.ec2.outcome import DONE, SILENT, Record, at_time_limit, clearest, is_failure, of_failure, stopped
from trainer.contract import Exit
from trainer.outcome import Outcome

# How long a silent node's failure waits for another node's record, which may tell the cause.
RECORD_S = 60.0
# EC2's reasons for the end of nodes that ran.
ENDED_ON_PURPOSE = ("Client.UserInitiated", "Client.InstanceInitiated")


@dataclass(frozen=True)
class Situation:
    """What a follower knows of a job.

    members: cluster.json; exits: the nodes' exit records, by instance; spec: job.json; now: seconds since the epoch.
    has_results: whether the final weights are in the job folder; may_lag: EC2 may not list new nodes yet.
    """

    members: Mapping[str, Any]
    fleet: Fleet
    exits: Mapping[str, Record]
    spec: Mapping[str, Any]
    now: float
    has_results: bool = True
    may_lag: bool = False

    @property
    def records(self) -> dict[int, Record]:
        """The exit records of the current nodes, by rank."""
        rows = self.members["nodes"]
        return {row["rank"]: self.exits[row["instance"]] for row in rows if row["instance"] in self.exits}

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
    """The nodes of these ranks are lost; new ones take their place."""

    ranks: tuple[int, ...]


Verdict = Waiting | Replace | Outcome


def judge(situation: Situation, max_restarts: int) -> Verdict:
    """The next step for a job in this situation; an Outcome if it has ended."""
    if "ended" in situation.spec:
        return stopped("the job was stopped by another command")
    failures = [record for record in situation.records.values() if is_failure(record)]
    if failures:
        return _after_failure(situation, clearest(failures))
    completion = _completion(situation)
    if completion is not None:
        return completion
    if situation.now >= situation.members["deadline"]:
        return at_time_limit(situation.members["job"])
    lost = sorted(situation.over)
    return _after_loss(situation, lost, max_restarts) if lost else Waiting()


def _after_failure(situation: Situation, record: Record) -> Verdict:
    """Waits for nodes that may tell the cause if this record does not."""
    nodes_without_record = len(situation.members["nodes"]) - len(situation.over)
    may_learn_more = record["reason"] == SILENT and nodes_without_record > 0
    if may_learn_more and situation.now < record.get("at", 0.0) + RECORD_S:
        return Waiting()
    return of_failure(record)


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
    if situation.members["restarts"] >= max_restarts:
        reason = f"node {lost[0]} was lost, and no restarts are left; see --max-restarts"
        return Outcome("failed", Exit.MACHINE, reason)
    return Replace(tuple(lost))


def _never_started(node: Node) -> bool:
    """Whether EC2 rejected a node because of its request, such as a key that the volumes cannot use."""
    return not node.lives and node.reason.startswith("Client.") and not node.reason.startswith(ENDED_ON_PURPOSE)


def strays(situation: Situation, young_s: float) -> list[Node]:
    """Living nodes that are not in cluster.json and older than `young_s` seconds: nothing uses them."""
    current = {row["instance"] for row in situation.members["nodes"]}
    others = [node for node in situation.fleet.living if node.id not in current]
    return [node for node in others if situation.now - node.launched_at.timestamp() > young_s]
