"""cluster.json: which node has which rank, address and data volume.  Pure; boot.sh reads it on every node."""

from collections.abc import Mapping, Sequence
from typing import Any

from launch.ec2.fleet import Fleet, Node
from launch.ec2.names import DATA_DEVICE
from launch.ec2.requests import Cluster

Members = dict[str, Any]


def members(cluster: Cluster, fleet: Fleet, before: Mapping[str, Any] | None) -> Members:
    """cluster.json for the living nodes of `fleet`.

    before: the last one.  Who was in it keeps its rank, and with it its log stream; the others fill the gaps.
    """
    known = {row["instance"] for row in (before or {}).get("nodes", ())}
    # Of more nodes than wanted, those that may be training already.
    chosen = sorted(fleet.living, key=lambda node: node.id not in known)[: cluster.nodes]
    ranked = ranks(chosen, before)
    rows = [
        {
            "rank": rank,
            "instance": node.id,
            "address": node.address,
            "data_volume": _volume(cluster, fleet, node),
        }
        for rank, node in ranked
    ]
    generation = max((node.generation for node in chosen), default=1)
    return _whole(cluster, generation, _restarts(cluster, generation, before), rows)


def members_of_plan(cluster: Cluster) -> Members:
    """cluster.json before any node is there."""
    rows = [{"rank": rank, "instance": f"<node {rank}>", "address": f"<address of node {rank}>",
             "data_volume": None if cluster.resolved.data_volume == "none" else f"<its volume {rank}>"}
            for rank in range(cluster.nodes)]  # fmt: skip
    return _whole(cluster, 1, 0, rows)


def ranks(nodes: Sequence[Node], before: Mapping[str, Any] | None) -> list[tuple[int, Node]]:
    """Every node with its rank, by rank."""
    old = {row["instance"]: row["rank"] for row in (before or {}).get("nodes", ())}
    kept = {node.id: old[node.id] for node in nodes if old.get(node.id, len(nodes)) < len(nodes)}
    free = iter(sorted(set(range(len(nodes))) - set(kept.values())))
    return sorted(((kept[n.id] if n.id in kept else next(free), n) for n in nodes), key=lambda pair: pair[0])


def volumes_missing(cluster: Cluster, fleet: Fleet) -> bool:
    """Whether some node has no data volume yet, as far as EC2 shows: it may do so a little later than the nodes."""
    if cluster.resolved.data_volume == "none":
        return False
    return any(_volume(cluster, fleet, node) is None for node in fleet.living)


def _volume(cluster: Cluster, fleet: Fleet, node: Node) -> str | None:
    if cluster.resolved.data_volume == "none":
        return None
    volumes = fleet.kind("volume")
    if cluster.resolved.data_volume == "multi-attach":
        return next((v.id for v in volumes if node.id in v.attached_to and v.volume_type == "io2"), None)
    return next((v.id for v in volumes if node.id in v.attached_to and v.device == DATA_DEVICE), None)


def _restarts(cluster: Cluster, generation: int, before: Mapping[str, Any] | None) -> int:
    """How often this start of the job was given new nodes for lost ones."""
    if before is None or before["started"] != int(cluster.started.timestamp()):
        return 0
    return int(before["restarts"]) + int(generation != before["generation"])


def _whole(cluster: Cluster, generation: int, restarts: int, rows: Sequence[Mapping[str, Any]]) -> Members:
    return {
        "job": cluster.job,
        "started": int(cluster.started.timestamp()),
        "deadline": int(cluster.deadline.timestamp()),
        "generation": generation,
        "restarts": restarts,
        "nodes": list(rows),
    }
