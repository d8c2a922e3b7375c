"""The embedded SageMaker refuses, waits and says what SageMaker does; the tests name AWS's pages."""

import json
from typing import Any

import boto3
import pytest
from moto.iam.models import iam_backends

from launch.core.errors import AwsError
from launch.rehearse.aws.iam.policies import policy
from launch.rehearse.aws.sagemaker.changes import advance
from launch.rehearse.aws.sagemaker.rules import TrainingPlan
from tests.launch.sagemaker.world import Stage

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
OWN = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
PLAN, P5EN = (f"arn:aws:sagemaker:us-east-1:123456789012:training-plan/{name}" for name in ("missing", "p5en-in-march"))
ROLE = "aws-ddp-toolkit-sagemaker"


def push(name: str, tag: str) -> None:
    """An image in the account's registry."""
    ecr = boto3.client("ecr", "us-east-1")
    ecr.create_repository(repositoryName=name)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"digest": "sha256:0"},
        "layers": [],
    }
    ecr.put_image(repositoryName=name, imageManifest=json.dumps(manifest), imageTag=tag)


def refusal(stage: Stage, **settings: Any) -> str:
    stage.settings = {"detach": True, **settings}
    with pytest.raises(AwsError) as error:
        stage.launch()
    return str(error.value)


# ---- the container, in the role: https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html


def test_an_image_that_is_not_there_is_refused_before_the_job_or_when_it_is_created(stage: Stage) -> None:
    """Before it by the tag, of which the digest is asked; nobody is asked of a digest."""
    named, gone = f"{OWN}/aws-ddp-toolkit:sagemaker", f"{OWN}/aws-ddp-toolkit@sha256:{'0' * 64}"
    for image in (named, gone):
        assert "push it: python -m launch.image push --target sagemaker" in refusal(stage, image=image)
    push("aws-ddp-toolkit", "latest")
    assert "has no image aws-ddp-toolkit:sagemaker" in refusal(stage, image=named, job_name="second")
    assert "finds no image" in refusal(stage, image=gone, job_name="second")


def test_an_image_that_the_role_may_not_pull_is_refused(stage: Stage) -> None:
    push("mine", "1")
    iam_backends[stage.account.id]["aws"].put_role_policy(ROLE, "sagemaker", json.dumps(policy("sagemaker")))
    stage.settings = {"image": f"{OWN}/mine:1"}
    assert f"image {OWN}/mine:1 is not in infra/iam/sagemaker.json" in str(stage.plan())
    assert "the job's role may not pull mine: infra/iam/sagemaker.json allows" in refusal(stage, image=f"{OWN}/mine:1")


# ---- quotas: https://docs.aws.amazon.com/general/latest/gr/sagemaker.html


def test_what_a_training_plan_reserves_takes_none_of_the_quota(stage: Stage) -> None:
    stage.account.quota["ml.g5.2xlarge for training job usage"] = 1
    arn = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/a-plan-of-ours"
    stage.account.rules.plans[arn] = TrainingPlan("ml.g5.2xlarge", 1)
    stage.settings = {"training_plan": arn, "detach": True, "job_name": "reserved"}
    stage.launch()
    stage.settings = {"detach": True}
    stage.launch()
    assert len(stage.account.jobs) == 2
    assert "is 1; ask for more" in refusal(stage, job_name="third")


# ---- states: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html


def test_a_job_that_waits_for_capacity_is_pending_once_and_goes_on_when_there_is_some(stage: Stage) -> None:
    stage.account.capacity["ml.g5.2xlarge"] = 0
    stage.settings = {"max_pending_hours": 1, "detach": True}
    stage.launch()
    for _ in range(3):
        advance(stage.job())
    assert stage.job().statuses == ["Starting", "Pending"]
    del stage.account.capacity["ml.g5.2xlarge"]
    advance(stage.job())
    assert stage.job().statuses == ["Starting", "Pending", "Downloading", "Training"]


# ---- requests: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ResourceConfig.html


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"InstancePreferences": [{"InstanceType": "ml.g5.2xlarge"}]}, "mutually exclusive with InstanceType"),
        ({"InstanceType": None}, "must have InstanceType"),
        ({"InstanceType": None, "InstancePreferences": [{"InstanceType": "ml.g5.2xlarge"}] * 2}, "only once"),
        # https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_InstancePreference.html, InstanceCount
        (
            {"InstanceType": None, "InstancePreferences": [{"InstanceType": "ml.g5.2xlarge", "InstanceCount": 1}]},
            "set once for the job, or for every one",
        ),
        (
            {"InstanceType": None, "InstanceCount": None, "InstancePreferences": [{"InstanceType": "ml.g5.2xlarge"}]},
            "set once for the job, or for every one",
        ),
        ({"SelectedInstanceType": "ml.g5.2xlarge"}, "read-only"),
        ({"VolumeKmsKeyId": "ours"}, "not supported for instances with local storage: ml.g5.2xlarge"),
        ({"TrainingPlanArn": PLAN}, "Could not find training plan"),
        ({"TrainingPlanArn": P5EN}, "does not match the InstanceType ml.p5en.48xlarge"),
    ],
)
def test_instances_that_contradict_are_refused(stage: Stage, changes: dict[str, Any], sentence: str) -> None:
    stage.account.rules.plans[P5EN] = TrainingPlan("ml.p5en.48xlarge", 1)
    stage.settings = {"detach": True}
    request = dict(stage.plan().steps[-1].params)  # type: ignore[union-attr]
    machines = {**request["ResourceConfig"], **changes}
    request["ResourceConfig"] = {name: value for name, value in machines.items() if value is not None}
    with pytest.raises(AwsError, match=sentence):
        stage.aws.call("sagemaker", "CreateTrainingJob", request)
