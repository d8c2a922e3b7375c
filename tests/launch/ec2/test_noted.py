"""A stop is not undone by whoever writes back what job.json said before it: launchers share the bucket."""

from collections.abc import Iterator
from typing import Any

import pytest

from launch.core.errors import AwsError, Ended
from launch.core.names import Folder
from launch.ec2.noted import MOST, check_wanted, note, notes
from launch.rehearse.aws.iam.policies import Need, allows, policy
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import NAME
from tests.launch.ec2.terminal import Terminal
from tests.launch.ec2.world import Event, Stage, idle
from trainer.errors import TrainerError

SPEC = f"jobs/{NAME}/job.json"


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Account.opened() as account:
        yield Stage(account)


@pytest.fixture
def folder(stage: Stage) -> Folder:
    return Folder(stage.account.bucket, NAME)


def kept_from_stopping(stage: Stage) -> list[Event]:
    """The owner stops the job, and before its launcher looks another one writes back what job.json said before."""
    said: dict[str, Any] = {}

    def remember() -> None:
        said.update(stage.account.s3(SPEC) or {})

    def stop() -> None:
        stage.stop()
        assert stage.account.left() == []
        stage.account.put_json(SPEC, said)
        stage.account.capacity.clear()

    return [remember, stop]


def test_a_launcher_that_waits_starts_no_node_of_a_job_whose_stop_another_launcher_took_back(stage: Stage) -> None:
    """It looks every five minutes: one write in that time had it start machines hours after the job was stopped."""
    account = stage.account
    account.capacity.update(dict.fromkeys(account.subnets, 0))
    stage.where = {"wait_for_capacity": 1}
    stage.events = iter([*kept_from_stopping(stage), *idle(9), stage.end_nodes()])
    with pytest.raises(Ended, match="stopped by another command"):
        stage.launch_anyhow()
    assert (account.nodes, account.left()) == ([], [])


def test_a_launcher_that_follows_replaces_no_node_of_such_a_job(stage: Stage) -> None:
    """It looks every five seconds, and whoever writes ten times a second wins."""
    stage.events = iter([*idle(4), stage.report(), *kept_from_stopping(stage), *idle(9), stage.end_nodes()])
    with pytest.raises(Ended, match="stopped by another command"):
        stage.launch()
    assert len(stage.account.asked("RunInstances")) == 1
    assert stage.account.left() == []
    assert stage.outcome is not None
    assert stage.outcome.state == "stopped"


@pytest.mark.parametrize("detach", [True, False])
def test_what_starts_while_such_a_job_is_stopped_is_ended(stage: Stage, folder: Folder, *, detach: bool) -> None:
    """The stop saw none of these nodes, and job.json says nothing any more."""
    stage.where = {"detach": detach}
    stage.account.slow.hidden = 1
    stage.events = iter([lambda: note(stage.aws, folder), *idle(9), stage.end_nodes()])
    with pytest.raises(Ended, match="stopped by another command"):
        stage.launch()
    assert stage.account.left() == []


def test_a_job_that_was_stopped_is_started_again_under_its_name(stage: Stage, folder: Folder) -> None:
    stage.where = {"detach": True}
    stage.launch()
    stage.stop()
    assert len(notes(stage.aws, folder)) == 1
    assert stage.launch() == 0
    assert len(stage.account.nodes) == 2


def test_a_stop_of_a_job_that_there_is_not_leaves_no_folder_of_it(stage: Stage, folder: Folder) -> None:
    Terminal(stage.account).type("stop", NAME)
    assert notes(stage.aws, folder) == frozenset()


def test_a_stop_is_noted_though_job_json_cannot_be_read(stage: Stage, folder: Folder) -> None:
    stage.where = {"detach": True}
    stage.launch()
    stage.account.put_json(SPEC, [])
    stage.stop()
    assert len(notes(stage.aws, folder)) == 1


def test_whoever_makes_very_many_notes_hides_none(
    stage: Stage, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only so many are listed, and a job of which nobody can tell starts nothing."""
    monkeypatch.setattr("launch.ec2.noted.MOST", 3)
    for _ in range(3):
        note(stage.aws, folder)
    known = notes(stage.aws, folder)
    with pytest.raises(AwsError, match="stopped by another command"):
        check_wanted(stage.aws, folder, known)
    assert MOST == 1000


def test_what_runs_is_not_ended_because_its_notes_cannot_be_listed(
    stage: Stage, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TrainerError("AWS is away")

    monkeypatch.setattr(type(stage.aws), "pages", refuse)
    check_wanted(stage.aws, folder, frozenset(), has_started=True)
    with pytest.raises(TrainerError, match="AWS is away"):
        check_wanted(stage.aws, folder, frozenset())


@pytest.mark.parametrize("name", ["launcher", "node", "sagemaker", "data", "publisher", "builder", "image-builder"])
def test_nobody_with_a_policy_of_ours_takes_a_note_back(name: str, stage: Stage, folder: Folder) -> None:
    note(stage.aws, folder)
    (key,) = notes(stage.aws, folder)
    there = f"arn:aws:s3:::{folder.bucket}/{key}"
    context = {"s3:ResourceAccount": stage.account.id, "aws:PrincipalAccount": stage.account.id}
    for action in ("s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion"):
        assert not allows([policy(name)], Need(action, there, context))
    once = Need("s3:PutObject", there, {**context, "s3:if-none-match": "*"})
    assert allows([policy(name)], once) == (name == "launcher")


# ---- and a later start


def test_a_launcher_that_waits_leaves_alone_what_was_started_after_a_stop(stage: Stage) -> None:
    """It learns of both only minutes later, and took the new nodes of its own user for leftovers of its start."""
    account = stage.account
    account.capacity.update(dict.fromkeys(account.subnets, 0))
    stage.where = {"wait_for_capacity": 1}

    def stop_and_start() -> None:
        stage.stop()
        account.capacity.clear()
        second = Stage(account, slept_s=stage.slept_s, where={"detach": True})
        assert second.launch() == 0

    stage.events = iter([*idle(1), stop_and_start])
    with pytest.raises(AwsError, match="stopped or restarted by another command"):
        stage.launch_anyhow()
    assert len(account.nodes) == 2
    assert "ended" not in (account.s3(SPEC) or {"ended": 0})


def test_a_launcher_that_followed_on_a_laptop_that_slept_leaves_it_alone_too(stage: Stage) -> None:
    """It saw nodes that were not in its cluster.json, and ended them before it looked further."""
    account = stage.account

    def stop_start_and_sleep() -> None:
        stage.stop()
        stage.slept_s += 60
        second = Stage(account, slept_s=stage.slept_s, where={"detach": True})
        assert second.launch() == 0
        account.rules.now = stage.clock().now
        stage.slept_s += 900

    stage.events = iter([*idle(4), stage.report(), stop_start_and_sleep])
    with pytest.raises(AwsError, match="stopped"):
        stage.launch()
    assert len(account.nodes) == 2
    assert "ended" not in (account.s3(SPEC) or {"ended": 0})
