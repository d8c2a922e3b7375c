"""What follows from the nodes that EC2 shows and the records that nodes left."""

from typing import Any

import pytest

from launch.ec2.fleet import Fleet, Node
from launch.ec2.watch import Over, Replace, Verdict, Waiting, judge
from tests.launch.ec2.known import node

MEMBERS = {"nodes": [{"rank": 0, "instance": "i-0"}, {"rank": 1, "instance": "i-1"}]}


def record(number: int, code: int, step: str = "train", reason: str = "loss is not finite") -> dict[str, Any]:
    return {"instance": f"i-{number}", "code": code, "step": step, "reason": reason}


def verdict(*nodes: Node, records: tuple[dict[str, Any], ...] = (), restarts_left: int = 3) -> Verdict:
    return judge(MEMBERS, Fleet(nodes), {r["instance"]: r for r in records}, restarts_left)


def test_nodes_that_run_are_left_alone() -> None:
    assert verdict(node(0), node(1)) == Waiting()


def test_a_node_that_ec2_does_not_show_yet_is_not_lost() -> None:
    assert verdict(node(0)) == Waiting()


@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
def test_a_node_that_is_gone_is_replaced(state: str) -> None:
    assert verdict(node(0), node(1, state)) == Replace((1,))


def test_a_node_that_aws_takes_back_is_replaced_before_it_is_gone() -> None:
    assert verdict(node(0), node(1), records=(record(1, 75, "spot"),)) == Replace((1,))


def test_all_nodes_can_be_replaced() -> None:
    assert verdict(node(0, "terminated"), node(1, "terminated")) == Replace((0, 1))


def test_without_a_restart_left_a_lost_node_ends_the_job() -> None:
    over = verdict(node(0), node(1, "terminated"), restarts_left=0)
    assert over == Over(6, "node 1 was lost, and no restart is left; see --max-restarts")


def test_the_job_is_over_when_all_nodes_say_so() -> None:
    assert verdict(node(0), node(1), records=(record(0, 0),)) == Waiting()
    assert verdict(node(0), node(1), records=(record(0, 0), record(1, 0))) == Over(0, "the training is done")


def test_a_node_lost_after_the_training_was_done_is_not_missed() -> None:
    assert verdict(node(0), node(1, "terminated"), records=(record(0, 0),)) == Over(0, "the training is done")


def test_a_node_that_failed_by_its_own_fault_is_not_restarted() -> None:
    over = verdict(node(0), node(1), records=(record(1, 5),))
    assert over == Over(5, "node 1 (i-1) failed in step train with code 5: loss is not finite")


def test_the_cause_is_told_rather_than_what_followed_from_it() -> None:
    over = verdict(node(0), node(1), records=(record(0, 6, reason="lost rank 1"), record(1, 22, "data", "no volume")))
    assert over == Over(22, "node 1 (i-1) failed in step data with code 22: no volume")
