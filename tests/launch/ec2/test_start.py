"""The life of a job: started, followed, taken down, and nothing left, whatever happens."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from launch.errors import AwsError, Ended
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import NAME
from tests.launch.ec2.world import Stage, idle
from tests.launch.faults import Died, Faults, died_after, injected, lost


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Account.opened() as account:
        yield Stage(account)


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_job_is_started_followed_and_taken_down(stage: Stage) -> None:
    stage.events = iter([*idle(3), stage.end_nodes()])
    assert stage.launch() == 0
    assert stage.account.left() == []
    assert [params["MinCount"] for params in stage.account.asked("RunInstances")] == [2]
    assert any("none is left; the job cost about" in line for line in stage.said)
    assert stage.said[-1] == (
        f"the training is done; results: aws s3 sync s3://{stage.account.bucket}/jobs/{NAME}/run runs/{NAME}"
    )


def test_nodes_are_told_of_each_other_with_their_volumes(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    nodes = {node.id: node for node in stage.account.nodes}
    rows = stage.cluster["nodes"]
    assert [row["rank"] for row in rows] == [0, 1]
    assert {row["instance"]: row["address"] for row in rows} == {i: n.private_ip for i, n in nodes.items()}
    assert len({row["data_volume"] for row in rows}) == 2


def test_a_lost_node_is_replaced_and_keeps_its_rank(stage: Stage) -> None:
    told: list[dict[str, Any]] = []
    look = [lambda: told.append(stage.cluster), stage.end_nodes()]
    stage.events = iter([*idle(2), stage.lose_node(1), *idle(3), *look])
    assert stage.launch() == 0
    assert [params["MinCount"] for params in stage.account.asked("RunInstances")] == [2, 1]
    assert (told[0]["generation"], told[0]["restarts"]) == (2, 1)
    assert [row["rank"] for row in told[0]["nodes"]] == [0, 1]
    assert stage.account.left() == []


def test_lost_nodes_are_replaced_only_so_often(stage: Stage) -> None:
    stage.where = {"max_restarts": 1}
    stage.events = iter([*idle(2), stage.lose_node(0), *idle(3), stage.lose_node(1)])
    with pytest.raises(Ended, match="node 1 was lost, and no restart is left") as ended:
        stage.launch()
    assert ended.value.code == 6
    assert stage.account.left() == []


def test_a_job_waits_for_machines_to_replace_lost_ones(stage: Stage) -> None:
    def no_machines() -> None:
        stage.lose_node(0)()
        stage.account.capacity["g5.2xlarge"] = 0

    def machines() -> None:
        del stage.account.capacity["g5.2xlarge"]

    stage.events = iter([*idle(2), no_machines, *idle(4), machines, *idle(3), stage.end_nodes()])
    assert stage.launch() == 0
    assert any("no capacity" in line for line in stage.said)


def test_a_training_that_fails_ends_the_job_with_its_code(stage: Stage) -> None:
    stage.events = iter([*idle(2), stage.end_nodes(code=5, reason="the loss is not finite")])
    with pytest.raises(
        Ended, match=r"node 0 \(i-\w+\) failed in step train with code 5: the loss is not finite"
    ) as ended:
        stage.launch()
    assert ended.value.code == 5
    assert stage.account.left() == []
    assert len(stage.account.asked("RunInstances")) == 1


def test_the_next_zone_and_the_next_type_are_tried(stage: Stage) -> None:
    zones = list(stage.account.subnets)
    stage.account.capacity["g5.2xlarge"] = 0
    stage.account.capacity[("g6.2xlarge", zones[0])] = 0
    stage.where = {"instance_type": ("g5.2xlarge", "g6.2xlarge"), "detach": True}
    assert stage.launch() == 0
    assert {node.instance_type for node in stage.account.nodes} == {"g6.2xlarge"}


def test_no_machines_anywhere_is_told_with_a_table_and_leaves_nothing(stage: Stage) -> None:
    stage.account.capacity["g5.2xlarge"] = 0
    with pytest.raises(AwsError, match="nowhere to start") as none:
        stage.launch()
    assert "type        zone        market     answer\n  g5.2xlarge  us-east-1a  on demand  no capacity" in str(
        none.value
    )
    assert stage.account.left() == []


def test_ctrl_c_stops(stage: Stage) -> None:
    stage.events = iter([*idle(3), interrupt])
    with pytest.raises(Ended, match="stopped as asked") as ended:
        stage.launch()
    assert ended.value.code == 130
    assert stage.account.left() == []


def test_ctrl_c_detaches_if_the_user_says_so_and_attach_takes_the_job_down(stage: Stage) -> None:
    stage.may_detach = True
    stage.events = iter([*idle(3), interrupt])
    assert stage.launch() == 0
    assert len(stage.account.nodes) == 2
    stage.events = iter([*idle(2), stage.end_nodes()])
    assert stage.attach() == 0
    assert len(stage.account.asked("RunInstances")) == 1
    assert stage.account.left() == []


def test_attach_to_a_job_whose_nodes_have_ended_tells_how_and_cleans_up(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    stage.end_nodes()()
    stage.where = {}
    assert stage.attach() == 0
    assert len(stage.account.asked("RunInstances")) == 1
    assert stage.account.left() == []


def test_a_second_start_joins_the_first(stage: Stage) -> None:
    stage.where = {"detach": True}
    assert stage.launch() == stage.launch() == 0
    assert len(stage.account.nodes) == 2
    assert len(stage.account.asked("RunInstances")) == 1


def test_stopping_twice_is_fine(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    stage.stop()
    assert stage.account.left() == []
    stage.stop()
    assert stage.said[-1] == f"nothing of {NAME} is left in us-east-1"


def test_a_job_that_was_stopped_can_be_started_again(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    stage.stop()
    assert stage.launch() == 0
    assert len(stage.account.nodes) == 2
    assert stage.cluster["generation"] == 2


def test_a_node_that_ec2_could_not_start_ends_the_job_with_ec2s_reason(stage: Stage) -> None:
    reason = "Client.InvalidKMSKey.InvalidState: the key is disabled"
    stage.events = iter([lambda: stage.account.kill(stage.account.nodes[0].id, reason)])
    with pytest.raises(Ended, match=f"EC2 could not start i-\\w+: {reason}") as ended:
        stage.launch()
    assert ended.value.code == 4
    assert stage.account.left() == []


def test_nodes_that_ec2_shows_late_are_waited_for(stage: Stage) -> None:
    """Also where the nodes of an earlier start are shown, which have ended."""
    stage.account.slow.hidden = 2
    stage.where = {"detach": True}
    for _ in range(2):
        assert stage.launch() == 0
        assert len(stage.account.nodes) == 2
        stage.stop()
    assert stage.account.left() == []


def test_a_stop_right_after_a_launch_that_died_waits_for_nodes_that_ec2_shows_late(stage: Stage) -> None:
    stage.account.slow.hidden = 2
    stage.where = {"detach": True}
    with injected(Faults().on("RunInstances", died_after())), suppress(Died):
        stage.launch()
    assert len(stage.account.nodes) == 2
    stage.stop()
    assert stage.account.left() == []


def test_a_lost_answer_about_the_security_group_is_made_up_for(stage: Stage) -> None:
    stage.where = {"detach": True}
    with injected(Faults().on("CreateSecurityGroup", lost(attempts=1))):
        assert stage.launch() == 0
    assert len(stage.account.nodes) == 2


def test_one_volume_is_attached_to_all_nodes_and_goes_with_them(stage: Stage) -> None:
    stage.where = {"data_volume": "multi-attach"}
    stage.events = iter([*idle(6), stage.end_nodes()])
    assert stage.launch() == 0
    assert len(stage.account.asked("AttachVolume")) == 2
    assert stage.account.left() == []


def test_as_many_calls_for_64_nodes_as_for_2() -> None:
    asked = []
    for count in (2, 64):
        with Account.opened() as account:
            Stage(account, where={"detach": True, "nodes": count}).launch()
            assert len(account.nodes) == count
            asked.append(account.operations)
    assert asked[0] == asked[1]
