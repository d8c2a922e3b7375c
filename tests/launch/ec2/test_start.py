"""The life of a job: started, followed, taken down, and nothing left, whatever happens."""

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest

from launch.aws.client import Aws
from launch.aws.instances.inventory import find
from launch.aws.names import Folder
from launch.core.errors import AwsError, Ended
from launch.core.signals import Hangup
from launch.ec2 import requests
from launch.ec2.job_folder import job_named
from launch.ec2.start import launch
from launch.ec2.stop import mark_stopped
from tests.launch.ec2.account import SPOT_INTERRUPTION, Account
from tests.launch.ec2.known import NAME
from tests.launch.ec2.world import Stage, idle
from tests.launch.faults import (
    Fault,
    Faults,
    injected,
    refused,
    throttled,
    unreachable,
)
from trainer.errors import SettingsError

NO_MACHINE = "Server.InsufficientInstanceCapacity: There was insufficient capacity available"


def raising(error: BaseException) -> Callable[..., Any]:
    def act(*_: object, **__: object) -> Any:
        raise error

    return act


def test_the_cluster_file_lists_all_nodes_with_their_volumes(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    nodes = {node.id: node for node in stage.account.nodes}
    rows = stage.cluster["nodes"]
    assert [row["rank"] for row in rows] == [0, 1]
    assert {row["instance"]: row["address"] for row in rows} == {i: n.private_ip for i, n in nodes.items()}
    assert len({row["data_volume"] for row in rows}) == 2


def test_a_lost_node_is_replaced_and_keeps_its_rank(stage: Stage) -> None:
    clusters: list[dict[str, Any]] = []
    look = [lambda: clusters.append(stage.cluster), stage.end_nodes()]
    stage.events = iter([*idle(2), stage.lose_node(1), *idle(3), *look])
    assert stage.launch() == 0
    assert [params["MinCount"] for params in stage.account.asked("RunInstances")] == [2, 1]
    assert (clusters[0]["generation"], clusters[0]["restarts"]) == (2, 1)
    assert [row["rank"] for row in clusters[0]["nodes"]] == [0, 1]
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


def test_a_launch_waits_for_capacity_and_then_has_all_of_its_time(stage: Stage) -> None:
    """A18; its nodes then have all of --max-hours."""

    def machines() -> None:
        del stage.account.capacity["g5.2xlarge"]

    stage.account.capacity["g5.2xlarge"] = 0
    stage.where = {"detach": True, "wait_for_capacity": 1, "max_hours": 0.5}
    stage.events = iter([*idle(3), machines])
    assert stage.launch() == 0
    assert len(stage.account.nodes) == 2
    assert 4 * 300 <= stage.slept_s < 5 * 300
    assert sum(line.startswith("no capacity; retrying in 5 min, for ") for line in stage.said) == 4
    assert stage.cluster["deadline"] == pytest.approx(time.time() + 1800, abs=60)  # EC2's clock stands still
    last = [*stage.account.asked("CreateSchedule"), *stage.account.asked("UpdateSchedule")][-1]
    limit = datetime.fromtimestamp(stage.cluster["deadline"], UTC) + timedelta(minutes=5)
    assert last["ScheduleExpression"] == f"at({limit:%Y-%m-%dT%H:%M:%S})"


def test_waiting_in_vain_ends_with_a_table_of_what_was_tried_and_leaves_nothing(stage: Stage) -> None:
    stage.account.capacity["g5.2xlarge"] = 0
    stage.where = {"wait_for_capacity": 0.25, "zones": "us-east-1a"}
    with pytest.raises(Ended, match=r"no capacity within 0\.25 h") as ended:
        stage.launch()
    table = str(ended.value).splitlines()[1:3]
    assert [line.split() for line in table] == [
        ["type", "zone", "market", "answer", "times"],
        ["g5.2xlarge", "us-east-1a", "on", "demand", "no", "capacity", "4"],
    ]
    assert stage.account.left() == []


def test_a_launch_waits_for_room_in_its_reservation(stage: Stage) -> None:
    name = stage.account.reserve("us-east-1b", "g5.2xlarge", 1)

    def more() -> None:
        stage.account.rules.reservations[name].available_instance_count = 2

    stage.where = {"detach": True, "wait_for_capacity": 1, "capacity_reservation": name}
    stage.events = iter([more])
    stage.launch_anyhow()
    assert len(stage.account.nodes) == 2
    assert stage.slept_s == pytest.approx(300, abs=30)


def test_what_ec2_does_not_support_is_quoted_and_not_waited_for(stage: Stage) -> None:
    stage.where = {"wait_for_capacity": 1, "zones": "us-east-1a"}
    message = "The requested configuration is currently not supported. Please check the documentation"
    with (
        injected(Faults().on("RunInstances", refused("Unsupported", 400, message), nth=None)),
        pytest.raises(Ended, match=r"not supported here: .*The requested configuration is currently not supported"),
    ):
        stage.launch()
    assert stage.slept_s < 60


def test_no_spot_capacity_leads_to_the_next_zone(stage: Stage) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html"""
    stage.where = {"spot": True, "detach": True}
    with injected(Faults().on("RunInstances", refused("UnfulfillableCapacity", 500))) as faults:
        assert stage.launch() == 0
        assert faults.slept == []  # the zone is not asked again
    first, second = stage.account.asked("RunInstances")
    assert first["NetworkInterfaces"][0]["SubnetId"] != second["NetworkInterfaces"][0]["SubnetId"]


def test_ctrl_c_detaches_if_the_user_says_so_and_attach_takes_the_job_down(stage: Stage) -> None:
    stage.may_detach = True
    stage.events = iter([*idle(3), raising(KeyboardInterrupt())])
    assert stage.launch() == 0
    assert (len(stage.account.nodes), stage.outcome) == (2, None)
    stage.events = iter([*idle(2), stage.end_nodes()])
    assert stage.attach() == 0
    assert len(stage.account.asked("RunInstances")) == 1
    assert stage.account.left() == []
    assert stage.outcome is not None
    assert stage.outcome.state == "done"


def test_attach_to_a_job_whose_nodes_have_ended_cleans_up(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    stage.end_nodes()()
    stage.where = {}
    assert stage.attach() == 0
    assert len(stage.account.asked("RunInstances")) == 1
    assert stage.account.left() == []


@pytest.mark.parametrize(
    ("before", "other", "is_refused"),
    [(0, {}, False), (0, {"nodes": 1}, True), (1, {"max_hours": 3.0}, True)],  # of a restart, this alone may differ
    ids=["the same", "other settings", "restarts with other settings"],
)
def test_of_two_launches_of_one_name_one_joins_the_other_or_is_refused(
    stage: Stage, before: int, other: dict[str, object], is_refused: bool
) -> None:
    """Both have looked before either has written anything, some seconds apart."""
    stage.where = {"detach": True}
    for _ in range(before):
        stage.launch()
        stage.stop()
    first = stage.plan()
    stage.slept_s += 2
    stage.where = {"detach": True, **other}
    second = stage.plan()
    launch(first, stage.runtime())

    with pytest.raises(SettingsError, match="choose another --job-name") if is_refused else nullcontext():
        launch(second, stage.runtime())

    assert len(find(stage.aws, NAME).living) == 2
    assert len(stage.account.asked("RunInstances")) == before + 1


def test_who_joins_a_launch_and_fails_does_not_end_it(stage: Stage) -> None:
    stage.where = {"detach": True}
    first, second = stage.plan(), stage.plan()
    stage.account.put_json(f"jobs/{NAME}/job.json", requests.spec(first.payload.cluster))  # it has got as far as that
    call = stage.aws.call

    def denied(service: str, operation: str, params: Mapping[str, Any] | None = None, /) -> Any:
        if operation == "RunInstances":
            raise AwsError("denied", "UnauthorizedOperation", operation)
        return call(service, operation, params)

    with mock.patch.object(stage.aws, "call", denied), pytest.raises(AwsError, match="denied"):
        launch(second, stage.runtime())

    assert "ended" not in json.loads(stage.aws.read(stage.account.bucket, f"jobs/{NAME}/job.json") or b"")


def test_a_stop_that_meets_another_writer_of_job_json_notes_the_end_all_the_same(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    folder, call = Folder(stage.account.bucket, NAME), stage.aws.call
    spec = json.loads(stage.aws.read(folder.bucket, folder.spec) or b"")
    others = iter([{**spec, "deadline": spec["deadline"] - 60}])

    def busy(service: str, operation: str, params: Mapping[str, Any] | None = None, /) -> Any:
        if operation == "PutObject" and (other := next(others, None)):
            stage.account.put_json(folder.spec, other)
        return call(service, operation, params)

    with mock.patch.object(stage.aws, "call", busy):
        assert mark_stopped(stage.aws, folder, None, stage.clock(), stage.said.append)

    written = json.loads(stage.aws.read(folder.bucket, folder.spec) or b"")
    assert written["deadline"] == spec["deadline"] - 60
    assert "ended" in written


def test_nodes_that_ec2_shows_late_are_waited_for(stage: Stage) -> None:
    """Also where the nodes of an earlier start are shown, which have ended."""
    stage.account.slow.hidden = 2
    stage.where = {"detach": True}
    for _ in range(2):
        assert stage.launch() == 0
        assert len(stage.account.nodes) == 2
        stage.stop()
    assert stage.account.left() == []


def test_one_volume_is_attached_to_all_nodes_and_goes_with_them(stage: Stage) -> None:
    stage.account.slow.unknown = 1  # EC2 does not know at once what it has just made
    stage.where = {"data_volume": "multi-attach"}
    stage.events = iter([*idle(12), stage.end_nodes()])
    assert stage.launch() == 0
    assert [call["VolumeId"] for call in stage.account.asked("DeleteVolume")] == []
    assert len({call["InstanceId"] for call in stage.account.asked("AttachVolume")}) == 2
    assert stage.account.left() == []


def test_a_job_that_lost_all_nodes_gets_a_new_shared_volume(stage: Stage) -> None:
    """EC2 answers the token of the one that went with them as it did then, and makes nothing."""

    def lose_all() -> None:
        for node in list(stage.account.nodes):
            stage.account.kill(node.id)

    stage.where = {"data_volume": "multi-attach"}
    stage.events = iter([*idle(3), lose_all, *idle(6), stage.end_nodes()])
    assert stage.launch() == 0
    first, second = stage.account.asked("CreateVolume")
    assert first["ClientToken"] != second["ClientToken"]
    assert stage.account.left() == []


def test_a_shared_volume_does_not_keep_nodes_in_a_zone_without_machines(stage: Stage) -> None:
    stage.where = {"data_volume": "multi-attach", "detach": True}
    stage.end_first_node_at_once(NO_MACHINE)
    assert stage.launch() == 0
    assert {node.placement.zone for node in stage.account.nodes if node.state != "shutting-down"} == {"us-east-1b"}
    stage.stop()
    assert stage.account.left() == []


def test_each_look_at_a_running_job_asks_ec2_for_its_nodes_and_nothing_else(stage: Stage) -> None:
    asked: list[list[str]] = []
    note = [lambda: asked.append(stage.account.operations)] * 2
    stage.events = iter([*idle(5), *note, stage.end_nodes()])
    assert stage.launch() == 0
    before, after = asked
    ec2 = [name for name in after[len(before) :] if name.startswith("Describe") and name != "DescribeLogStreams"]
    assert ec2 == ["DescribeInstances"]


def test_as_many_calls_for_64_nodes_as_for_2() -> None:
    asked = []
    for count in (2, 64):
        with Account.opened() as account:
            Stage(account, where={"detach": True, "nodes": count}).launch()
            assert len(account.nodes) == count
            asked.append(account.operations)
    assert asked[0] == asked[1]


@pytest.mark.parametrize(
    ("reason", "where", "next_zone"),
    [(NO_MACHINE, {}, True), (SPOT_INTERRUPTION, {"spot": True}, False)],
    ids=["no machine", "spot"],
)
def test_nodes_that_end_as_they_start_are_started_again(
    stage: Stage, reason: str, where: dict[str, object], next_zone: bool
) -> None:
    """A12: RunInstances had answered, and the launch was aborted."""
    stage.where = {"detach": True, **where}
    stage.end_first_node_at_once(reason)
    assert stage.launch() == 0
    zones = [node.placement.zone for node in stage.account.nodes if node.state != "shutting-down"]
    assert len(zones) == 2
    assert ("us-east-1a" not in zones) or not next_zone


def test_volumes_that_cannot_be_filled_at_a_rate_are_made_without(stage: Stage) -> None:
    """A3: https://docs.aws.amazon.com/ebs/latest/userguide/initalize-volume.html: "the request fails"."""
    stage.where = {"detach": True}
    message = "The volume initialization rate cannot be met"
    with injected(Faults().on("RunInstances", refused("InsufficientVolumeCapacity", 400, message))):
        assert stage.launch() == 0
    quick, slow = (request["BlockDeviceMappings"][1]["Ebs"] for request in stage.account.asked("RunInstances"))
    assert (quick.get("VolumeInitializationRate"), slow.get("VolumeInitializationRate")) == (300, None)
    assert len(stage.account.nodes) == 2


@pytest.mark.parametrize(
    ("operation", "fault"),
    [("ListObjectsV2", unreachable()), ("DescribeInstances", refused("UnauthorizedOperation", 403))],
)
def test_a_launcher_that_does_not_see_its_job_any_more_leaves_it_running(
    stage: Stage, operation: str, fault: Fault
) -> None:
    """A11: AWS was back within two minutes of the ten, and the training was ended."""
    faults = Faults()
    stage.events = iter([*idle(3), lambda: faults.on(operation, fault, nth=None)])
    with injected(faults), pytest.raises(Ended) as ended:
        stage.launch()
    assert ended.value.code == 4
    assert ended.value.outcome is not None
    assert ended.value.outcome.state == "interrupted"
    assert len(stage.account.nodes) == 2
    assert "ended" not in stage.account.s3(f"jobs/{NAME}/job.json")
    stage.events = iter([*idle(2), stage.end_nodes()])
    assert stage.attach() == 0
    assert stage.account.left() == []


@pytest.mark.parametrize(
    ("operation", "fault"),
    [("DescribeInstances", unreachable()), ("RunInstances", throttled())],
)
def test_waiting_for_capacity_survives_transient_errors(stage: Stage, operation: str, fault: Fault) -> None:
    """After hours of waiting half a minute of that ended the job."""
    account, faults = stage.account, Faults()

    def trouble() -> None:
        account.capacity.clear()
        faults.on(operation, fault, nth=faults.count(operation) + 1)

    account.capacity.update(dict.fromkeys(account.subnets, 0))
    stage.where = {"wait_for_capacity": 1, "detach": True}
    stage.events = iter([trouble])
    with injected(faults):
        assert stage.launch_anyhow() == 0
    assert len(account.nodes) == 2


@pytest.mark.parametrize("operation", ["DescribeInstances", "PutObject"])
def test_nodes_that_have_just_started_are_kept_while_aws_is_busy(stage: Stage, operation: str) -> None:
    """They may have been waited for; one look that EC2 or S3 had no time for ended them."""
    faults, run = Faults(), Aws.call

    def call(self: Aws, service: str, name: str, params: Mapping[str, Any] | None = None, /) -> dict[str, Any]:
        answer: dict[str, Any] = run(self, service, name, params)
        if name == "RunInstances":
            faults.on(operation, throttled(), nth=faults.count(operation) + 1)
        return answer

    stage.where = {"detach": True}
    with injected(faults), mock.patch.object(Aws, "call", call):
        assert stage.launch() == 0
    assert len(stage.account.nodes) == 2


# ---- outcome.json


def test_a_job_that_is_done_leaves_its_outcome_with_time_and_price(stage: Stage) -> None:
    stage.events = iter([*idle(3), stage.end_nodes()])
    assert stage.launch() == 0
    assert stage.account.left() == []
    assert [params["MinCount"] for params in stage.account.asked("RunInstances")] == [2]
    outcome = stage.outcome
    assert outcome is not None
    assert (outcome.state, outcome.exit_code, outcome.reason, outcome.job) == ("done", 0, "", NAME)
    assert outcome.seconds == pytest.approx(stage.slept_s, abs=60)
    assert outcome.usd is not None
    assert outcome.usd == pytest.approx(2 * 0.54, abs=0.1)  # seconds of nodes, and the filling of their volumes
    assert outcome.ended.endswith("Z")


def test_an_outcome_says_done_also_where_the_removal_fails_and_the_command_does_not(stage: Stage) -> None:
    """Results are results, and the exit code shows that something is still billed."""
    stage.events = iter([*idle(3), stage.end_nodes()])
    denied = refused("UnauthorizedOperation", 403)
    with (
        injected(Faults().on("DeleteSecurityGroup", denied, nth=None)),
        pytest.raises(Ended, match=r"Removing its resources failed: .* to remove them now: python -m launch\.ec2 stop"),
    ):
        stage.launch()
    outcome = stage.outcome
    assert outcome is not None
    assert (outcome.state, outcome.exit_code, outcome.job) == ("done", 4, NAME)
    assert outcome.reason == "the training is done; its resources are not removed"
    assert outcome.usd is not None
    assert outcome.seconds is not None


KEY_DISABLED = "Client.InvalidKMSKey.InvalidState: the key is disabled"


@pytest.mark.parametrize(
    ("looks", "event", "words", "code", "state"),
    [
        (3, lambda stage: stage.end_nodes(5, reason="the loss is not finite")(), "the loss is not finite", 5, "failed"),
        (0, lambda stage: stage.account.kill(stage.account.nodes[0].id, KEY_DISABLED), KEY_DISABLED, 4, "failed"),
        (3, raising(AwsError("the account is closed.", "AccountClosed")), "the account is closed", 4, "failed"),
        (3, raising(KeyboardInterrupt()), "stopped with Ctrl-C", 130, "stopped"),
    ],
    ids=["the training fails", "EC2 cannot start a node", "AWS refuses", "Ctrl-C"],
)
def test_whatever_ends_a_job_is_its_outcome_and_leaves_nothing(
    stage: Stage, looks: int, event: Callable[[Stage], object], words: str, code: int, state: str
) -> None:
    stage.events = iter([*idle(looks), lambda: event(stage)])
    with pytest.raises(Ended, match=re.escape(words)) as ended:
        stage.launch()
    assert stage.outcome == ended.value.outcome
    assert stage.outcome is not None
    assert (ended.value.code, stage.outcome.exit_code, stage.outcome.state) == (code, code, state)
    assert stage.outcome.usd or not looks
    assert len(stage.account.asked("RunInstances")) == 1
    assert stage.account.left() == []


def test_a_launch_that_fails_leaves_its_outcome(stage: Stage) -> None:
    stage.account.capacity["g5.2xlarge"] = 0
    with pytest.raises(Ended) as ended:
        stage.launch()
    assert stage.outcome is not None
    assert (stage.outcome.state, stage.outcome.exit_code, stage.outcome.reason) == ("failed", 4, "no capacity")
    assert ended.value.code == 4
    assert ended.value.outcome == stage.outcome
    assert (stage.outcome.job, stage.outcome.usd) == (NAME, 0)
    assert {"g5.2xlarge", "us-east-1a", "us-east-1b"} <= set(str(ended.value).split())
    assert stage.account.left() == []


def test_an_outcome_that_cannot_be_written_is_a_warning_and_keeps_nothing_running(stage: Stage) -> None:
    """PutObject of job.json, of cluster.json, of job.json again with its end, and of outcome.json."""
    stage.events = iter([*idle(3), stage.end_nodes()])
    with injected(Faults().on("PutObject", refused("AccessDenied", 403), nth=4)):
        assert stage.launch() == 0
    assert stage.outcome is None
    assert stage.account.left() == []
    assert any("outcome.json was not written" in line for line in stage.said)


def test_the_commands_that_a_launch_prints_can_be_pasted(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    commands = [line.strip() for line in stage.said if "python -m launch.ec2" in line]
    assert [line.split()[3] for line in commands] == ["status", "logs", "stop", "attach", "stop"]
    for line in commands:
        assert re.fullmatch(rf"python -m launch\.ec2 \w+ {NAME} --region us-east-1", line)


# ---- what must not bring a job back, and what must not end it


def test_attach_to_a_stopped_job_starts_nothing(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    stage.stop()
    with pytest.raises(SettingsError, match=f"job {NAME} has ended"):
        job_named(stage.aws, find(stage.aws), NAME, None)
    stage.where = {}
    with pytest.raises(Ended):
        stage.attach()
    assert len(stage.account.asked("RunInstances")) == 1


def test_attach_to_a_job_whose_nodes_are_gone_without_a_word_starts_nothing(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    for rank in range(2):
        stage.lose_node(rank)()
    stage.where = {}
    with pytest.raises(Ended, match="without a record"):
        stage.attach()
    assert len(stage.account.asked("RunInstances")) == 1
    assert stage.account.left() == []


def test_a_closed_terminal_stops(stage: Stage) -> None:
    """Every line that is printed after it fails, also those about the taking down."""
    gone = False

    def say(text: str) -> None:
        if gone:
            raise OSError(5, "Input/output error")

    def hang_up() -> None:
        nonlocal gone
        gone = True
        raise Hangup("SIGHUP")

    stage.events = iter([*idle(2), hang_up])
    with pytest.raises(Ended, match="the terminal was closed") as ended:
        launch(stage.plan(), replace(stage.runtime(), say=say))
    assert ended.value.code == 130
    assert stage.account.left() == []


def test_a_terminal_that_is_closed_at_the_question_of_ctrl_c_stops(stage: Stage) -> None:
    runtime = replace(stage.runtime(), may_detach=raising(Hangup("SIGHUP")))
    stage.events = iter([*idle(2), raising(KeyboardInterrupt())])
    with pytest.raises(Ended, match="stopped with Ctrl-C"):
        launch(stage.plan(), runtime)
    assert stage.account.left() == []


def test_a_second_ctrl_c_at_once_lists_what_is_left_and_how_to_remove_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came while the job's cost was looked up, before anything was removed, and the command ended without a word."""
    stage.events = iter([*idle(2), raising(KeyboardInterrupt())])
    monkeypatch.setattr("launch.ec2.start.find", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        stage.launch()
    assert (
        stage.said[-1] == f"not everything is removed; finish with python -m launch.ec2 stop {NAME} --region us-east-1"
    )


def test_a_bug_of_ours_leaves_nothing_either(stage: Stage) -> None:
    def bug() -> None:
        raise KeyError("rank")

    stage.events = iter([*idle(2), bug])
    with pytest.raises(KeyError):
        stage.launch()
    assert stage.account.left() == []


def test_ctrl_c_while_joining_leaves_somebodys_running_job_alone(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    made = stage.plan()
    runtime = replace(stage.runtime(), make_aws=lambda _region: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        launch(made, runtime)
    assert len(stage.account.nodes) == 2


class Interrupted:
    """An AWS at whose first call the user presses Ctrl-C."""

    def __getattr__(self, name: str) -> Any:
        raise KeyboardInterrupt


def test_aws_out_of_reach_for_minutes_does_not_end_the_job(stage: Stage) -> None:
    """Thirty looks, ten seconds apart, cannot list the nodes."""
    faults = Faults()
    for nth in range(8, 38):
        faults.on("DescribeInstances", unreachable(), nth=nth)
    stage.events = iter([*idle(45), stage.end_nodes()])
    with injected(faults):
        assert stage.launch() == 0
    assert any("retrying" in line for line in stage.said)


def test_no_token_is_used_twice_though_ec2_forgets_its_nodes(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    for _ in range(2):
        lost = stage.cluster["nodes"][1]["instance"]
        stage.account.slow.ending = 0
        stage.account.kill(lost)
        stage.account.forget(lost)
        stage.launch()
    tokens = [params["ClientToken"] for params in stage.account.asked("RunInstances")]
    assert len(set(tokens)) == 3
    assert stage.cluster["generation"] == 3


def test_a_training_whose_results_were_lost_with_their_node_goes_on(stage: Stage) -> None:
    def lost_before_the_upload() -> None:
        head, other = (row["instance"] for row in stage.cluster["nodes"])
        stage.leave_record(other, 0, "train", "done")
        stage.account.kill(head)

    stage.events = iter([*idle(2), lost_before_the_upload, *idle(4), stage.end_nodes()])
    assert stage.launch() == 0
    assert [params["MinCount"] for params in stage.account.asked("RunInstances")] == [2, 2]


def test_nodes_that_nobody_needs_are_ended(stage: Stage) -> None:
    """As when a launch was repeated before EC2 showed what the first one had started."""
    stage.where = {"detach": True}
    stage.launch()
    request = dict(stage.account.asked("RunInstances")[0], ClientToken="another", MinCount=1, MaxCount=1)
    stray = stage.aws.call("ec2", "RunInstances", request)["Instances"][0]["InstanceId"]

    def later() -> None:
        stage.slept_s += 400

    stage.where = {}
    stage.events = iter([*idle(1), later, *idle(3), stage.end_nodes()])
    assert stage.attach() == 0
    assert any(stray in line and "not part of this start" in line for line in stage.said)


def test_replaced_nodes_get_the_image_of_the_first_start(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    first = stage.account.s3(f"jobs/{NAME}/job.json")
    assert first is not None
    stage.account.make_image("aws-ddp-toolkit", "latest", "sha256:" + "7" * 64)
    stage.lose_node(1)()

    stage.launch()

    assert stage.account.s3(f"jobs/{NAME}/job.json")["image"] == first["image"]  # type: ignore[index]
    assert len(stage.account.asked("RunInstances")) == 2


def test_a_lost_fleet_is_replaced_in_another_zone_while_the_old_one_shuts_down(stage: Stage) -> None:
    """EC2 keeps a placement group in the zone of its nodes until the last of them is terminated."""
    stage.account.rules.slow.ending = 60
    zones: list[set[str]] = []

    def lose_all() -> None:
        for node in list(stage.account.nodes):
            stage.account.kill(node.id)
        stage.account.rules.capacity["us-east-1a"] = 0

    def look() -> None:
        zones.append({node.placement.zone for node in stage.account.nodes if node.state == "running"})

    stage.events = iter([*idle(3), lose_all, *idle(8), look, stage.end_nodes()])
    assert stage.launch() == 0
    assert zones == [{"us-east-1b"}]
    groups = [asked["GroupName"] for asked in stage.account.asked("CreatePlacementGroup")]
    assert len(set(groups)) == 2
    stage.account.rules.slow.ending = 0
