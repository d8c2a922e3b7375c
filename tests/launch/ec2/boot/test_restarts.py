"""Nodes that end before the job does: which restart, which give up, and which are asked to stop."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from launch.rehearse.nodes.ec2.node import programs
from tests.launch.ec2.boot.job import (
    docker_that,
    file_on,
    get,
    image_of,
    keys,
    needs_nodes,
    put,
    put_cluster,
    record,
    user_data,
    wait_for,
)
from tests.launch.ec2.nodes import Node, Region

pytestmark = pytest.mark.timeout(180)  # a boot starts dozens of processes


@needs_nodes
def test_a_node_that_no_cluster_json_names_leaves(here: Region) -> None:
    node = here.launch(user_data(seconds={"CLUSTER_S": 1}))
    put(here, "cluster.json", '{"job": "job-1", "generation": 1, "deadline": 0, "nodes": []}')

    left = record(here, node)

    assert (left["code"], left["step"], left["rank"]) == (21, "cluster", None)


@needs_nodes
@pytest.mark.slow("a node that the cluster does not name any more leaves")
def test_a_node_that_the_cluster_does_not_name_any_more_leaves(here: Region, tmp_path: Path) -> None:
    node = here.launch(user_data(), world=image_of(tmp_path, "time.sleep(1); sys.exit(6)"))
    put_cluster(here, node)
    wait_for(lambda: file_on(node, "try-0").exists(), node)

    others = json.loads(get(here, "cluster.json").replace(node.instance, "i-0123456789abcdef0"))
    put(here, "cluster.json", json.dumps(others | {"generation": 2}))

    left = record(here, node)
    assert (left["code"], left["step"]) == (21, "cluster")
    assert "was replaced" in left["reason"]


@needs_nodes
@pytest.mark.slow("without a restart left, the training's exit code is the node's")
def test_without_a_restart_left_the_trainings_exit_code_is_the_nodes(here: Region, tmp_path: Path) -> None:
    world = image_of(tmp_path, "print('error: rank 1 is lost.'); sys.exit(6)")
    node = here.launch(user_data(MAX_RESTARTS="0"), world=world)
    put_cluster(here, node)

    left = record(here, node)

    assert (left["code"], left["step"], left["restarts"]) == (6, "train", 0)
    assert left["reason"] == "no restarts left: rank 1 is lost."


@needs_nodes
@pytest.mark.slow("only a training whose nodes met uses up a restart")
def test_only_a_training_whose_nodes_met_uses_up_a_restart(here: Region, tmp_path: Path) -> None:
    world = image_of(tmp_path, """
        if tries == 0:
            print("error: the workers could not meet: nobody there;")
        sys.exit((6, 137, 0)[tries])
    """)  # fmt: skip
    node = here.launch(user_data(MAX_RESTARTS="1"), world=world)
    put_cluster(here, node)

    left = record(here, node)

    assert (left["code"], left["restarts"]) == (0, 1)


@needs_nodes
@pytest.mark.slow("nodes that never meet give up")
def test_nodes_that_never_meet_give_up(here: Region, tmp_path: Path) -> None:
    world = image_of(tmp_path, "print('error: the workers could not meet: nobody there;'); sys.exit(6)")
    node = here.launch(user_data(seconds={"MEET_S": 1}), world=world)
    put_cluster(here, node)

    left = record(here, node)

    assert (left["code"], left["step"], left["restarts"]) == (6, "train", 0)
    assert "could not connect within 1 s" in left["reason"]


@needs_nodes
@pytest.mark.slow("a node that is asked to stop while it pulls its image says so")
def test_a_node_asked_to_stop_while_it_pulls_says_so(here: Region) -> None:
    node = here.launch(user_data(), world=docker_that("pull", "exec sleep 3599"))
    put_cluster(here, node)
    wait_for(lambda: node.processes("sleep", "3599"), node)

    ask_to_stop(node, "sleep")

    left = record(here, node)
    assert (left["code"], left["step"]) == (143, "signal")
    assert "the node was stopped" in get(here, f"boot/{node.instance}.log")


@needs_nodes
def test_a_node_asked_to_stop_while_it_trains_lets_the_training_save(here: Region, tmp_path: Path) -> None:
    world = image_of(tmp_path, """
        def save(*_):
            (run / "saved").touch()
            sys.exit(75)
        signal.signal(signal.SIGTERM, save)
        (run / "ready").touch()
        time.sleep(60)
    """)  # fmt: skip
    node = here.launch(user_data(), world=world)
    put_cluster(here, node)
    wait_for(lambda: file_on(node, "ready").exists(), node)

    ask_to_stop(node)

    assert record(here, node)["code"] == 143
    assert "run/saved" in keys(here)


@needs_nodes
@pytest.mark.slow("a node that is asked to stop while it uploads what is done is done")
def test_a_node_asked_to_stop_while_it_uploads_what_is_done_is_done(here: Region, tmp_path: Path) -> None:
    world = image_of(tmp_path, "sys.exit(0)")
    upload = 'case $* in *"cp --recursive"*) sleep 5.5 ;; esac'
    world = replace(world, programs={"aws": programs()["aws"].replace("\n", f"\n{upload}\n", 1)})
    node = here.launch(user_data(), world=world)
    put_cluster(here, node)
    wait_for(lambda: node.processes("sleep", "5.5"), node)

    ask_to_stop(node)

    left = record(here, node)
    assert (left["code"], left["step"]) == (0, "train")
    assert "run/try-0" in keys(here)


def ask_to_stop(node: Node, *more: str) -> None:
    """As systemd asks when the node is stopped from outside: the boot script, its log, and programs named in `more`."""
    for name in ("/var/lib/cloud/instance/scripts/part-001", "tee", *more):
        for pid in node.processes(name):
            os.kill(pid, signal.SIGTERM)
