"""What a follower does next, from what it sees of a job.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launch.ec2.fleet import LIVE, Fleet, Node
from trainer.contract import Exit

# Steps of an exit record, see infra/ec2/boot.sh, that say nothing against the node: AWS took it, or somebody ended it.
TAKEN = ("spot", "signal")
# What a record says where the training left the word to another node, see boot.sh, and how long that may take.
SILENT, WORD_S = "the training said no more", 60.0
# Reasons that EC2 gives for nodes that ran.
ENDED_ON_PURPOSE = ("Client.UserInitiated", "Client.InstanceInitiated")


@dataclass(frozen=True)
class Situation:
    """members: cluster.json; exits: the nodes' records, by instance; spec: job.json; now: seconds.

    has_results: whether the weights of the end are in the job folder; are_late: whether nodes may not be shown yet,
    as EC2's listings follow its answers.
    """

    members: Mapping[str, Any]
    fleet: Fleet
    exits: Mapping[str, Mapping[str, Any]]
    spec: Mapping[str, Any]
    now: float
    has_results: bool = True
    are_late: bool = False


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


def judge(seen: Situation, max_restarts: int) -> Verdict:
    """What follows from what is seen."""
    if "ended" in seen.spec:
        return Over(130, "the job was stopped from elsewhere")
    rows = seen.members["nodes"]
    records = {row["rank"]: seen.exits[row["instance"]] for row in rows if row["instance"] in seen.exits}
    failed = [rank for rank, record in records.items() if record["code"] != 0 and record["step"] not in TAKEN]
    if failed:
        # Of several, one that did not merely lose the others tells more.
        rank = min(failed, key=lambda rank: _says_little(rank, records[rank]))
        if _may_tell_more(seen, records[rank], others=len(rows) - len({*records, *_gone(seen)})):
            return Waiting()
        return Over(records[rank]["code"], _failed(rank, records[rank]))
    gone = _gone(seen)
    trained = [rank for rank, record in records.items() if record["code"] == 0]
    if trained and len({*records, *gone}) < len(rows):
        return Waiting()
    if len(trained) == len(rows) or (trained and seen.has_results):
        return Over(Exit.DONE, "the training is done")
    if seen.now >= seen.members["deadline"]:
        return Over(Exit.INTERRUPTED, "the time limit ended the job; start it again with more --max-hours to go on")
    lost = sorted({*gone, *records})
    if not lost:
        return Waiting()
    return _after_loss(seen, lost, max_restarts)


def _after_loss(seen: Situation, lost: list[int], max_restarts: int) -> Verdict:
    ours = {row["instance"] for row in seen.members["nodes"]}
    broken = [node for node in seen.fleet.nodes if node.id in ours and _never_started(node)]
    if broken:
        return Over(Exit.AWS, f"EC2 could not start {broken[0].id}: {broken[0].reason}")
    if seen.members["restarts"] >= max_restarts:
        return Over(Exit.MACHINE, f"node {lost[0]} was lost, and no restart is left; see --max-restarts")
    return Replace(tuple(lost))


def _gone(seen: Situation) -> set[int]:
    """The ranks whose nodes live no more; one that EC2 does not show is only late for a while, and then forgotten."""
    state = {node.id: node.state for node in seen.fleet.nodes}
    unknown = "pending" if seen.are_late else "terminated"
    return {row["rank"] for row in seen.members["nodes"] if state.get(row["instance"], unknown) not in LIVE}


def strays(seen: Situation, young_s: float) -> list[Node]:
    """Living nodes that are not in cluster.json, though old enough to be: nobody needs them."""
    ours = {row["instance"] for row in seen.members["nodes"]}
    return [n for n in seen.fleet.living if n.id not in ours and seen.now - n.launched_at.timestamp() > young_s]


def _never_started(node: Node) -> bool:
    """Whether EC2 gave up on a node because of what was asked for, such as a key that the volumes cannot use."""
    return not node.lives and node.reason.startswith("Client.") and not node.reason.startswith(ENDED_ON_PURPOSE)


def _says_little(rank: int, record: Mapping[str, Any]) -> tuple[bool, bool, int]:
    """The lower, the more the record of a failure tells."""
    return record["code"] == Exit.MACHINE, record["reason"] == SILENT, rank


def _may_tell_more(seen: Situation, record: Mapping[str, Any], others: int) -> bool:
    """Whether one of `others`, the nodes without a record, is about to say what this one does not."""
    return record["reason"] == SILENT and others > 0 and seen.now < record.get("at", 0.0) + WORD_S


def _failed(rank: int, record: Mapping[str, Any]) -> str:
    where = f"node {rank} ({record['instance']}) failed in step {record['step']}"
    remedy = "; --root-gb gives it a larger one" if record["code"] == Exit.DISK else ""
    return f"{where} with code {record['code']}: {record['reason'].rstrip('.')}{remedy}"
