"""Who has which rank, also after nodes were lost."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from launch.aws.instances.inventory import Fleet
from launch.ec2 import checks
from launch.ec2.describe import describe
from launch.ec2.job_folder import cluster_file, volumes_missing
from launch.ec2.requests import Cluster
from tests.launch.ec2.known import FACTS, NAME, NOW, data_volume, job, node


def cluster(**where: object) -> Cluster:
    asked = job(**where)
    return describe(asked, checks.resolve(asked), NAME, FACTS)[0]


def fleet(*nodes: Any) -> Fleet:
    return Fleet(nodes, tuple(data_volume(n.launch_index) for n in nodes))


def rows(content: dict[str, Any]) -> list[tuple[int, str, str]]:
    return [(row["rank"], row["instance"], row["data_volume"]) for row in content["nodes"]]


def test_nodes_get_ranks_in_the_order_they_were_launched() -> None:
    content = cluster_file(cluster(), fleet(node(0), node(1)), None)
    assert rows(content) == [(0, "i-0", "vol-0"), (1, "i-1", "vol-1")]
    assert (content["generation"], content["restarts"]) == (1, 0)
    assert content["nodes"][0]["address"] == "10.0.0.10"


def test_a_replacement_takes_the_rank_of_the_lost_node_and_the_others_keep_theirs() -> None:
    previous = cluster_file(cluster(), fleet(node(0), node(1)), None)
    content = cluster_file(cluster(), fleet(node(0, "terminated"), node(1), node(2, generation=2)), previous)
    assert rows(content) == [(0, "i-2", "vol-2"), (1, "i-1", "vol-1")]
    assert (content["generation"], content["restarts"]) == (2, 1)


def test_nodes_that_replace_all_others_get_no_more_time() -> None:
    """The limit begins with the first nodes; a job that may wait for capacity has one that is later by the wait."""
    waits = cluster(max_hours=2, wait_for_capacity=6)
    previous = cluster_file(waits, fleet(node(0), node(1)), None)
    later = [replace(node(n, generation=2), launched_at=NOW + timedelta(hours=1)) for n in (2, 3)]
    assert previous["deadline"] == int((NOW + timedelta(hours=2)).timestamp()) < int(waits.deadline.timestamp())
    assert cluster_file(waits, fleet(*later), previous)["deadline"] == previous["deadline"]


def test_a_new_start_of_a_job_has_all_its_restarts() -> None:
    previous = {**cluster_file(cluster(), fleet(node(0), node(1)), None), "restarts": 3, "started": 0}
    assert cluster_file(cluster(), fleet(node(5, generation=4), node(6, generation=4)), previous)["restarts"] == 0


def test_of_too_many_nodes_those_that_train_already_are_kept() -> None:
    previous = cluster_file(cluster(), fleet(node(1), node(2)), None)
    content = cluster_file(cluster(), fleet(node(0), node(1), node(2)), previous)
    assert content == previous


def test_nodes_are_content_only_once_their_volumes_are_known() -> None:
    assert volumes_missing(cluster(), Fleet((node(0), node(1)), (data_volume(0),)))
    assert not volumes_missing(cluster(), fleet(node(0), node(1)))
    assert not volumes_missing(cluster(data_s3="s3://bucket/data"), Fleet((node(0), node(1))))
