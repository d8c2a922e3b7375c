"""cluster.json: the rank, address and data volume of every node.  Pure; boot.sh reads it on each of them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from launch.ec2.inventory import Fleet, Node
from launch.ec2.names import DATA_DEVICE
from launch.ec2.requests import Cluster

ClusterFile = dict[str, Any]


def cluster_file(cluster: Cluster, fleet: Fleet, previous: Mapping[str, Any] | None) -> ClusterFile:
    """cluster.json for the living nodes of `fleet`.

    previous: the last one.  Its nodes keep their ranks, and with them their log streams; new ones fill the gaps.
    """
    known = {row["instance"] for row in (previous or {}).get("nodes", ())}
    # If there are too many nodes, prefer those that may be training already.
    chosen = sorted(fleet.living, key=lambda node: node.id not in known)[: cluster.nodes]
    rows = [
        {
            "rank": rank,
            "instance": node.id,
            "address": node.address,
            "data_volume": _volume(cluster, fleet, node),
        }
        for rank, node in ranks(chosen, previous)
    ]
    generation = max((node.generation for node in chosen), default=1)
    content = _content(cluster, generation, _restarts(cluster, generation, previous), rows)
    return {**content, "deadline": _deadline(cluster, chosen, previous)}


def _deadline(cluster: Cluster, nodes: Sequence[Node], previous: Mapping[str, Any] | None) -> int:
    """The time limit, which begins with the first nodes: a launch may have waited for them."""
    if previous is not None and previous["started"] == int(cluster.started.timestamp()):
        return int(previous["deadline"])
    limit = timedelta(hours=cluster.resolved.options.max_hours)
    ends = [node.launched_at + limit for node in nodes]
    return int(min([cluster.deadline, *ends]).timestamp())


def planned_cluster_file(cluster: Cluster) -> ClusterFile:
    """cluster.json before any node exists, with texts in <>."""
    rows = []
    for rank in range(cluster.nodes):
        volume = None if cluster.resolved.data_volume == "none" else f"<its volume {rank}>"
        address = f"<address of node {rank}>"
        rows.append({"rank": rank, "instance": f"<node {rank}>", "address": address, "data_volume": volume})
    return _content(cluster, 1, 0, rows)


def ranks(nodes: Sequence[Node], previous: Mapping[str, Any] | None) -> list[tuple[int, Node]]:
    """Every node with its rank, by rank."""
    # By rank first: no two nodes may have the same, whatever another launcher wrote there.
    rows = {row["rank"]: row["instance"] for row in (previous or {}).get("nodes", ())}
    old = {name: rank for rank, name in rows.items()}
    kept = {node.id: old[node.id] for node in nodes if old.get(node.id, len(nodes)) < len(nodes)}
    free = iter(sorted(set(range(len(nodes))) - set(kept.values())))
    ranked = [(kept[node.id] if node.id in kept else next(free), node) for node in nodes]
    return sorted(ranked, key=lambda pair: pair[0])


def volumes_missing(cluster: Cluster, fleet: Fleet) -> bool:
    """Whether a node has no data volume yet; EC2 may list volumes later than nodes."""
    if cluster.resolved.data_volume == "none":
        return False
    return any(_volume(cluster, fleet, node) is None for node in fleet.living)


def _volume(cluster: Cluster, fleet: Fleet, node: Node) -> str | None:
    """The id of the node's data volume; None if it has none."""
    if cluster.resolved.data_volume == "none":
        return None
    if cluster.resolved.data_volume == "multi-attach":
        candidates = fleet.shared_volumes
    else:
        candidates = tuple(volume for volume in fleet.kind("volume") if volume.device == DATA_DEVICE)
    return next((volume.id for volume in candidates if node.id in volume.attached_to), None)


def _restarts(cluster: Cluster, generation: int, previous: Mapping[str, Any] | None) -> int:
    """How often this start of the job was given new nodes for lost ones."""
    if previous is None or previous["started"] != int(cluster.started.timestamp()):
        return 0
    return int(previous.get("restarts", 0)) + int(generation != previous.get("generation"))


def _content(cluster: Cluster, generation: int, restarts: int, rows: Sequence[Mapping[str, Any]]) -> ClusterFile:
    return {
        "job": cluster.job,
        "started": int(cluster.started.timestamp()),
        "deadline": int(cluster.deadline.timestamp()),
        "generation": generation,
        "restarts": restarts,
        "nodes": list(rows),
    }
