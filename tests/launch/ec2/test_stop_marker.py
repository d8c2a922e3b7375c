"""A stop is final: a launcher of that start which still runs leaves; the job may be started again under its name."""

from datetime import UTC, datetime
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.aws.names import Folder
from launch.core.errors import Ended, NoAnswer
from launch.ec2.job_folder import check_not_stopped, is_stopped, put_marker, start_of
from tests.launch.ec2.known import NAME
from tests.launch.ec2.world import Event, Stage, idle
from trainer.errors import TrainerError

SPEC = f"jobs/{NAME}/job.json"


def start(stage: Stage) -> datetime:
    """When the job was started, by its job.json."""
    found = start_of(stage.account.s3(SPEC) or {})
    assert found is not None
    return found


@pytest.fixture
def folder(stage: Stage) -> Folder:
    return Folder(stage.account.bucket, NAME)


def stopped_and_overwritten(stage: Stage) -> list[Event]:
    """A command stops the job, and a launcher that had looked before it writes job.json as it was."""
    said: dict[str, Any] = {}

    def remember() -> None:
        said.update(stage.account.s3(SPEC) or {})

    def stop() -> None:
        stage.stop()
        assert stage.account.left() == []
        stage.account.put_json(SPEC, said)
        stage.account.capacity.clear()

    return [remember, stop]


def test_a_launcher_that_waits_starts_no_node_of_a_job_that_was_stopped(stage: Stage) -> None:
    """It looks every five minutes: one write in that time had it start machines hours after the job was stopped."""
    account = stage.account
    account.capacity.update(dict.fromkeys(account.subnets, 0))
    stage.where = {"wait_for_capacity": 1}
    stage.events = iter([*stopped_and_overwritten(stage), *idle(9), stage.end_nodes()])
    with pytest.raises(Ended, match="stopped or restarted by another command"):
        stage.launch_anyhow()
    assert (account.nodes, account.left()) == ([], [])


def test_a_launcher_that_follows_replaces_no_node_of_such_a_job(stage: Stage) -> None:
    stage.events = iter([*idle(4), stage.report(), *stopped_and_overwritten(stage), *idle(9), stage.end_nodes()])
    with pytest.raises(Ended, match="stopped by another command"):
        stage.launch()
    assert len(stage.account.asked("RunInstances")) == 1
    assert stage.account.left() == []
    assert stage.outcome is not None
    assert stage.outcome.state == "stopped"


def test_what_starts_while_such_a_job_is_stopped_is_ended(stage: Stage, folder: Folder) -> None:
    """The stop saw none of these nodes, and job.json says nothing any more."""
    stage.account.slow.hidden = 1
    stage.events = iter([lambda: put_marker(stage.aws, folder, start(stage)), *idle(9), stage.end_nodes()])
    with pytest.raises(Ended, match="stopped by another command"):
        stage.launch()
    assert stage.account.left() == []


def test_a_job_that_was_stopped_is_started_again_under_its_name(stage: Stage, folder: Folder) -> None:
    stage.where = {"detach": True}
    stage.launch()
    first = start(stage)
    stage.stop()
    assert is_stopped(stage.aws, folder, first)
    stage.slept_s += 60
    assert stage.launch() == 0
    assert start(stage) > first
    assert not is_stopped(stage.aws, folder, start(stage))
    assert (len(stage.account.nodes), stage.cluster["generation"]) == (2, 2)


def test_a_stop_is_marked_though_job_json_cannot_be_read(stage: Stage, folder: Folder) -> None:
    stage.where = {"detach": True}
    stage.launch()
    first = start(stage)
    stage.aws.call("s3", "PutObject", {"Bucket": folder.bucket, "Key": folder.spec, "Body": "nonsense"})
    stage.stop()
    assert is_stopped(stage.aws, folder, first)
    put_marker(stage.aws, folder, first)  # twice is no error


def test_what_runs_is_not_ended_because_s3_does_not_answer(
    stage: Stage, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TrainerError("AWS is away")

    monkeypatch.setattr(type(stage.aws), "read", refuse)
    now = datetime(2026, 11, 21, tzinfo=UTC)
    check_not_stopped(stage.aws, folder, now, has_started=True)
    with pytest.raises(TrainerError, match="AWS is away"):
        check_not_stopped(stage.aws, folder, now)


# ---- and a later start


MADE_LATE = "stopped with Ctrl-C"


def starts_again(stage: Stage, **where: object) -> None:
    """The owner stops the job, and starts it again from another machine a minute later."""
    stage.stop()
    stage.slept_s += 60
    second = Stage(stage.account, slept_s=stage.slept_s, where={**where, "detach": True}, always=stage.always)
    assert second.launch() == 0
    stage.account.rules.now = stage.clock().now


def is_left(stage: Stage) -> bool:
    """Whether the later start has all that it had, and job.json and outcome.json say nothing of an end since."""
    outcome, spec = stage.outcome, stage.account.s3(SPEC) or {"ended": 0}
    return len(stage.account.nodes) == 2 and "ended" not in spec and getattr(outcome, "reason", "") != MADE_LATE


def test_a_launcher_that_waits_leaves_alone_what_was_started_after_a_stop(stage: Stage) -> None:
    """It learns of both only minutes later, and took the new nodes of its own user for leftovers of its start."""
    account = stage.account
    account.capacity.update(dict.fromkeys(account.subnets, 0))
    stage.where = {"wait_for_capacity": 1}

    def stop_and_start() -> None:
        account.capacity.clear()
        starts_again(stage)

    stage.events = iter([*idle(1), stop_and_start])
    with pytest.raises(Ended, match="stopped"):
        stage.launch_anyhow()
    assert is_left(stage)
    assert "that start is left as it is" in "\n".join(stage.said)


@pytest.mark.parametrize(
    ("ending", "options", "sleep_s"),
    [("a long sleep", {}, 900), ("Ctrl-C", {}, 0), ("time limit", {"max_hours": 0.5}, 1800)],
)
def test_whatever_ends_a_launcher_that_followed_it_ends_no_later_start(
    stage: Stage, ending: str, options: dict[str, object], sleep_s: float
) -> None:
    """It took what its own start had come to for the end of the job, and removed what the job had by then."""

    def stop_start_and_sleep() -> None:
        starts_again(stage, **{**options, "max_hours": 5} if sleep_s == 1800 else options)
        stage.slept_s += sleep_s
        if ending == "Ctrl-C":
            raise KeyboardInterrupt

    stage.where = options
    stage.events = iter([*idle(4), stage.report(), stop_start_and_sleep])
    with pytest.raises(Ended):
        stage.launch()
    assert is_left(stage)


def test_a_launcher_that_wakes_before_its_network_ends_no_later_start(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not look whether there is one, removed the job once AWS answered again, and with it the new nodes."""
    pages, awake_at = Aws.pages, [0.0]

    def away(self: Aws, service: str, operation: str, *others: Any, **more: Any) -> list[Any]:
        if stage.clock().now() < awake_at[0]:
            raise NoAnswer("AWS cannot be reached.", "", operation)
        return pages(self, service, operation, *others, **more)

    def stop_start_and_sleep() -> None:
        starts_again(stage)
        awake_at[0] = stage.clock().now() + 20
        raise KeyboardInterrupt

    monkeypatch.setattr(Aws, "pages", away)
    stage.events = iter([*idle(4), stage.report(), stop_start_and_sleep])
    with pytest.raises(Ended, match=MADE_LATE):
        stage.launch()
    assert is_left(stage)


def test_a_launcher_whose_clock_is_behind_ends_its_own_job(stage: Stage) -> None:
    """By its clock the job has yet to start, and what runs seemed to be a later start's."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    stage.where = {"detach": True}
    stage.launch()
    stage.stop()
    stage.slept_s -= 600
    stage.where, stage.events = {}, iter([*idle(3), interrupt])
    with pytest.raises(Ended) as ended:
        stage.launch()
    assert ended.value.code == 130
    assert stage.account.left() == []
