"""A job's starts, their names, what each costs, and what SageMaker says of it."""

from datetime import timedelta

import pytest

from launch.rehearse.aws.sagemaker.changes import complete
from launch.sagemaker.names import job_of, number_of, start_name
from launch.sagemaker.training_jobs import describe, refreshed, starts_of
from tests.launch.sagemaker.known import BUCKET, NAME, NOW, training_job
from tests.launch.sagemaker.world import Stage

PRICE = 7.09  # USD per hour of ml.g5.12xlarge


@pytest.mark.parametrize(("number", "name"), [(1, "j"), (2, "j--2"), (12, "j--12"), (1000, "j--1000")])
def test_the_names_of_a_jobs_starts_are_read_back(number: int, name: str) -> None:
    assert start_name("j", number) == name
    assert number_of(name, "j") == number
    assert job_of(name) == "j"


def test_other_jobs_are_not_starts_of_this_one() -> None:
    for name in ["jj", "j-2", "j--x", "j--", "j--20000", "a-j", "j--2-x", "j--01", "j--1", "j--002", "j--0"]:
        assert number_of(name, "j") is None


def test_the_starts_of_a_job_are_listed_newest_first_over_all_pages(stage: Stage) -> None:
    for _ in range(12):
        complete(stage.started())
    found = starts_of(stage.aws, NAME, stage.clock().utc())
    assert [seen.name for seen in found] == [*(f"{NAME}--{number}" for number in range(12, 1, -1)), NAME]


def test_starts_that_are_not_listed_yet_are_found(stage: Stage) -> None:
    for _ in range(3):
        complete(stage.started())
    for listed in range(3):
        names = [start_name(NAME, number) for number in (1, 2, 3)]
        stage.account.rules.unlisted = set(names[listed:])
        assert [seen.name for seen in starts_of(stage.aws, NAME, stage.clock().utc())] == names[::-1]


def test_a_described_job_has_what_the_verbs_need(stage: Stage) -> None:
    made = stage.started(spot=True, nodes=2, epochs=3)
    training = describe(stage.aws, NAME)
    assert (training.status, training.detail) == ("InProgress", "Training")
    assert (training.is_over, training.is_start) == (False, True)
    assert (training.instance_type, training.nodes, training.is_spot) == ("ml.g5.2xlarge", 2, True)
    assert (training.job, training.model, training.billed_s) == (NAME, None, None)
    assert training.hyperparameters["epochs"] == '"3"'
    assert training.checkpoints == f"s3://{BUCKET}/jobs/{NAME}/run"
    assert training.transitions[-1] == ("Training", "Training image download completed. Training in progress.")
    assert [phase.ended is None for phase in training.phases if phase.name == "Training"] == [True]
    complete(made, seconds=100, billable=30)
    done = refreshed(stage.aws, training)
    assert [phase.name for phase in done.phases][-1] in ("Training", "Uploading")
    assert all(phase.ended for phase in done.phases)
    assert (done.status, done.trained_s, done.billed_s, done.model) == ("Completed", 100, 30, made.model)
    assert done.tags == training.tags


def test_a_job_ends_at_the_latest_when_its_limit_says_so() -> None:
    assert training_job(max_run_s=3600).deadline == NOW + timedelta(minutes=10)
    assert training_job(max_run_s=3600, started=None).deadline is None  # it waits for machines, which costs nothing
    assert training_job(max_run_s=3600, max_wait_s=7200, started=None).deadline == NOW + timedelta(hours=1)


# ---- money


@pytest.mark.parametrize(
    ("changes", "hours"),
    [
        ({}, 50 / 60),  # since the training began
        ({"started": None}, 0),
        ({"status": "Completed", "ended": NOW, "trained_s": 3000, "billed_s": 1200}, 1 / 3),  # what SageMaker billed
        ({"status": "Failed", "ended": NOW - timedelta(minutes=20)}, 30 / 60),  # not billed yet: until its end
        ({"status": "Completed", "billed_s": 3600, "pool": "Available", "pool_s": 1800}, 1.5),  # kept machines, too
    ],
    ids=["trains", "waits", "billed", "not billed yet", "kept"],
)
def test_a_job_costs_the_time_of_each_instance(changes: dict[str, object], hours: float) -> None:
    assert training_job(**changes).cost(NOW) == pytest.approx(2 * PRICE * hours)


def test_a_disk_costs_where_the_type_has_none_of_its_own() -> None:
    p3 = training_job(instance_type="ml.p3.8xlarge", nodes=1, disk_gb=730)
    assert p3.usd_per_hour == pytest.approx(14.688 + 0.14)
    assert training_job(nodes=1, disk_gb=730).usd_per_hour == pytest.approx(PRICE)


@pytest.mark.parametrize(
    ("changes", "saved"),
    [
        ({"is_spot": True, "trained_s": 1000, "billed_s": 250}, 0.75),
        ({"is_spot": True, "trained_s": 1000, "billed_s": 0}, 1.0),
        ({"is_spot": False, "trained_s": 1000, "billed_s": 1000}, None),
        ({"is_spot": True, "trained_s": None, "billed_s": None}, None),
        ({"is_spot": True, "trained_s": 0, "billed_s": 0}, None),
    ],
)
def test_what_spot_saved_is_known_at_the_end(changes: dict[str, object], saved: float | None) -> None:
    assert training_job(**changes).saved == saved
