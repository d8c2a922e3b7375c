"""The embedded SageMaker does what AWS does where moto alone does not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.core.errors import AwsError
from launch.rehearse.aws.sagemaker.changes import advance, age, complete, fail
from launch.rehearse.aws.sagemaker.jobs import MESSAGES, NO_CAPACITY
from tests.launch.sagemaker.account import SageMakerAccount

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


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"machines": {"KeepAlivePeriodInSeconds": 60}, **SPOT}, "KeepAlivePeriodInSeconds"),
        ({**SPOT, "StoppingCondition": {"MaxRuntimeInSeconds": 3600}}, "MaxWaitTimeInSeconds"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}}, "EnableManagedSpotTraining"),
        ({"machines": {"InstanceType": "ml.bogus"}}, "at 'resourceConfig.instanceType' failed to satisfy constraint"),
        ({"machines": {"KeepAlivePeriodInSeconds": 21_601}}, "value less than or equal to 21600"),
        ({"HyperParameters": {"a": "x" * 2501}}, "length less than or equal to 2500"),
        ({"name": "a_name"}, "at 'trainingJobName' failed to satisfy constraint"),
    ],
)
def test_what_aws_does_not_allow_is_refused(account: SageMakerAccount, aws: Aws, more: Any, words: str) -> None:
    code, told = refusal(start, account, aws, **more)

    assert code == "ValidationException"
    assert words in told
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
