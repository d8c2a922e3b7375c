"""The embedded SageMaker does what AWS does where moto alone does not; the tests name AWS's pages."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from moto.iam.models import iam_backends

from launch.aws.client import Aws
from launch.core.errors import AwsError
from launch.rehearse.aws.iam.policies import policy
from launch.rehearse.aws.sagemaker.changes import advance, age, complete, fail
from launch.rehearse.aws.sagemaker.jobs import MESSAGES, NO_CAPACITY
from launch.rehearse.aws.sagemaker.rules import TrainingPlan
from tests.launch.sagemaker.account import SageMakerAccount
from tests.launch.sagemaker.world import Stage

# ---- embedded


KIND = "ml.g5.12xlarge"
SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
}


def asked(account: SageMakerAccount, name: str = "j", **more: Any) -> dict[str, Any]:
    """A request much as the SDK makes it."""
    machines = {"InstanceType": KIND, "InstanceCount": 1, "VolumeSizeInGB": 30} | more.pop("machines", {})
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0",
            "TrainingInputMode": "File",
        },
        "RoleArn": account.role,
        "OutputDataConfig": {"S3OutputPath": f"s3://{account.bucket}/jobs/j"},
        "ResourceConfig": machines,
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "Tags": [{"Key": "aws-ddp-toolkit:job", "Value": name}],
        **more,
    }


def start(account: SageMakerAccount, aws: Aws, name: str = "j", **more: Any) -> Any:
    aws.call("sagemaker", "CreateTrainingJob", asked(account, name, **more))
    return account.jobs[name]


def describe(aws: Aws, name: str = "j") -> dict[str, Any]:
    return aws.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": name})


def refusal(act: Any, *args: Any, **named: Any) -> tuple[str, str]:
    with pytest.raises(AwsError) as caught:
        act(*args, **named)
    return caught.value.aws_code, str(caught.value)


def test_a_job_whose_data_are_missing_is_accepted_and_fails(account: SageMakerAccount, aws: Aws) -> None:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{account.bucket}/data"}
    channels = [{"ChannelName": "train", "DataSource": {"S3DataSource": source}}]
    advance(start(account, aws, InputDataConfig=channels))

    assert describe(aws)["FailureReason"].startswith("ClientError: Data download failed:NoSuchKey")


def test_there_may_be_no_machines(account: SageMakerAccount, aws: Aws) -> None:
    account.capacity[KIND] = 1
    advance(start(account, aws, "first"))
    advance(start(account, aws, "second"))
    waits = start(account, aws, "third", **SPOT)
    advance(waits)
    waited = describe(aws, "third")
    complete(account.jobs["first"])
    advance(waits)

    assert describe(aws, "second")["FailureReason"] == NO_CAPACITY
    assert "TrainingStartTime" not in describe(aws, "second")
    assert waited["SecondaryStatusTransitions"][-1]["StatusMessage"] == MESSAGES["No capacity"]
    assert describe(aws, "third")["SecondaryStatus"] == "Training"


def test_what_aws_does_not_allow_is_refused(account: SageMakerAccount, aws: Aws) -> None:
    cases = [
        ({"machines": {"KeepAlivePeriodInSeconds": 60}, **SPOT}, "KeepAlivePeriodInSeconds"),
        ({**SPOT, "StoppingCondition": {"MaxRuntimeInSeconds": 3600}}, "MaxWaitTimeInSeconds"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}}, "EnableManagedSpotTraining"),
        ({"machines": {"InstanceType": "ml.bogus"}}, "at 'resourceConfig.instanceType' failed to satisfy constraint"),
        ({"machines": {"KeepAlivePeriodInSeconds": 21_601}}, "value less than or equal to 21600"),
        ({"HyperParameters": {"a": "x" * 2501}}, "length less than or equal to 2500"),
        ({"name": "a_name"}, "at 'trainingJobName' failed to satisfy constraint"),
    ]
    for more, words in cases:
        code, text = refusal(start, account, aws, **more)

        assert code == "ValidationException"
        assert words in text
        assert account.jobs == {}


def test_a_warm_pool_waits_is_reused_and_ends(account: SageMakerAccount, aws: Aws) -> None:
    warm = {"KeepAlivePeriodInSeconds": 600}
    first = start(account, aws, "first", machines=warm)
    in_use = describe(aws, "first")["WarmPoolStatus"]
    complete(first)
    age(first, 60)
    waiting, left = describe(aws, "first")["WarmPoolStatus"], account.left()
    start(account, aws, "other", machines=warm | {"InstanceCount": 2})
    complete(start(account, aws, "second", machines=warm))
    aws.call("sagemaker", "UpdateTrainingJob", {"TrainingJobName": "second",
                                                "ResourceConfig": {"KeepAlivePeriodInSeconds": 0}})  # fmt: skip

    assert in_use == {"Status": "InUse"}
    assert waiting == {"Status": "Available", "ResourceRetainedBillableTimeInSeconds": 60}
    assert left == ["warm pool of first"]
    assert describe(aws, "first")["WarmPoolStatus"]["ReusedByJob"] == "second"
    assert account.jobs["second"].pool == "Terminated"
    assert account.left() == ["training job other (InProgress)"]


def test_a_warm_pool_ends_by_itself_and_survives_the_users_own_failure(account: SageMakerAccount, aws: Aws) -> None:
    warm = {"KeepAlivePeriodInSeconds": 600}
    jobs = [start(account, aws, name, machines=warm) for name in ("ours", "theirs")]
    for job, reason in zip(jobs, ("AlgorithmError: x", "InternalServerError: x"), strict=True):
        advance(job)
        fail(job, reason)

    assert [job.pool for job in jobs] == ["Available", "Terminated"]
    age(jobs[0], 601)
    assert describe(aws, "ours")["WarmPoolStatus"] == {
        "Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 600,
    }  # fmt: skip
    keep = {"TrainingJobName": "ours", "ResourceConfig": {"KeepAlivePeriodInSeconds": 900}}
    assert refusal(aws.call, "sagemaker", "UpdateTrainingJob", keep)[0] == "ValidationException"


def test_jobs_are_listed_by_state_pool_and_time_in_pages(account: SageMakerAccount, aws: Aws) -> None:
    for number, name in enumerate(["old", "middle"]):
        age(start(account, aws, name), 300 - 100 * number)
    complete(start(account, aws, "kept", machines={"KeepAlivePeriodInSeconds": 60}))

    def names(**asked: Any) -> list[str]:
        listed = aws.pages("sagemaker", "ListTrainingJobs", "TrainingJobSummaries", asked)
        return [row["TrainingJobName"] for row in listed]

    assert names() == names(MaxResults=1) == ["kept", "middle", "old"]
    assert names(StatusEquals="InProgress", NameContains="d") == ["middle", "old"]
    assert names(WarmPoolStatusEquals="Available") == ["kept"]
    assert names(CreationTimeAfter=datetime.now(UTC) - timedelta(seconds=250)) == ["kept", "middle"]
    # AWS takes a page of all jobs first and looks at their status then.
    page = aws.call("sagemaker", "ListTrainingJobs", {"MaxResults": 1, "StatusEquals": "InProgress"})
    assert (page["TrainingJobSummaries"], page["NextToken"]) == ([], "1")


# ---- embedded rules


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


def refused_launch(stage: Stage, **settings: Any) -> str:
    stage.settings = {"detach": True, **settings}
    with pytest.raises(AwsError) as error:
        stage.launch()
    return str(error.value)


# ---- the container, in the role: https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html


def test_an_image_that_is_not_there_is_refused_before_the_job_or_when_it_is_created(stage: Stage) -> None:
    """Before it by its tag, of which the digest is looked up; a digest itself is not looked up."""
    named, gone = f"{OWN}/aws-ddp-toolkit:sagemaker", f"{OWN}/aws-ddp-toolkit@sha256:{'0' * 64}"
    for image in (named, gone):
        assert "push it: python -m launch.image push --target sagemaker" in refused_launch(stage, image=image)
    push("aws-ddp-toolkit", "latest")
    assert "has no image aws-ddp-toolkit:sagemaker" in refused_launch(stage, image=named, job_name="second")
    assert "finds no image" in refused_launch(stage, image=gone, job_name="second")


def test_an_image_that_the_role_may_not_pull_is_refused(stage: Stage) -> None:
    push("mine", "1")
    iam_backends[stage.account.id]["aws"].put_role_policy(ROLE, "sagemaker", json.dumps(policy("sagemaker")))
    stage.settings = {"image": f"{OWN}/mine:1"}
    assert f"image {OWN}/mine:1 is not in infra/iam/sagemaker.json" in str(stage.plan())
    assert "the job's role may not pull mine: infra/iam/sagemaker.json allows" in refused_launch(
        stage, image=f"{OWN}/mine:1"
    )


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
    assert "usage' is 1; " in refused_launch(stage, job_name="third")


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


def test_instances_that_contradict_are_refused(stage: Stage) -> None:
    cases = [
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
    ]
    for changes, sentence in cases:
        stage.account.rules.plans[P5EN] = TrainingPlan("ml.p5en.48xlarge", 1)
        stage.settings = {"detach": True}
        request = dict(stage.plan().steps[-1].params)  # type: ignore[union-attr]
        machines = {**request["ResourceConfig"], **changes}
        request["ResourceConfig"] = {name: value for name, value in machines.items() if value is not None}
        with pytest.raises(AwsError, match=sentence):
            stage.aws.call("sagemaker", "CreateTrainingJob", request)
