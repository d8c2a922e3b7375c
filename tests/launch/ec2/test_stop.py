"""Stopping removes everything of a job, makes sure of it, and can be done again at any time."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.aws.instances.inventory import nodes_of
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.ec2.stop import stop
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import NAME
from tests.launch.ec2.terminal import Terminal
from tests.launch.ec2.world import Stage
from tests.launch.faults import Faults, lost, refused, refused_after, throttled, unreachable
from trainer.outcome import Outcome, parse


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


def test_nodes_that_end_slowly_are_terminated_once_and_waited_for(terminal: Terminal, aws: Aws) -> None:
    terminal.account.slow.ending = 40
    ids = terminal.start("demo", nodes=2)
    stop(aws, "demo", terminal.clock, terminal.said.append)
    assert [params["InstanceIds"] for params in terminal.account.asked("TerminateInstances")] == [ids]
    assert terminal.later_s >= 40 * 3
    assert terminal.account.left() == []


def test_other_jobs_are_left_alone(terminal: Terminal, aws: Aws) -> None:
    terminal.start("demo")
    (other,) = terminal.start("demo-2")
    assert stop(aws, "", terminal.clock, terminal.said.append) == 0
    stop(aws, "demo", terminal.clock, terminal.said.append)
    assert [node.id for node in terminal.account.nodes] == [other]


def test_what_is_gone_already_does_not_stop_the_rest(terminal: Terminal, aws: Aws, faults: Faults) -> None:
    detached(terminal.account)
    for operation, code in (
        ("DeleteSecurityGroup", "InvalidGroup.NotFound"),
        ("DeleteSchedule", "ResourceNotFoundException"),
        ("DeletePlacementGroup", "InvalidPlacementGroup.Unknown"),
    ):
        faults.on(operation, refused_after(code, 400))
    stop(aws, NAME, terminal.clock, terminal.said.append)
    assert terminal.account.left() == []


def test_the_time_limit_stays_as_long_as_anything_else_does(terminal: Terminal, aws: Aws, faults: Faults) -> None:
    detached(terminal.account)
    faults.on("DeletePlacementGroup", refused("InvalidPlacementGroup.InUse", 400), nth=None)
    hasty = Clock(now=terminal.clock.now, sleep=lambda seconds: terminal.clock.sleep(60 * seconds))
    with pytest.raises(AwsError, match=rf"placement-group \S+ .* stop {NAME}"):
        stop(aws, NAME, hasty, terminal.said.append)
    assert f"schedule aws-ddp-toolkit-{NAME}" in terminal.account.left()


def test_a_stop_retries_for_two_minutes_without_aws_and_no_longer(terminal: Terminal, aws: Aws, faults: Faults) -> None:
    terminal.start("demo")
    faults.on("TerminateInstances", unreachable(), nth=1).on("TerminateInstances", lost(), nth=2)
    assert stop(aws, "demo", terminal.clock, terminal.said.append) > 0
    assert terminal.account.left() == []
    terminal.start("other")
    faults.on("DescribeInstances", unreachable(), nth=None)
    with pytest.raises(AwsError, match="AWS cannot be reached"):
        stop(aws, "other", terminal.clock, terminal.said.append)


def test_no_trouble_with_the_time_limit_keeps_nodes_from_being_ended(
    terminal: Terminal, aws: Aws, faults: Faults
) -> None:
    """EC2 alone can end what costs money; EventBridge, whose outages take hours, has the time limit."""
    terminal.start("demo", nodes=2)
    faults.on("ListSchedules", refused("AccessDenied", 403), nth=None)
    with pytest.raises(AwsError, match="scheduler:ListSchedules"):
        stop(aws, "demo", terminal.clock, terminal.said.append)
    assert nodes_of(aws, "demo").living == ()

    terminal.start("other")
    assert terminal.type("stop", "--all", "--yes") == 4
    assert nodes_of(aws, "other").living == ()

    faults.clear()
    assert (terminal.type("stop", "demo"), terminal.type("stop", "other")) == (0, 0)
    assert terminal.account.left() == []


# ---- python -m launch.ec2 stop


def test_a_stop_looks_again_where_an_account_asks_too_much(terminal: Terminal, faults: Faults) -> None:
    """The account's other users share its limit of requests; nothing was ended when one of ours met it."""
    terminal.start("demo")
    for operation in ("DescribeInstances", "ListSchedules", "TerminateInstances", "GetObject", "PutObject"):
        faults.on(operation, throttled())
    faults.on("DeleteSecurityGroup", refused("DependencyViolation", 400))  # something still holds it
    assert terminal.type("stop", "--all", "--yes") == 0
    assert terminal.account.left() == []
    assert terminal.account.s3("jobs/demo/job.json")["ended"] > 0


def test_a_stop_in_a_region_that_there_is_not_says_so_at_once(terminal: Terminal, faults: Faults) -> None:
    faults.on("DescribeInstances", unreachable(), nth=None)
    assert terminal.type("stop", "demo") == 4
    assert terminal.later_s == 0


def test_stop_says_and_saves_what_the_job_cost_and_that_nothing_is_left(terminal: Terminal) -> None:
    terminal.start("demo", hours_left=20)
    # Of a g5.2xlarge for 1.212 USD and 150 GiB of gp3 for 12 USD a month; a slow test has ten seconds.
    terminal.later_s = 10 * 3600 - 10
    assert terminal.type("stop", "demo") == 0
    assert terminal.said[-1].startswith("removed 4 resources of demo; none is left in us-east-1")
    assert "12.28 USD" in terminal.said[-1]
    outcome = saved(terminal)
    assert outcome is not None
    assert (outcome.state, outcome.exit_code, outcome.job) == ("stopped", 130, "demo")
    assert (outcome.usd, outcome.seconds) == (pytest.approx(12.28, abs=0.01), pytest.approx(36_000, abs=120))


def saved(terminal: Terminal, job: str = "demo") -> Outcome | None:
    content = terminal.account.s3(f"jobs/{job}/outcome.json")
    return parse(json.dumps(content)) if content is not None else None


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


def test_stopping_what_is_gone_is_fine_and_makes_no_folder(terminal: Terminal) -> None:
    terminal.start("demo", write=False)
    for resources in ("removed 4", "no"):
        assert terminal.type("stop", "demo") == 0
        assert f"{resources} resources" in terminal.text
    assert terminal.account.left() == []
    assert terminal.account.s3_keys() == []


def test_stop_needs_no_bucket(terminal: Terminal, faults: Faults) -> None:
    terminal.start("demo")
    for operation in ("GetObject", "PutObject"):
        faults.on(operation, refused("AccessDenied", 403), nth=None)
    assert terminal.type("stop", "demo") == 0
    assert terminal.account.left() == []
    assert terminal.said[1].startswith("warning: job.json")
    assert "outcome.json was not written" in terminal.said[-1]


def test_a_misspelt_job_stops_nothing_and_the_one_that_was_meant_is_named(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.start("imagenet-1")
    assert terminal.type("stop", "imagnet-1") == 2
    assert "no job 'imagnet-1' in us-east-1; did you mean 'imagenet-1'?" in capsys.readouterr().err
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


def test_all_jobs_of_the_region_are_stopped_with_yes(terminal: Terminal) -> None:
    terminal.start("one", nodes=2)
    terminal.start("two")
    (far,) = terminal.start("far", region="eu-west-1")
    assert terminal.type("stop", "--all", "--yes") == 0
    assert terminal.account.nodes == []
    assert f"instance {far}" in terminal.account.left()


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
