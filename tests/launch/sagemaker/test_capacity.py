"""Instances where they are scarce: several types in order, training plans, limits of waiting, and unknown types."""

from datetime import timedelta
from typing import Any

import pytest

from launch.core.errors import AwsError, Ended
from launch.rehearse.aws.sagemaker.changes import advance
from launch.rehearse.aws.sagemaker.rules import TrainingPlan
from launch.sagemaker.outcome import outcome_of
from launch.sagemaker.training_job import read_training_job
from tests.launch.sagemaker.known import NAME, NOW, plan, resolve, training_job
from tests.launch.sagemaker.world import Stage
from trainer.contract import Exit
from trainer.errors import SettingsError

TWO = "ml.g5.12xlarge,ml.g5.2xlarge"
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p5en-in-march"


def asked(stage: Stage) -> dict[str, Any]:
    """The ResourceConfig of the only CreateTrainingJob."""
    (request,) = stage.account.asked("CreateTrainingJob")
    resources: dict[str, Any] = request["ResourceConfig"]
    return resources


# ---- several types


def test_of_several_types_sagemaker_takes_the_first_that_it_has(stage: Stage) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/train-instance-preferences.html"""
    stage.account.capacity["ml.g5.12xlarge"] = 0
    stage.settings = {"instance_type": TWO, "nodes": 2, "detach": True}
    stage.launch()

    preferences = [{"InstanceType": "ml.g5.12xlarge"}, {"InstanceType": "ml.g5.2xlarge"}]
    assert asked(stage) == {"InstanceCount": 2, "InstancePreferences": preferences, "VolumeSizeInGB": 30}
    assert "sagemaker_instance_type" not in stage.job().request["HyperParameters"]
    advance(stage.job())
    described = read_training_job(stage.job().described, {}, "us-east-1")
    assert (described.status, described.instance_type) == ("InProgress", "ml.g5.2xlarge")
    assert described.usd_per_hour == pytest.approx(2 * 1.515, rel=0.01)  # of the one that it got


def test_with_no_capacity_of_any_type_the_job_fails_and_says_what_helps(stage: Stage) -> None:
    stage.account.capacity |= {"ml.g5.12xlarge": 0, "ml.g5.2xlarge": 0}
    stage.settings = {"instance_type": TWO}
    stage.events = iter([lambda: advance(stage.job())])
    with pytest.raises(Ended, match=r"CapacityError: .* --training-plan") as error:
        stage.launch()
    assert error.value.code == Exit.AWS


def test_every_type_is_priced_and_the_dearest_counts_against_the_limit() -> None:
    made = plan(instance_type=TWO, max_hours=1)
    assert [quote.instance for quote in made.quotes] == ["ml.g5.12xlarge", "ml.g5.2xlarge"]
    with pytest.raises(SettingsError, match="more than --max-usd 5"):
        resolve(instance_type="ml.g5.2xlarge,ml.g5.12xlarge", max_hours=1, max_usd=5)


def test_the_quota_of_every_type_is_looked_at_as_sagemaker_does(stage: Stage) -> None:
    stage.account.quota["ml.g5.2xlarge for training job usage"] = 0
    stage.settings = {"instance_type": TWO}
    assert "the quota 'ml.g5.2xlarge for training job usage' is 0: SageMaker will refuse" in str(stage.plan())
    with pytest.raises(AwsError, match=r"the account's quota 'ml.g5.2xlarge for training job usage' is 0"):
        stage.launch()


def test_the_image_has_kernels_for_every_type() -> None:
    assert ":2.10.0-" in plan(instance_type=TWO).payload.description.image
    assert ":2.8.0-" in plan(instance_type="ml.g5.12xlarge,ml.p3.8xlarge").payload.description.image


def test_a_job_that_runs_on_one_of_them_is_left_alone_by_the_same_command(stage: Stage) -> None:
    stage.settings = {"instance_type": TWO, "detach": True}
    stage.launch()
    assert stage.plan().steps == ()  # while it waits
    stage.type("status", NAME)
    assert "1 x ml.g5.12xlarge or ml.g5.2xlarge" in stage.text
    advance(stage.job())
    assert stage.plan().steps == ()
    stage.settings["instance_type"] = "ml.g5.48xlarge"
    assert "running with other settings" in str(stage.plan().problems[0])


# ---- reserved capacity, and waiting


@pytest.mark.parametrize("through", ["boto3", "estimator"])
def test_a_training_plan_is_requested_and_needs_no_quota_and_no_capacity(stage: Stage, through: str) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/reserve-capacity-with-training-plans.html"""
    stage.account.rules.plans[PLAN] = TrainingPlan("ml.g5.2xlarge", 1)
    stage.account.capacity["ml.g5.2xlarge"] = 0
    stage.account.quota["ml.g5.2xlarge for training job usage"] = 0
    stage.settings = {"training_plan": PLAN, "through": through, "detach": True}
    stage.launch()
    assert asked(stage)["TrainingPlanArn"] == PLAN
    advance(stage.job())
    assert stage.job().secondary == "Training"


def test_a_job_waits_for_the_beginning_of_its_training_plan(stage: Stage) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/training-plan-utilization-for-training-jobs.html"""
    stage.account.rules.plans[PLAN] = TrainingPlan("ml.g5.2xlarge", 1, is_active=False)
    stage.settings = {"training_plan": PLAN, "detach": True}
    stage.launch()
    advance(stage.job())
    assert (stage.job().status, stage.job().secondary) == ("InProgress", "Pending")
    stage.account.rules.plans[PLAN].is_active = True
    advance(stage.job())
    assert stage.job().secondary == "Training"


@pytest.mark.parametrize(("is_active", "runs_on"), [(True, "ml.g5.12xlarge"), (False, "ml.g5.2xlarge")])
def test_a_training_plan_of_the_first_type_is_tried_before_types_on_demand(
    stage: Stage, is_active: bool, runs_on: str
) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_InstancePreference.html, TrainingPlanArns"""
    stage.account.quota["ml.g5.12xlarge for training job usage"] = 0  # a plan has quotas of its own
    stage.account.rules.plans[PLAN] = TrainingPlan("ml.g5.12xlarge", 2, is_active)
    stage.settings = {"instance_type": TWO, "training_plan": PLAN, "detach": True}
    text = str(stage.plan())
    assert "ml.g5.12xlarge for training job usage" not in text
    assert text.count("a training plan is paid for when it is bought") == 1
    stage.launch()
    first, second = asked(stage)["InstancePreferences"]
    assert first == {"InstanceType": "ml.g5.12xlarge", "TrainingPlanArns": [PLAN]}
    assert second == {"InstanceType": "ml.g5.2xlarge"}

    advance(stage.job())
    described = read_training_job(stage.job().described, {}, "us-east-1")
    assert (described.instance_type, described.is_reserved) == (runs_on, is_active)
    assert (described.usd_per_hour == 0) == is_active


def test_a_job_without_instances_waits_and_is_given_up_after_its_limit(stage: Stage) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StoppingCondition.html, MaxPendingTimeInSeconds"""
    stage.account.capacity["ml.g5.2xlarge"] = 0
    stage.settings = {"max_pending_hours": 2, "detach": True}
    stage.launch()
    (request,) = stage.account.asked("CreateTrainingJob")
    assert request["StoppingCondition"]["MaxPendingTimeInSeconds"] == 7200
    advance(stage.job())
    assert (stage.job().status, stage.job().secondary) == ("InProgress", "Pending")


@pytest.mark.parametrize(("waited_h", "code"), [(2, Exit.AWS), (1, 130)])
def test_an_end_for_want_of_instances_is_distinguished_from_a_stop(waited_h: int, code: int) -> None:
    ended = training_job(status="Stopped", detail="Stopped", started=None, max_pending_s=7200, created=NOW,
                         ended=NOW + timedelta(hours=waited_h))  # fmt: skip
    outcome = outcome_of(ended, NOW)
    assert outcome.exit_code == code
    assert ("--max-pending-hours" in outcome.reason) == (code == Exit.AWS)


# ---- types that are not in the catalog


@pytest.mark.parametrize("name", ["ml.g99.12xlarge", "ml.p99-b9.48xlarge"])
def test_a_type_that_is_not_in_the_catalog_is_taken_without_a_price(name: str) -> None:
    made = plan(instance_type=name)
    assert f"{name} is not in the catalog" in "".join(made.warnings)
    assert made.quotes[0].most_usd is None
    assert made.payload.description.hyperparameters["device"] == "cuda"
    assert "-gpu-" in made.payload.description.image
    with pytest.raises(SettingsError, match=f"no price is known for {name}, so --max-usd 5 cannot be kept"):
        resolve(instance_type=name, max_usd=5)


def test_a_key_for_the_disk_of_a_type_that_is_not_known_is_warned_of() -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ResourceConfig.html, VolumeKmsKeyId"""
    assert "--kms-key" in "".join(plan(instance_type="ml.g99.12xlarge", kms_key="ours").warnings)
    assert "--kms-key" not in "".join(plan(instance_type="ml.g99.12xlarge").warnings)


def test_types_that_are_sold_by_training_plans_give_a_warning() -> None:
    train = {"instance_type": "ml.p5en.48xlarge", "distribution": "torch_distributed"}
    assert "--training-plan" in "".join(plan(**train).warnings)
    assert "--training-plan" not in "".join(plan(**train, training_plan=PLAN).warnings)


def test_what_contradicts_is_refused_before_any_call() -> None:
    cases = [
        ({"instance_type": TWO, "spot": True}, "spot capacity of one type"),
        ({"instance_type": TWO, "through": "estimator"}, "--through boto3"),
        ({"instance_type": "ml.g5.2xlarge,ml.g5.2xlarge"}, "each once"),
        ({"instance_type": "ml.g5.2xlarge,ml.c5.2xlarge", "allow_cpu": True}, "types without"),
        ({"instance_type": "ml.g5.2xlarge,ml.g5.2xlage"}, "did you mean 'ml.g5.2xlarge'?"),
        ({"instance_type": "ml.gpu"}, "unknown instance type 'ml.gpu'"),
        ({"training_plan": "p5en"}, "must look like arn:aws:sagemaker:us-east-1:111122223333:training-plan/NAME."),
        ({"training_plan": PLAN, "spot": True}, "--training-plan"),
        ({"max_pending_hours": 1, "instance_type": "ml.c5.2xlarge", "allow_cpu": True}, "types with GPUs only"),
        ({"instance_type": "ml.g5.2xlarge,ml.p3.8xlarge", "kms_key": "ours"}, "local disks"),
        ({"max_pending_hours": 1, "through": "estimator"}, "--through boto3"),
    ]
    for settings, sentence in cases:
        with pytest.raises(SettingsError) as error:
            resolve(**settings)
        assert sentence in str(error.value)
