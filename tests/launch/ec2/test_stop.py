"""Stopping removes everything of a job, makes sure of it, and can be done again at any time."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.aws.instances.inventory import Fleet, Resource, nodes_of
from launch.aws.instances.removal import SETTLE_S, is_young
from launch.aws.names import Folder
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.ec2.stop import mark_ended, stop
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import NAME, NOW
from tests.launch.ec2.terminal import Terminal
from tests.launch.ec2.world import Stage
from tests.launch.faults import Fault, Faults, lost, refused, refused_after, throttled, unreachable
from trainer.outcome import Outcome, parse


@pytest.fixture
def terminal(account: Account) -> Terminal:
    return Terminal(account)


@pytest.fixture
def aws(account: Account) -> Aws:
    return account.aws()


def detached(account: Account, **where: object) -> None:
    """A job as launch.ec2 starts it, with everything that it makes; nobody follows it."""
    assert Stage(account, where={"detach": True, **where}).launch() == 0


# ---- the removal itself


def test_everything_that_a_launch_makes_is_removed(terminal: Terminal, aws: Aws) -> None:
    detached(terminal.account)
    kinds = {line.split(" ")[0] for line in terminal.account.left()}
    assert kinds == {"instance", "volume", "network", "security", "placement", "schedule"}
    # 2 nodes with 2 volumes and an interface each, a security group, a placement group and the time limit.
    assert stop(aws, NAME, terminal.clock, terminal.said.append) == 11
    assert terminal.account.left() == []


def test_a_node_that_ec2_lists_but_does_not_know_yet_is_ended_at_the_next_look(terminal: Terminal, aws: Aws) -> None:
    terminal.account.slow.unknown = 1
    detached(terminal.account)
    began = terminal.clock.now()
    stop(aws, NAME, terminal.clock, terminal.said.append)
    assert terminal.account.left() == []
    assert terminal.clock.now() - began < 60


def test_a_node_that_ec2_does_not_know_keeps_no_other_from_ending_at_once(
    terminal: Terminal, aws: Aws, faults: Faults
) -> None:
    """EC2 refuses the whole request because of one id."""
    first, second = terminal.start("demo", nodes=2)
    message = f"The instance ID '{first}' does not exist"
    faults.on("TerminateInstances", refused("InvalidInstanceID.NotFound", 400, message))

    stop(aws, "demo", terminal.clock, terminal.said.append)

    asked = [call for call in faults.calls if call.operation in ("TerminateInstances", "DescribeInstances")]
    ids = [call.params.get("InstanceIds") for call in asked]
    assert ids[:4] == [None, [first, second], [second], None]
    assert terminal.account.left() == []


def test_nothing_is_deleted_while_a_node_may_still_appear(terminal: Terminal, aws: Aws) -> None:
    """Its time limit must be able to end it, and its group must be there."""
    detached(terminal.account)
    began = terminal.clock.now()
    deleted_at = list[float]()
    call = aws.call

    def note(service: str, operation: str, params: Mapping[str, Any] | None = None, /) -> dict[str, Any]:
        if operation.startswith("Delete"):
            deleted_at.append(terminal.clock.now() - began)
        return call(service, operation, params)

    aws.call = note  # type: ignore[method-assign]
    stop(aws, NAME, terminal.clock, terminal.said.append, unsure=True)

    assert deleted_at
    assert min(deleted_at) >= SETTLE_S


def test_a_shared_volume_is_removed_too(terminal: Terminal, aws: Aws) -> None:
    detached(terminal.account, data_volume="multi-attach")
    stop(aws, NAME, terminal.clock, terminal.said.append)
    assert terminal.account.left() == []


def test_nodes_that_end_slowly_are_waited_for(terminal: Terminal, aws: Aws) -> None:
    terminal.account.slow.ending = 40
    terminal.start("demo", nodes=2)
    stop(aws, "demo", terminal.clock, terminal.said.append)
    assert terminal.later_s >= 40 * 3
    assert terminal.account.left() == []


def test_nodes_are_asked_only_once_to_end(terminal: Terminal, aws: Aws) -> None:
    terminal.account.slow.ending = 5
    ids = terminal.start("demo", nodes=2)
    stop(aws, "demo", terminal.clock, terminal.said.append)
    assert [params["InstanceIds"] for params in terminal.account.asked("TerminateInstances")] == [ids]


def test_other_jobs_are_left_alone(terminal: Terminal, aws: Aws) -> None:
    (mine,) = terminal.start("demo")
    (other,) = terminal.start("demo-2")
    stop(aws, "demo", terminal.clock, terminal.said.append)
    assert [node.id for node in terminal.account.nodes] == [other]
    assert mine != other


def test_an_empty_name_stops_nothing(terminal: Terminal, aws: Aws) -> None:
    terminal.start("demo")
    assert stop(aws, "", terminal.clock, terminal.said.append) == 0
    assert len(terminal.account.nodes) == 1


def test_nodes_that_show_up_late_are_still_ended(terminal: Terminal, aws: Aws) -> None:
    terminal.account.slow.hidden = 2
    terminal.start("demo")
    stop(aws, "demo", terminal.clock, terminal.said.append, unsure=True)
    assert terminal.account.left() == []


def test_the_time_limit_is_removed_last(terminal: Terminal, aws: Aws) -> None:
    detached(terminal.account)
    stop(aws, NAME, terminal.clock, terminal.said.append)
    assert terminal.said[-1] == f"removed schedule aws-ddp-toolkit-{NAME}"


@pytest.mark.parametrize("code", ["DependencyViolation", "InvalidGroup.InUse"])
def test_a_group_that_something_still_holds_is_tried_again(
    code: str, terminal: Terminal, aws: Aws, faults: Faults
) -> None:
    terminal.start("demo")
    faults.on("DeleteSecurityGroup", refused(code, 400))
    stop(aws, "demo", terminal.clock, terminal.said.append)
    assert faults.count("DeleteSecurityGroup") == 2
    assert terminal.account.left() == []


@pytest.mark.parametrize(
    ("operation", "code"),
    [("DeleteSecurityGroup", "InvalidGroup.NotFound"), ("DeleteSchedule", "ResourceNotFoundException"),
     ("DeletePlacementGroup", "InvalidPlacementGroup.Unknown")],
)  # fmt: skip
def test_what_is_gone_already_does_not_stop_the_rest(
    terminal: Terminal, aws: Aws, faults: Faults, operation: str, code: str
) -> None:
    detached(terminal.account)
    faults.on(operation, refused_after(code, 400))
    stop(aws, NAME, terminal.clock, terminal.said.append)
    assert terminal.account.left() == []


def test_the_time_limit_stays_as_long_as_anything_else_does(terminal: Terminal, aws: Aws, faults: Faults) -> None:
    detached(terminal.account)
    faults.on("DeletePlacementGroup", refused("InvalidPlacementGroup.InUse", 400), nth=None)
    hasty = Clock(now=terminal.clock.now, sleep=lambda seconds: terminal.clock.sleep(60 * seconds))
    with pytest.raises(AwsError, match="not removed"):
        stop(aws, NAME, hasty, terminal.said.append)
    assert f"schedule aws-ddp-toolkit-{NAME}" in terminal.account.left()


def test_what_stays_is_named_after_half_an_hour(terminal: Terminal, aws: Aws, faults: Faults) -> None:
    terminal.start("demo")
    faults.on("DeleteSecurityGroup", refused("DependencyViolation", 400), nth=None)
    hasty = Clock(now=terminal.clock.now, sleep=lambda seconds: terminal.clock.sleep(60 * seconds))
    with pytest.raises(AwsError, match=r"not removed in time: security-group sg-\w+; .* stop demo"):
        stop(aws, "demo", hasty, terminal.said.append)


def test_the_next_start_of_a_stopped_job_has_a_time_limit_of_its_own(account: Account, aws: Aws) -> None:
    account.put_json("jobs/demo/job.json", {"job": "demo", "deadline": 1})
    for now in (100.0, 200.0):
        mark_ended(aws, Folder(account.bucket, "demo"), Clock(now=lambda now=now: now), print)  # type: ignore[misc]
    assert account.s3("jobs/demo/job.json") == {"job": "demo", "deadline": 1, "ended": 100}


def test_a_stop_bears_two_minutes_without_aws_and_no_more(terminal: Terminal, aws: Aws, faults: Faults) -> None:
    terminal.start("demo")
    faults.on("TerminateInstances", unreachable(), nth=1).on("TerminateInstances", lost(), nth=2)
    assert stop(aws, "demo", terminal.clock, terminal.said.append) > 0
    assert terminal.account.left() == []
    terminal.start("other")
    faults.on("DescribeInstances", unreachable(), nth=None)
    with pytest.raises(AwsError, match="AWS cannot be reached"):
        stop(aws, "other", terminal.clock, terminal.said.append)


@pytest.mark.parametrize("operation", ["DescribeInstances", "TerminateInstances", "DeleteSecurityGroup"])
def test_a_stop_bears_an_account_that_asks_too_much_for_a_while(
    operation: str, terminal: Terminal, aws: Aws, faults: Faults
) -> None:
    """The account's other users and tools share its limit of requests; nothing was ended when one of ours met it."""
    terminal.start("demo")
    faults.on(operation, throttled())
    assert stop(aws, "demo", terminal.clock, terminal.said.append) > 0
    assert terminal.account.left() == []
    assert any("AWS is busy" in line for line in terminal.said)


@pytest.mark.parametrize("fault", [refused("InternalServerException", 500), refused("AccessDenied", 403)])
def test_no_trouble_with_the_time_limit_keeps_nodes_from_being_ended(
    fault: Fault, terminal: Terminal, aws: Aws, faults: Faults
) -> None:
    """EC2 alone can end what costs money; EventBridge, whose outages take hours, has the time limit."""
    terminal.start("demo", nodes=2)
    faults.on("ListSchedules", fault, nth=None)
    with pytest.raises(AwsError, match="scheduler:ListSchedules"):
        stop(aws, "demo", terminal.clock, terminal.said.append)
    assert nodes_of(aws, "demo").living == ()

    terminal.start("other")
    assert terminal.type("stop", "other") == 4
    assert nodes_of(aws, "other").living == ()

    faults.clear()
    assert (terminal.type("stop", "demo"), terminal.type("stop", "other")) == (0, 0)
    assert terminal.account.left() == []


# ---- python -m launch.ec2 stop


@pytest.mark.parametrize("words", [("demo",), ("--all", "--yes")])
def test_a_stop_looks_again_where_an_account_asks_too_much(
    words: tuple[str, ...], terminal: Terminal, faults: Faults
) -> None:
    """The first look for the job's machines met the limit of requests, and the command ended before it ended one."""
    terminal.start("demo")
    faults.on("DescribeInstances", throttled()).on("ListSchedules", throttled())
    assert terminal.type("stop", *words) == 0
    assert terminal.account.left() == []


@pytest.mark.parametrize("operation", ["GetObject", "PutObject"])
def test_a_stop_is_noted_though_the_bucket_is_asked_too_much(
    operation: str, account: Account, terminal: Terminal, faults: Faults
) -> None:
    """A launcher that waits for capacity learns of the stop from job.json alone, and started nodes hours later."""
    account.put_json("jobs/demo/job.json", {"job": "demo", "deadline": 1})
    faults.on(operation, throttled())
    assert mark_ended(account.aws(), Folder(account.bucket, "demo"), terminal.clock, terminal.said.append)
    assert account.s3("jobs/demo/job.json")["ended"] > 0


def test_a_stop_in_a_region_that_there_is_not_says_so_at_once(terminal: Terminal, faults: Faults) -> None:
    faults.on("DescribeInstances", unreachable(), nth=None)
    assert terminal.type("stop", "demo") == 4
    assert terminal.later_s == 0


def test_stop_says_what_it_removed_that_nothing_is_left_and_what_it_cost(terminal: Terminal) -> None:
    (node,) = terminal.start("demo", hours_left=20)
    # Of a g5.2xlarge for 1.212 USD and 150 GiB of gp3 for 12 USD a month; a slow test has ten seconds.
    terminal.later_s = 10 * 3600 - 10
    assert terminal.type("stop", "demo") == 0
    assert terminal.said[0] == f"terminating 1 node: {node}"
    assert terminal.said[1].startswith("removed security-group sg-")
    assert terminal.said[2:] == [
        "removed 4 resources of demo; none is left in us-east-1.  The job cost about 12.28 USD",
    ]
    assert terminal.account.left() == []
    assert terminal.account.s3("jobs/demo/job.json")["ended"] > 0


def saved(terminal: Terminal, job: str = "demo") -> Outcome | None:
    content = terminal.account.s3(f"jobs/{job}/outcome.json")
    return parse(json.dumps(content)) if content is not None else None


def test_stop_saves_how_the_job_ended(terminal: Terminal) -> None:
    terminal.start("demo", hours_left=20)
    terminal.later_s = 10 * 3600 - 10
    terminal.type("stop", "demo")
    outcome = saved(terminal)
    assert outcome is not None
    assert (outcome.state, outcome.exit_code, outcome.job) == ("stopped", 130, "demo")
    assert (outcome.usd, outcome.seconds) == (pytest.approx(12.28, abs=0.01), pytest.approx(36_000, abs=120))


@pytest.mark.parametrize(("code", "state"), [(0, "done"), (5, "failed")])
def test_a_stop_after_the_nodes_have_ended_saves_what_they_recorded(terminal: Terminal, code: int, state: str) -> None:
    (name,) = terminal.start("demo")
    record = {"instance": name, "rank": 0, "code": code, "step": "train", "reason": "done", "restarts": 0,
              "at": int(terminal.clock.now())}  # fmt: skip
    terminal.account.put_json(f"jobs/demo/exits/{name}.json", record)
    terminal.account.kill(name)
    terminal.type("stop", "demo")
    outcome = saved(terminal)
    assert outcome is not None
    assert (outcome.state, outcome.exit_code) == (state, code)


def test_a_job_removed_after_its_time_limit_is_one_that_can_be_resumed(terminal: Terminal) -> None:
    terminal.start("demo", hours_ago=9, hours_left=-1)
    terminal.type("leaks", "--delete", "--yes")
    outcome = saved(terminal)
    assert outcome is not None
    assert (outcome.state, outcome.exit_code) == ("interrupted", 75)


def test_the_outcome_of_a_job_is_saved_once(terminal: Terminal) -> None:
    """A stop that finds something left over does not replace what the launcher saved."""
    terminal.start("demo")
    first = Outcome("done", 0, "", 10.0, 1.0, "demo", f"{terminal.clock.utc():%Y-%m-%dT%H:%M:%SZ}")
    terminal.account.put_json("jobs/demo/outcome.json", asdict(first))
    terminal.type("stop", "demo")
    assert saved(terminal) == first


def test_an_outcome_that_cannot_be_saved_is_a_warning(terminal: Terminal, faults: Faults) -> None:
    terminal.start("demo")
    faults.on("PutObject", refused("AccessDenied", 403), nth=3)
    assert terminal.type("stop", "demo") == 0
    assert terminal.said[-1].startswith("warning: ")
    assert "outcome.json was not written" in terminal.said[-1]
    assert terminal.account.left() == []


def test_stopping_what_never_existed_makes_no_folder(terminal: Terminal) -> None:
    terminal.start("demo", write=False)
    terminal.type("stop", "demo")
    terminal.type("stop", "other")
    assert terminal.account.s3_keys() == []


def test_stopping_twice_is_fine(terminal: Terminal) -> None:
    terminal.start("demo")
    terminal.type("stop", "demo")
    for _ in range(2):
        assert terminal.type("stop", "demo") == 0
        assert terminal.said == ["demo has no resources in us-east-1"]


def test_stop_needs_no_job_folder(terminal: Terminal) -> None:
    terminal.start("demo", write=False)
    assert terminal.type("stop", "demo") == 0
    assert terminal.account.left() == []


def test_stop_needs_no_bucket(terminal: Terminal, faults: Faults) -> None:
    terminal.start("demo")
    faults.on("GetObject", refused("AccessDenied", 403), nth=None)
    assert terminal.type("stop", "demo") == 0
    assert terminal.account.left() == []
    assert terminal.said[0].startswith(
        "warning: job.json still says that the job is running: these credentials may not s3:"
    )


def test_a_job_that_never_was_is_nothing_to_stop(terminal: Terminal) -> None:
    assert terminal.type("stop", "demo") == 0
    assert terminal.said == ["demo has no resources in us-east-1"]


def test_a_misspelt_job_stops_nothing_and_the_one_that_was_meant_is_named(terminal: Terminal) -> None:
    terminal.start("imagenet-1")
    assert terminal.type("stop", "imagnet-1") == 0
    assert terminal.said == [
        "imagnet-1 has no resources in us-east-1",
        "warning: there was no job 'imagnet-1'; did you mean 'imagenet-1'? That one is still running and billed.",
    ]
    assert len(terminal.account.nodes) == 1


def test_a_job_that_was_stopped_before_is_not_taken_for_a_misspelt_one(terminal: Terminal) -> None:
    terminal.account.put_json("jobs/imagenet-2/job.json", {"job": "imagenet-2", "ended": 1})
    terminal.start("imagenet-1")
    terminal.type("stop", "imagenet-2")
    assert terminal.said == ["imagenet-2 has no resources in us-east-1"]


def test_a_launch_that_was_just_killed_is_looked_at_twice(terminal: Terminal) -> None:
    terminal.account.slow.hidden = 3
    terminal.start("demo", write=False)
    assert terminal.type("stop", "demo") == 0
    assert terminal.account.left() == []


def test_stop_without_a_job_names_those_there_are(terminal: Terminal) -> None:
    terminal.start("one")
    terminal.start("two")
    error = terminal.refused("stop")
    assert (error.code, str(error)) == (2, "no job given; use python -m launch.ec2 stop JOB.  Running: one, two.")


def test_all_jobs_are_shown_and_stay_without_yes(terminal: Terminal) -> None:
    terminal.start("one")
    terminal.start("two")
    error = terminal.refused("stop", "all", "true")
    assert (error.code, str(error)) == (2, "--all stops one, two; add --yes to confirm.")
    assert {"one", "two"} <= set(terminal.text.split())
    assert len(terminal.account.nodes) == 2


def test_all_jobs_of_the_region_are_stopped_with_yes(terminal: Terminal) -> None:
    terminal.start("one", nodes=2)
    terminal.start("two")
    (far,) = terminal.start("far", region="eu-west-1")
    assert terminal.type("stop", "--all", "--yes") == 0
    assert terminal.account.nodes == []
    assert "one: removed 7 resources of one; none is left in us-east-1.  The job cost about 0.00 USD" in terminal.said
    assert f"instance {far}" in terminal.account.left()


def test_one_job_that_cannot_be_stopped_does_not_keep_the_others(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = terminal.start("one")
    terminal.start("two")
    ask = Aws.call

    def call(self: Aws, service: str, operation: str, params: Mapping[str, Any] | None = None, /) -> dict[str, Any]:
        if operation == "TerminateInstances" and params == {"InstanceIds": [one]}:
            raise AwsError("EC2 does not want to end it.")
        return ask(self, service, operation, params)

    monkeypatch.setattr(Aws, "call", call)
    assert terminal.type("stop", "--all", "--yes") == 4
    assert [node.id for node in terminal.account.nodes] == [one]
    assert terminal.said[-1] == "error: one in us-east-1: EC2 does not want to end it."


def test_all_are_stopped_though_their_time_limits_cannot_be_looked_up(terminal: Terminal, faults: Faults) -> None:
    terminal.start("one")
    terminal.start("two", nodes=2)
    faults.on("ListSchedules", refused("InternalServerException", 500), nth=None)
    assert terminal.type("stop", "--all", "--yes") == 4
    assert nodes_of(terminal.account.aws(), "one").living == nodes_of(terminal.account.aws(), "two").living == ()
    assert "scheduler:ListSchedules" in terminal.said[-1]


def test_all_of_a_region_are_stopped_though_another_region_fails(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (far,) = terminal.start("far", region="eu-west-1")
    ask = Aws.pages

    def pages(self: Aws, service: str, operation: str, *others: Any, **more: Any) -> list[Any]:
        if self.region == "us-east-1":
            raise AwsError("AWS cannot be reached.", "", operation)
        return ask(self, service, operation, *others, **more)

    monkeypatch.setattr(Aws, "pages", pages)
    assert terminal.type("stop", "--all", "--yes", "--region", "us-east-1,eu-west-1") == 4
    assert "warning: us-east-1 could not be checked: AWS cannot be reached." in terminal.said
    assert f"instance {far}" not in terminal.account.left()


def test_of_many_jobs_some_are_stopped_at_once_and_first_those_that_cost(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any launcher may make the time limits of jobs that there are not: a thousand threads took 2 GB for clients."""
    monkeypatch.setattr("launch.ec2.stop.AT_ONCE", 1)
    for job in ("a", "b"):
        terminal.start(job, nodes=0)
    terminal.start("z")
    assert terminal.type("stop", "--all", "--yes") == 0
    told = [line.partition(":")[0] for line in terminal.said]
    assert list(dict.fromkeys(told)) == ["z", "a", "b"]
    assert told == sorted(told, key=["z", "a", "b"].index)


def test_all_and_a_job_together_are_refused(terminal: Terminal) -> None:
    terminal.start("one")
    error = terminal.refused("stop", "job", "one", "all", "true")
    assert str(error) == "use either --all or one, not both."


def test_all_of_nothing_is_fine(terminal: Terminal) -> None:
    assert terminal.type("stop", "--all") == 0
    assert terminal.said == ["no job is running"]


def test_a_job_is_young_for_two_minutes() -> None:
    schedule = Fleet((), (Resource("schedule", "s", NAME, created=NOW),))
    assert is_young(schedule, NAME, NOW + timedelta(seconds=119))
    assert not is_young(schedule, NAME, NOW + timedelta(seconds=121))
    assert not is_young(Fleet(), NAME, NOW)
