"""The next step for a job, from the nodes that EC2 lists and the records that nodes left."""

from dataclasses import replace
from typing import Any

import pytest

from launch.aws.instances.inventory import Fleet, Node
from launch.ec2.records import DONE, SILENT
from launch.ec2.watch import NeverReported, Replace, Situation, Verdict, Waiting, decide, leftover_nodes
from tests.launch.ec2.known import NAME, NOW, node
from trainer.outcome import Outcome

DEADLINE, NOW_S = 1000, 500.0
MEMBERS = {
    "nodes": [{"rank": 0, "instance": "i-0"}, {"rank": 1, "instance": "i-1"}], "restarts": 1, "deadline": DEADLINE,
    "job": NAME, "started": 100,
}  # fmt: skip


def record(number: int, code: int, step: str = "train", reason: str = "loss is not finite") -> dict[str, Any]:
    return {"instance": f"i-{number}", "rank": number, "code": code, "step": step, "reason": reason}


def situation(*nodes: Node, records: tuple[dict[str, Any], ...] = (), **more: Any) -> Situation:
    exits = {r["instance"]: r for r in records}
    return Situation(
        **{
            "members": MEMBERS,
            "fleet": Fleet(nodes),
            "exits": exits,
            "spec": {},
            "now": 0.0,
            "reported": {"i-0", "i-1"},
            **more,
        }
    )


def verdict(*nodes: Node, records: tuple[dict[str, Any], ...] = (), max_restarts: int = 3, **more: Any) -> Verdict:
    return decide(situation(*nodes, records=records, **more), max_restarts)


def test_a_warm_node_that_ends_as_it_is_taken_over_is_replaced() -> None:
    """Unlike a new node that never reports, it has trained before."""
    lost = situation(node(0), TIMER, reported={"i-0"})
    taken_over = replace(lost, members={**lost.members, "taken_over": ["i-0", "i-1"]})

    assert decide(lost, 3) == NeverReported(1, "i-1")
    assert decide(taken_over, 3) == Replace((1,))


def ended(*nodes: Node, **more: Any) -> Outcome:
    outcome = verdict(*nodes, **more)
    assert isinstance(outcome, Outcome)
    return outcome


GONE, BOTH_GONE = (node(0), node(1, "terminated")), (node(0, "terminated"), node(1, "terminated"))
TIMER = replace(node(1, "terminated"), reason="Client.InstanceInitiatedShutdown: Instance initiated shutdown")
SPOT = replace(node(1, "terminated"), reason="Server.SpotInstanceTermination: Spot instance termination")
TAKEN = (record(1, 75, "spot"),)


@pytest.mark.parametrize(
    ("nodes", "records", "more", "step"),
    [
        ((node(0), node(1)), (), {}, Waiting()),
        ((node(0),), (), {"may_lag": True}, Waiting()),  # EC2 does not show it yet
        ((node(0),), (), {}, Replace((1,))),  # or not any more
        (GONE, (), {}, Replace((1,))),
        (BOTH_GONE, (), {}, Replace((0, 1))),
        # A14: until it is gone it counts as running, so that each look planned a replacement of nothing.
        ((node(0), node(1)), TAKEN, {}, Waiting()),
        ((node(0), node(1, "shutting-down")), TAKEN, {}, Replace((1,))),
        # A1: the next one would be as mute, and so the fleet was replaced three times, at 125 USD on p5.48xlarge.
        ((node(0), TIMER), (), {"reported": {"i-0"}}, NeverReported(1, "i-1")),
        ((node(0),), (), {"reported": {"i-0"}}, NeverReported(1, "i-1")),
        ((node(0), TIMER), (), {}, Replace((1,))),
        ((node(0), SPOT), (), {"reported": ()}, Replace((1,))),  # it may have had no time to report
        ((node(0), node(1)), (record(0, 0),), {}, Waiting()),
        ((node(0), node(1)), (record(0, 0), record(1, 0)), {}, DONE),
        (GONE, (record(0, 0),), {}, DONE),  # lost once the training was done
        (BOTH_GONE, (record(0, 0),), {"has_results": False}, Replace((0, 1))),  # the results with them
    ],
)
def test_what_follows_from_the_nodes_that_ec2_lists(
    nodes: tuple[Node, ...], records: tuple[dict[str, Any], ...], more: dict[str, Any], step: Verdict
) -> None:
    assert verdict(*nodes, records=records, **more) == step


@pytest.mark.parametrize(("seconds", "is_limit"), [(179, True), (181, False)])
def test_a_loss_just_before_the_deadline_is_the_time_limit(seconds: int, is_limit: bool) -> None:
    """A6: the nodes' own timers round down to minutes, so that nodes end before the deadline."""
    step = verdict(node(0, "terminated"), node(1, "terminated"), now=DEADLINE - seconds)
    assert isinstance(step, Outcome if is_limit else Replace)
    assert verdict(node(0), node(1), now=DEADLINE - seconds) == Waiting()


def test_a_node_that_stays_although_it_left_a_record_is_ended() -> None:
    """Its shutdown hangs; nothing can take its place before it is gone."""
    taken = {**record(1, 75, "spot"), "at": NOW_S}
    assert leftover_nodes(situation(node(0), node(1), records=(taken,), now=NOW_S + 299), 300) == []
    assert [one.id for one in leftover_nodes(situation(node(0), node(1), records=(taken,), now=NOW_S + 301), 300)] == [
        "i-1"
    ]


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


def test_nodes_that_belong_to_no_start_are_ended_once_they_are_old_enough() -> None:
    old = situation(node(0), node(1), node(2), now=NOW.timestamp() + 301)
    assert [node.id for node in leftover_nodes(old, 300)] == ["i-2"]
    assert leftover_nodes(situation(node(2), now=NOW.timestamp() + 299), 300) == []


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


# ---- health


def sick(number: int, rank: int, at: float = NOW_S) -> dict[str, Any]:
    reason = (
        "node 1 (ip-10-0-0-11) failed its health check: GPU 0 has 3 uncorrectable memory errors; take another machine."
    )
    return {**record(number, 8, "health", reason), "rank": rank, "at": at}


SICK = "node 1 (i-1) failed its health check: GPU 0 has 3 uncorrectable memory errors"


@pytest.mark.parametrize(
    ("nodes", "records", "step"),
    [
        ((node(0), node(1)), (sick(1, 1),), Waiting()),
        (GONE, (sick(1, 1),), Replace((1,), (SICK,))),
        # One of another rank or of an earlier start has had its own replacement.
        (GONE, (sick(9, 0, NOW_S - 100), sick(8, 1, at=50), sick(1, 1)), Replace((1,), (SICK,))),
        (BOTH_GONE, (sick(0, 0), sick(1, 1)), Replace((0, 1), (SICK.replace("1 (i-1)", "0 (i-0)"), SICK))),
    ],
)
def test_a_sick_node_is_replaced_and_named_once_it_is_gone(
    nodes: tuple[Node, ...], records: tuple[dict[str, Any], ...], step: Verdict
) -> None:
    assert verdict(*nodes, records=records) == step


def test_a_node_that_takes_a_sick_ones_place_and_is_sick_too_ends_the_job() -> None:
    outcome = ended(node(0), node(1, "terminated"), records=(sick(9, 1, NOW_S - 100), sick(1, 1)))
    assert (outcome.state, outcome.exit_code) == ("failed", 8)
    assert outcome.reason == f"{SICK}, as did the node that it replaced"


def test_without_a_restart_left_a_sick_node_ends_the_job_with_what_failed() -> None:
    outcome = ended(node(0), node(1, "terminated"), records=(sick(1, 1),), max_restarts=1)
    assert (outcome.exit_code, outcome.reason) == (8, SICK)


def test_a_node_without_restarts_that_lost_a_sick_one_waits_for_its_record() -> None:
    lost_it = {**record(0, 6, reason=f"no restarts left: {SILENT}"), "at": NOW_S}
    assert verdict(node(0), node(1), records=(lost_it,), now=NOW_S + 5) == Waiting()
    outcome = ended(node(0), node(1), records=(lost_it, sick(1, 1)), now=NOW_S + 10)
    assert (outcome.exit_code, outcome.reason) == (8, SICK)


def test_a_job_that_is_done_after_a_sick_node_was_replaced_is_done() -> None:
    done = tuple({**record(number, 0), "at": NOW_S} for number in (0, 1))
    assert verdict(node(0), node(1), records=(sick(9, 1), *done)) == DONE
