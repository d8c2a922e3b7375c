"""Warm nodes: a job leaves them to the next one with the same machines, which starts on them without booting."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from launch.aws.instances.inventory import find
from launch.aws.names import DEADLINE_TAG, Folder
from launch.core.errors import Ended
from launch.ec2.facts import next_key, next_name
from launch.ec2.leaks import leaks_of, warm_times
from launch.ec2.status import job_state, overview, view
from tests.launch.ec2.known import NAME, NOW, plan
from tests.launch.ec2.world import EARLIER, Stage, idle


def folder(stage: Stage, job: str = NAME) -> Folder:
    return Folder(stage.account.bucket, job)


def tags(stage: Stage, key: str) -> set[str]:
    """What the nodes have under this tag."""
    return {stage.account.ec2.tags[node.id][key] for node in stage.account.nodes}


# ---- leaving them


@pytest.mark.parametrize("code", [0, 1])
def test_nodes_stay_after_a_training_and_after_a_scripts_own_error_and_stop_ends_them(stage: Stage, code: int) -> None:
    stage.where = {"keep_warm": 30}
    stage.events = iter([*idle(2), stage.stay_warm(code=code)])
    if code:
        with pytest.raises(Ended):
            stage.launch()
    else:
        assert stage.launch() == 0
    assert [node.state for node in stage.account.nodes] == ["running", "running"]
    assert stage.outcome is not None
    assert stage.outcome.exit_code == code
    assert any("stay warm until" in line for line in stage.said)

    stage.stop()
    assert stage.account.left() == []
    assert stage.outcome.exit_code == code


def test_nodes_are_removed_if_one_of_them_does_not_stay(stage: Stage) -> None:
    def one_stays() -> None:
        stage.stay_warm(code=1)()
        stage.leave_record(stage.cluster["nodes"][1]["instance"], 6, "train", "no restarts left")

    stage.where = {"keep_warm": 30}
    stage.events = iter([*idle(2), one_stays])
    with pytest.raises(Ended):
        stage.launch()
    assert stage.account.left() == []


def test_a_job_that_is_stopped_leaves_no_warm_nodes(stage: Stage) -> None:
    stage.where = {"keep_warm": 30}
    stage.events = iter([*idle(2), lambda: (_ for _ in ()).throw(KeyboardInterrupt)])
    with pytest.raises(Ended):
        stage.launch()
    assert stage.account.left() == []


def test_attach_leaves_nodes_warm_that_wait_already(stage: Stage) -> None:
    stage.where = {"keep_warm": 30, "detach": True}
    stage.launch()
    stage.stay_warm()()
    stage.slept_s += 600
    stage.where = {"keep_warm": 30}
    assert stage.attach() == 0
    assert [node.state for node in stage.account.nodes] == ["running", "running"]


# ---- taking them over


def test_the_next_job_starts_on_warm_nodes_and_all_that_is_theirs_is_its_own(stage: Stage) -> None:
    stage.leave_warm()
    before = {node.id for node in stage.account.nodes}
    stage.slept_s += 600
    stage.where = {"detach": True}
    assert f"on 2 warm nodes of {EARLIER}" in stage.plan().title
    stage.launch()

    assert {node.id for node in stage.account.nodes} == before == {r["instance"] for r in stage.cluster["nodes"]}
    assert before == {*stage.cluster["taken_over"]}
    assert len(stage.account.asked("RunInstances")) == 1
    assert find(stage.aws, EARLIER).is_empty
    own = find(stage.aws, NAME)
    assert [node.generation for node in own.living] == [1, 1]
    assert {one.kind for one in own.resources} == {
        "volume", "network-interface", "security-group", "placement-group", "schedule"
    }  # fmt: skip
    assert stage.account.s3_keys().count(next_key(folder(stage, EARLIER), started_of(stage, EARLIER))) == 1
    assert stage.cluster["deadline"] > stage.clock().now() + 12 * 3600 - 60  # its own --max-hours
    stage.stop()
    assert stage.account.left() == []


def started_of(stage: Stage, job: str) -> datetime:
    return datetime.fromtimestamp(stage.account.s3(f"jobs/{job}/job.json")["started"], UTC)


def test_a_quota_for_the_warm_nodes_alone_is_enough_for_the_next_job(stage: Stage) -> None:
    stage.account.quota["L-DB2E81BA"] = 16
    stage.leave_warm()
    stage.where = {"detach": True}
    assert stage.launch() == 0
    assert len(stage.account.nodes) == 2


@pytest.mark.parametrize(
    "other",
    [{"nodes": 3}, {"instance_type": "g5.4xlarge"}, {"root_gb": 200}, {"spot": True}, {"zones": "us-east-1b"},
     {"data_volume": "none", "data_s3": "s3://aws-ddp-toolkit-x/data"}, {"image": "123456789012.dkr.ecr.x/y@sha256:0"}],
    ids=lambda value: next(iter(value)),
)  # fmt: skip
def test_other_machines_are_never_taken(other: dict[str, object], stage: Stage) -> None:
    stage.leave_warm()
    stage.where = other
    assert stage.plan_anyhow().payload.cluster.warm is None


def test_a_job_may_differ_in_what_does_not_concern_the_machines(stage: Stage) -> None:
    stage.leave_warm()
    stage.where = {"max_hours": 1, "keep_warm": 5, "nproc_per_node": 1, "max_restarts": 0}
    assert stage.plan().payload.cluster.warm is not None


def test_a_node_looks_for_the_next_jobs_script_where_that_is_written(stage: Stage) -> None:
    stage.leave_warm()
    stage.where = {"detach": True}
    stage.launch()
    name = next_name(started_of(stage, EARLIER))
    assert f"\nNEXT={name} " in stage.account.nodes[0].user_data.decode()
    script = stage.account.objects()[folder(stage, EARLIER).prefix + name].value.decode()
    assert f"JOB={NAME}\n" in script


def test_nodes_that_are_about_to_end_are_left_alone(stage: Stage) -> None:
    stage.leave_warm()
    stage.slept_s += 29.5 * 60
    assert stage.plan().payload.cluster.warm is None


def test_of_two_jobs_that_want_the_same_nodes_one_gets_them_and_the_other_its_own(stage: Stage) -> None:
    stage.leave_warm()
    stage.where = {"detach": True, "job_name": "second"}
    late = stage.plan()
    stage.where = {"detach": True}
    stage.launch()
    warm = {node.id for node in stage.account.nodes}
    stage.perform(late)

    assert len(stage.account.nodes) == 4
    assert {node.id for node in find(stage.aws, NAME).living} == warm
    assert len(find(stage.aws, "second").living) == 2
    stage.stop(NAME, "second")
    assert stage.account.left() == []


def test_a_job_starts_nodes_of_its_own_if_the_warm_ones_end_meanwhile(stage: Stage) -> None:
    stage.leave_warm()
    stage.where = {"detach": True}
    late = stage.plan()
    stage.stop(EARLIER)
    stage.perform(late)
    assert len(find(stage.aws, NAME).living) == 2
    stage.stop()
    assert stage.account.left() == []


# ---- limits and price


def test_warm_minutes_are_within_the_time_limit_and_the_highest_price() -> None:
    without, warm = plan(), plan(keep_warm=60)
    (before,), (after,) = without.quotes, warm.quotes
    assert after.most_usd == pytest.approx(before.most_usd + before.usd_per_hour)  # type: ignore[operator]
    assert warm.payload.cluster.deadline - without.payload.cluster.deadline == timedelta(hours=1)
    assert warm.payload.cluster.deadline == NOW + timedelta(hours=13)
    assert "12 h and 60 min warm may cost" in str(plan(keep_warm=60, max_usd=before.most_usd).problem)


def test_a_warm_job_is_limited_anew_from_its_own_start(stage: Stage) -> None:
    stage.leave_warm()
    stage.slept_s += 1200
    stage.where = {"detach": True, "max_hours": 2, "keep_warm": 10}
    stage.launch()
    cluster = stage.plan().payload.cluster
    assert tags(stage, DEADLINE_TAG) == {f"{cluster.deadline:%Y-%m-%dT%H:%M:%SZ}"}
    assert cluster.deadline - cluster.started == timedelta(hours=2, minutes=10)
    assert stage.cluster["deadline"] == int((cluster.started + timedelta(hours=2)).timestamp())


# ---- showing them


def test_status_and_leaks_show_warm_nodes_with_their_end(stage: Stage) -> None:
    stage.leave_warm()
    fleet, now = find(stage.aws), stage.clock().utc()
    state = job_state(view(stage.aws, fleet, folder(stage, EARLIER), now))
    assert (state.summary.status, state.summary.nodes) == ("done", 2)
    assert (state.summary.usd_per_hour or 0) > 2
    assert "its 2 nodes are warm" in state.headline
    assert "warm nodes" in dict(state.facts)
    (row,) = overview(stage.aws, fleet, now).jobs
    assert row.status == "done"

    def leak(minutes: int) -> Any:
        (found,) = leaks_of(fleet, "us-east-1", now + timedelta(minutes=minutes), (), warm_times(stage.aws, fleet))
        return found

    assert leak(0).why.startswith("warm until ")
    assert (leak(0).is_leak, leak(40).is_leak) == (False, True)
