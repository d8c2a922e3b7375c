"""The next step for a job, from the nodes that EC2 lists and the records that nodes left."""

from typing import Any

import pytest

from launch.ec2.fleet import Fleet, Node
from launch.ec2.judge import Replace, Situation, Verdict, Waiting, judge, strays
from launch.ec2.outcome import DONE, SILENT
from tests.launch.ec2.known import NAME, NOW, node
from trainer.outcome import Outcome

DEADLINE, NOW_S = 1000, 500.0
MEMBERS = {
    "nodes": [{"rank": 0, "instance": "i-0"}, {"rank": 1, "instance": "i-1"}], "restarts": 1, "deadline": DEADLINE,
    "job": NAME,
}  # fmt: skip


def record(number: int, code: int, step: str = "train", reason: str = "loss is not finite") -> dict[str, Any]:
    return {"instance": f"i-{number}", "rank": number, "code": code, "step": step, "reason": reason}


def situation(*nodes: Node, records: tuple[dict[str, Any], ...] = (), **more: Any) -> Situation:
    exits = {r["instance"]: r for r in records}
    return Situation(**{"members": MEMBERS, "fleet": Fleet(nodes), "exits": exits, "spec": {}, "now": 0.0, **more})


def verdict(*nodes: Node, records: tuple[dict[str, Any], ...] = (), max_restarts: int = 3, **more: Any) -> Verdict:
    return judge(situation(*nodes, records=records, **more), max_restarts)


def ended(*nodes: Node, **more: Any) -> Outcome:
    outcome = verdict(*nodes, **more)
    assert isinstance(outcome, Outcome)
    return outcome


def test_nodes_that_run_are_left_alone() -> None:
    assert verdict(node(0), node(1)) == Waiting()


def test_a_node_that_ec2_does_not_show_yet_is_not_lost() -> None:
    assert verdict(node(0), may_lag=True) == Waiting()


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
    outcome = ended(node(0), node(1, "terminated"), max_restarts=1)
    assert (outcome.state, outcome.exit_code) == ("failed", 6)
    assert "--max-restarts" in outcome.reason


def test_nodes_that_end_at_the_time_limit_are_not_replaced_and_the_job_can_be_resumed() -> None:
    outcome = ended(node(0, "terminated"), node(1, "terminated"), now=DEADLINE)
    assert (outcome.state, outcome.exit_code) == ("interrupted", 75)
    assert f"--job-name {NAME} and a higher --max-hours" in outcome.reason


def test_nodes_that_outlive_the_time_limit_are_ended() -> None:
    assert ended(node(0), node(1), now=DEADLINE).state == "interrupted"


def test_a_job_that_was_stopped_by_another_command_is_not_brought_back() -> None:
    outcome = ended(node(0, "terminated"), node(1, "terminated"), spec={"ended": 1})
    assert (outcome.state, outcome.exit_code) == ("stopped", 130)


def test_the_job_is_done_when_all_nodes_say_so() -> None:
    assert verdict(node(0), node(1), records=(record(0, 0),)) == Waiting()
    assert verdict(node(0), node(1), records=(record(0, 0), record(1, 0))) == DONE


def test_a_node_lost_after_the_training_was_done_is_not_missed() -> None:
    assert verdict(node(0), node(1, "terminated"), records=(record(0, 0),)) == DONE


def test_a_training_whose_results_were_lost_at_the_last_moment_resumes() -> None:
    step = verdict(node(0), node(1, "terminated"), records=(record(0, 0),), has_results=False)
    assert step == Replace((0, 1))


def test_nodes_that_belong_to_no_start_are_strays_once_they_are_old_enough() -> None:
    old = situation(node(0), node(1), node(2), now=NOW.timestamp() + 301)
    assert [stray.id for stray in strays(old, 300)] == ["i-2"]
    assert strays(situation(node(2), now=NOW.timestamp() + 299), 300) == []


def test_a_node_that_failed_by_its_own_fault_is_not_restarted() -> None:
    assert verdict(node(0), node(1), records=(record(1, 5),)) == Outcome(
        "failed", 5, "node 1 (i-1) failed in step train with exit code 5: loss is not finite"
    )


def test_the_cause_is_reported_rather_than_its_effects() -> None:
    outcome = ended(node(0), node(1), records=(record(0, 6, reason="lost rank 1"), record(1, 22, "data", "no volume")))
    assert outcome.exit_code == 22


def test_a_silent_node_waits_for_another_one_to_report_the_cause() -> None:
    silent = {**record(1, 7, reason=SILENT), "at": NOW_S}
    full = {**record(0, 7, reason="cannot write model.pt; free some space."), "at": NOW_S}

    assert verdict(node(0), node(1), records=(silent,), now=NOW_S + 5) == Waiting()
    outcome = ended(node(0), node(1), records=(full, silent), now=NOW_S + 10)
    assert "cannot write model.pt" in outcome.reason
    assert "--root-gb" in outcome.reason


def test_a_node_that_stays_silent_is_reported_nevertheless() -> None:
    silent = {**record(1, 125, reason=SILENT), "at": NOW_S}

    assert ended(node(0), node(1), records=(silent,), now=NOW_S + 61).exit_code == 125
    assert ended(node(0, "terminated"), node(1), records=(silent,), now=NOW_S).exit_code == 125
