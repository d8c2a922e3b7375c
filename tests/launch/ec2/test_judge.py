"""What follows from the nodes that EC2 shows and the records that nodes left."""

from typing import Any

import pytest

from launch.ec2.fleet import Fleet, Node
from launch.ec2.judge import Over, Replace, Situation, Verdict, Waiting, judge, strays
from tests.launch.ec2.known import NOW, node

DEADLINE, NOW_S = 1000, 500.0
MEMBERS = {
    "nodes": [{"rank": 0, "instance": "i-0"}, {"rank": 1, "instance": "i-1"}], "restarts": 1, "deadline": DEADLINE,
}  # fmt: skip


def record(number: int, code: int, step: str = "train", reason: str = "loss is not finite") -> dict[str, Any]:
    return {"instance": f"i-{number}", "code": code, "step": step, "reason": reason}


def situation(*nodes: Node, records: tuple[dict[str, Any], ...] = (), **more: Any) -> Situation:
    exits = {r["instance"]: r for r in records}
    return Situation(**{"members": MEMBERS, "fleet": Fleet(nodes), "exits": exits, "spec": {}, "now": 0.0, **more})


def verdict(*nodes: Node, records: tuple[dict[str, Any], ...] = (), max_restarts: int = 3, **more: Any) -> Verdict:
    return judge(situation(*nodes, records=records, **more), max_restarts)


def test_nodes_that_run_are_left_alone() -> None:
    assert verdict(node(0), node(1)) == Waiting()


def test_a_node_that_ec2_does_not_show_yet_is_not_lost() -> None:
    assert verdict(node(0), are_late=True) == Waiting()


def test_a_node_that_ec2_does_not_show_any_more_is_lost() -> None:
    assert verdict(node(0)) == Replace((1,))


@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
def test_a_node_that_is_gone_is_replaced(state: str) -> None:
    assert verdict(node(0), node(1, state)) == Replace((1,))


def test_a_node_that_aws_takes_back_is_replaced_before_it_is_gone() -> None:
    assert verdict(node(0), node(1), records=(record(1, 75, "spot"),)) == Replace((1,))


def test_all_nodes_can_be_replaced() -> None:
    assert verdict(node(0, "terminated"), node(1, "terminated")) == Replace((0, 1))


def test_without_a_restart_left_a_lost_node_ends_the_job() -> None:
    over = verdict(node(0), node(1, "terminated"), max_restarts=1)
    assert over == Over(6, "node 1 was lost, and no restart is left; see --max-restarts")


def test_nodes_that_end_at_the_time_limit_are_not_replaced() -> None:
    over = verdict(node(0, "terminated"), node(1, "terminated"), now=DEADLINE)
    assert over == Over(75, "the time limit ended the job; start it again with more --max-hours to go on")


def test_nodes_that_outlive_the_time_limit_are_ended() -> None:
    assert isinstance(verdict(node(0), node(1), now=DEADLINE), Over)


def test_a_job_that_was_stopped_from_elsewhere_is_not_brought_back() -> None:
    over = verdict(node(0, "terminated"), node(1, "terminated"), spec={"ended": 1})
    assert over == Over(130, "the job was stopped from elsewhere")


def test_the_job_is_over_when_all_nodes_say_so() -> None:
    assert verdict(node(0), node(1), records=(record(0, 0),)) == Waiting()
    assert verdict(node(0), node(1), records=(record(0, 0), record(1, 0))) == Over(0, "the training is done")


def test_a_node_lost_after_the_training_was_done_is_not_missed() -> None:
    assert verdict(node(0), node(1, "terminated"), records=(record(0, 0),)) == Over(0, "the training is done")


def test_a_training_whose_results_were_lost_at_the_last_moment_goes_on() -> None:
    seen = verdict(node(0), node(1, "terminated"), records=(record(0, 0),), has_results=False)
    assert seen == Replace((0, 1))


def test_nodes_that_belong_to_no_start_are_strays_once_they_are_old_enough() -> None:
    seen = situation(node(0), node(1), node(2), now=NOW.timestamp() + 301)
    assert [stray.id for stray in strays(seen, 300)] == ["i-2"]
    assert strays(situation(node(2), now=NOW.timestamp() + 299), 300) == []


def test_a_node_that_failed_by_its_own_fault_is_not_restarted() -> None:
    over = verdict(node(0), node(1), records=(record(1, 5),))
    assert over == Over(5, "node 1 (i-1) failed in step train with code 5: loss is not finite")


def test_the_cause_is_told_rather_than_what_followed_from_it() -> None:
    over = verdict(node(0), node(1), records=(record(0, 6, reason="lost rank 1"), record(1, 22, "data", "no volume")))
    assert over == Over(22, "node 1 (i-1) failed in step data with code 22: no volume")


def test_a_node_that_left_the_word_to_another_is_given_time_to_hear_it() -> None:
    silent = {**record(1, 7, reason="the training said no more"), "at": NOW_S}
    told = {**record(0, 7, reason="cannot write model.pt; free some space."), "at": NOW_S}

    assert verdict(node(0), node(1), records=(silent,), now=NOW_S + 5) == Waiting()
    over = verdict(node(0), node(1), records=(told, silent), now=NOW_S + 10)
    assert over == Over(7, "node 0 (i-0) failed in step train with code 7: cannot write model.pt; free some space; "
                           "--root-gb gives it a larger one")  # fmt: skip


def test_a_node_that_stays_silent_is_told_of_nevertheless() -> None:
    silent = {**record(1, 125, reason="the training said no more"), "at": NOW_S}
    sentence = "node 1 (i-1) failed in step train with code 125: the training said no more"

    assert verdict(node(0), node(1), records=(silent,), now=NOW_S + 61) == Over(125, sentence)
    assert verdict(node(0, "terminated"), node(1), records=(silent,), now=NOW_S) == Over(125, sentence)
