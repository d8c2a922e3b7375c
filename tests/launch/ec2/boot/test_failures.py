"""Nodes that fail, at every step of their boot: each says where and why, and turns itself off."""

import json
from typing import Any

import pytest

from tests.launch.ec2.boot.job import (
    docker_that,
    get,
    needs_nodes,
    put_cluster,
    record,
    user_data,
)
from tests.launch.ec2.nodes import Region, World

pytestmark = pytest.mark.timeout(180)  # a boot starts dozens of processes
SLOW = pytest.mark.slow("a node whose data, image or container fails says so and turns itself off")
FAILURES = [
    pytest.param(20, "metadata", "does not answer", {"METADATA_S": 1}, {}, World(has_metadata=False), id="metadata"),
    pytest.param(22, "data", "vol-0gone was not attached", {"VOLUME_S": 1}, {"DATA_VOLUME": "per-node"}, World(),
                 id="volume"),
    pytest.param(22, "data", "cannot copy s3://nobodys", {}, {"DATA_S3": "s3://nobodys/data"}, World(),
                 id="data", marks=SLOW),
    pytest.param(24, "image", "cannot pull 1234", {"PULL_S": 1}, {}, docker_that("pull", "exec sleep 100"),
                 id="image", marks=SLOW),
    pytest.param(125, "train", "unknown flag: --gpus none", {}, {"DOCKER_FLAGS": ["--gpus", "none"]}, World(),
                 id="docker", marks=SLOW),
]  # fmt: skip


@needs_nodes
@pytest.mark.parametrize(("code", "step", "words", "seconds", "values", "world"), FAILURES)
def test_a_node_that_fails_says_where_and_turns_itself_off(
    code: int, step: str, words: str, seconds: dict[str, float], values: dict[str, Any], world: World, here: Region
) -> None:
    node = here.launch(user_data(seconds=seconds, **values), world=world)
    put_cluster(here, node, volume="vol-0gone")

    node.wait_until_off()

    left = json.loads((node.root / "run/ddp/exit.json").read_text())
    assert (left["code"], left["step"], left["restarts"]) == (code, step, 0)
    assert words in left["reason"]
    assert node.shutdowns[-1] == "-h now"
    if world.has_metadata:  # without them it has no name, and no right to write
        assert json.loads(get(here, f"exits/{node.instance}.json")) == left
        assert words in get(here, f"boot/{node.instance}.log")


@needs_nodes
def test_a_node_turns_itself_off_though_s3_is_out_of_reach(here: Region) -> None:
    script = user_data(seconds={"CLUSTER_S": 1, "AWS_MAX_ATTEMPTS": 1})
    node = here.launch(script, world=World(aws="http://10.77.0.1:9"))

    node.wait_until_off()

    assert node.shutdowns == ["-h +90", "-h now"]


@needs_nodes
@pytest.mark.slow("a node whose subnet leads to S3 only says that it cannot get its image")
def test_a_node_whose_subnet_leads_to_s3_only_says_that_it_cannot_get_its_image(here: Region) -> None:
    world = World(reaches=frozenset({"s3"}))
    node = here.launch(user_data(seconds={"AWS_MAX_ATTEMPTS": 1}), world=world)
    put_cluster(here, node)

    left = record(here, node)

    assert (left["code"], left["step"]) == (23, "login")
    assert "Could not connect to the endpoint URL" in get(here, f"boot/{node.instance}.log")
