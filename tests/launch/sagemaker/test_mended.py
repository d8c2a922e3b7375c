"""tests.launch.sagemaker.account and mended: that the stand-in does what AWS does where moto alone does not."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.core.errors import AwsError
from launch.rehearse.aws.sagemaker.changes import advance, age, complete, fail, interrupt, measured, stopped, time_out
from launch.rehearse.aws.sagemaker.jobs import MESSAGES, NO_CAPACITY
from tests.launch.faults import Faults, lost
from tests.launch.sagemaker.account import LOG_GROUP, SageMakerAccount

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
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        },
        "RoleArn": account.role,
        "HyperParameters": {"epochs": "3", "sagemaker_program": '"train.py"'},
        "Environment": {"NCCL_DEBUG": "WARN"},
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


def test_a_new_account_has_nothing_that_costs_money(account: SageMakerAccount) -> None:
    assert account.left() == []
    assert account.requests == []


def test_describe_keeps_the_whole_request_and_tags_can_be_read(account: SageMakerAccount, aws: Aws) -> None:
    job = start(account, aws, ProfilerConfig={"DisableProfiler": True}, EnableNetworkIsolation=True)

    told, request = describe(aws), account.asked("CreateTrainingJob")[0]
    assert {key: told.get(key) for key in request if key != "Tags"} == {k: v for k, v in request.items() if k != "Tags"}
    assert aws.pages("sagemaker", "ListTags", "Tags", {"ResourceArn": job.arn}) == request["Tags"]
    assert (told["TrainingJobStatus"], told["SecondaryStatus"]) == ("InProgress", "Starting")
    assert not {"ModelArtifacts", "TrainingStartTime", "FailureReason", "WarmPoolStatus"} & set(told)
    assert account.left() == ["training job j (InProgress)"]


def test_a_job_goes_its_way_and_leaves_a_model(account: SageMakerAccount, aws: Aws) -> None:
    job = start(account, aws)
    advance(job, "Training")
    measured(job, "loss", 0.5)
    training = describe(aws)
    complete(job, seconds=600, metrics={"loss": 0.25})

    told = describe(aws)
    transitions = told["SecondaryStatusTransitions"]
    assert training["SecondaryStatus"] == "Training"
    assert training["FinalMetricDataList"][0]["Value"] == 0.5
    assert [row["Status"] for row in transitions] == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert transitions[0]["StatusMessage"] == MESSAGES["Prepared"]
    assert all(row["EndTime"] >= row["StartTime"] for row in transitions)
    assert told["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{account.bucket}/jobs/j/j/output/model.tar.gz"
    assert (told["TrainingTimeInSeconds"], told["BillableTimeInSeconds"]) == (600, 600)
    assert told["TrainingEndTime"] - told["TrainingStartTime"] >= timedelta(seconds=600)
    assert told["CreationTime"] <= told["TrainingStartTime"]
    assert [(row["MetricName"], row["Value"]) for row in told["FinalMetricDataList"]] == [("loss", 0.25)]
    assert account.left() == []


def test_a_job_that_fails_says_why(account: SageMakerAccount, aws: Aws) -> None:
    job = start(account, aws)
    advance(job)
    fail(job, "AlgorithmError: ExecuteUserScriptError:\nExitCode 6", seconds=60)

    told = describe(aws)
    assert (told["TrainingJobStatus"], told["SecondaryStatus"]) == ("Failed", "Failed")
    assert told["FailureReason"].startswith("AlgorithmError")
    assert told["TrainingTimeInSeconds"] == 60


def test_a_job_whose_data_are_missing_is_accepted_and_fails(account: SageMakerAccount, aws: Aws) -> None:
    source = {
        "S3DataType": "S3Prefix",
        "S3Uri": f"s3://{account.bucket}/data",
        "S3DataDistributionType": "FullyReplicated",
    }
    channels = [{"ChannelName": "train", "DataSource": {"S3DataSource": source}}]
    advance(start(account, aws, InputDataConfig=channels))
    account.rules.refuses_missing_data = True
    refused = refusal(start, account, aws, "j2", InputDataConfig=channels)
    account.write("data/train/1.jpg", b"x")
    advance(start(account, aws, "j3", InputDataConfig=channels))

    assert describe(aws)["FailureReason"].startswith("ClientError: Data download failed:NoSuchKey")
    assert refused[0] == "ValidationException"
    assert "No S3 objects found under S3 URL" in refused[1]
    assert describe(aws, "j3")["SecondaryStatus"] == "Training"


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


def test_a_spot_job_can_be_interrupted_and_pays_less(account: SageMakerAccount, aws: Aws) -> None:
    job = start(account, aws, **SPOT)
    advance(job)
    interrupt(job)
    between = describe(aws)
    complete(job, seconds=1000, billable=300)

    assert (between["TrainingJobStatus"], between["SecondaryStatus"]) == ("InProgress", "Interrupted")
    told = describe(aws)
    assert [row["Status"] for row in told["SecondaryStatusTransitions"]] == [
        "Starting", "Downloading", "Training", "Interrupted", "Starting", "Downloading", "Training", "Uploading",
        "Completed",
    ]  # fmt: skip
    assert (told["TrainingTimeInSeconds"], told["BillableTimeInSeconds"]) == (1000, 300)


@pytest.mark.parametrize(("limit", "more"), [("MaxRuntimeExceeded", {}), ("MaxWaitTimeExceeded", SPOT)])
def test_a_limit_stops_a_job(account: SageMakerAccount, aws: Aws, limit: str, more: Any) -> None:
    job = start(account, aws, **more)
    time_out(job, limit)

    assert (describe(aws)["TrainingJobStatus"], describe(aws)["SecondaryStatus"]) == ("Stopped", limit)


def test_a_job_that_is_stopped_is_stopping_at_first(account: SageMakerAccount, aws: Aws) -> None:
    job = start(account, aws)
    advance(job)
    aws.call("sagemaker", "StopTrainingJob", {"TrainingJobName": "j"})
    listed = aws.pages("sagemaker", "ListTrainingJobs", "TrainingJobSummaries", {"StatusEquals": "Stopping"})
    seen = [describe(aws)["TrainingJobStatus"], describe(aws)["TrainingJobStatus"]]

    assert [row["TrainingJobStatus"] for row in listed] == ["Stopping"]
    assert seen == ["Stopping", "Stopped"]
    assert job.statuses[-3:] == ["Stopping", "Uploading", "Stopped"]
    code, words = refusal(aws.call, "sagemaker", "StopTrainingJob", {"TrainingJobName": "j"})
    assert code == "ValidationException"
    assert "The request was rejected because the training job is in status Stopped" in words


def test_a_job_can_stop_at_once_or_take_until_it_is_told(account: SageMakerAccount, aws: Aws) -> None:
    account.slow.stopping = 0
    start(account, aws, "quick")
    aws.call("sagemaker", "StopTrainingJob", {"TrainingJobName": "quick"})
    account.slow.stopping = None
    slow = start(account, aws, "slow")
    aws.call("sagemaker", "StopTrainingJob", {"TrainingJobName": "slow"})
    seen = {describe(aws, "slow")["TrainingJobStatus"] for _ in range(5)}
    stopped(slow)

    assert describe(aws, "quick")["TrainingJobStatus"] == "Stopped"
    assert seen == {"Stopping"}
    assert describe(aws, "slow")["TrainingJobStatus"] == "Stopped"


@pytest.mark.parametrize("operation", ["StopTrainingJob", "DescribeTrainingJob", "UpdateTrainingJob"])
def test_a_job_that_nobody_knows_is_not_found(account: SageMakerAccount, aws: Aws, operation: str) -> None:
    code, words = refusal(aws.call, "sagemaker", operation, {"TrainingJobName": "nobody"})

    assert code == "ValidationException"
    assert "Requested resource not found" in words


def test_a_name_is_taken_for_good(account: SageMakerAccount, aws: Aws) -> None:
    complete(start(account, aws))

    code, words = refusal(start, account, aws)
    assert code == "ResourceInUse"
    assert "Training job names must be unique" in words


def test_a_role_must_be_there_and_trust_sagemaker(account: SageMakerAccount, aws: Aws) -> None:
    other = account.make_role("other", {"Version": "2012-10-17", "Statement": []})

    words = [refusal(start, account, aws, RoleArn=arn) for arn in (other, account.role + "-missing")]
    assert all(code == "ValidationException" for code, _ in words)
    assert all("Could not assume role arn:aws:iam::123456789012:role/" in text for _, text in words)
    account.delete_role()
    assert refusal(start, account, aws)[0] == "ValidationException"


def test_a_quota_is_kept_by_use(account: SageMakerAccount, aws: Aws) -> None:
    account.quota[f"{KIND} for training job usage"] = 1
    account.quota[f"{KIND} for spot training job usage"] = 0
    account.quota[f"{KIND} for training warm pool usage"] = 0
    start(account, aws)

    code, words = refusal(start, account, aws, "j2")
    assert code == "ResourceLimitExceeded"
    assert (
        f"The account-level service limit '{KIND} for training job usage' is 1 Instances, with current utilization of "
        "1 Instances and a request delta of 1 Instances."
    ) in words
    assert "spot training job usage' is 0" in refusal(start, account, aws, "j3", **SPOT)[1]
    complete(account.jobs["j"])
    warm = {"KeepAlivePeriodInSeconds": 600}
    assert "training warm pool usage' is 0" in refusal(start, account, aws, "j4", machines=warm)[1]
    start(account, aws, "j5")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"machines": {"KeepAlivePeriodInSeconds": 60}, **SPOT}, "KeepAlivePeriodInSeconds is not supported"),
        ({**SPOT, "StoppingCondition": {"MaxRuntimeInSeconds": 3600}}, "Invalid MaxWaitTimeInSeconds"),
        (
            {**SPOT, "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 60}},
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to",
        ),
        (
            {"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}},
            "only supported when EnableManagedSpotTraining is set to true",
        ),
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


def test_jobs_are_listed_by_name_state_pool_and_time(account: SageMakerAccount, aws: Aws) -> None:
    for number, name in enumerate(["b-1", "a-1", "a-2"]):
        job = start(
            account, aws, name, machines={"KeepAlivePeriodInSeconds": 60 * (number == 2)} if number == 2 else {}
        )
        age(job, 300 - 100 * number)
    complete(account.jobs["a-2"])

    def names(**asked: Any) -> list[str]:
        return [
            row["TrainingJobName"] for row in aws.pages("sagemaker", "ListTrainingJobs", "TrainingJobSummaries", asked)
        ]

    an_hour = timedelta(hours=1)
    assert names() == ["a-2", "a-1", "b-1"]
    assert names(SortOrder="Ascending") == ["b-1", "a-1", "a-2"]
    assert names(SortBy="Name", SortOrder="Descending") == ["b-1", "a-2", "a-1"]
    assert names(NameContains="a-") == ["a-2", "a-1"]
    assert names(StatusEquals="InProgress", NameContains="a-") == ["a-1"]
    assert names(WarmPoolStatusEquals="Available") == ["a-2"]
    assert names(CreationTimeAfter=datetime.now(UTC) - timedelta(seconds=250)) == ["a-2", "a-1"]
    assert names(CreationTimeBefore=datetime.now(UTC) - an_hour) == []
    assert names(MaxResults=1) == ["a-2", "a-1", "b-1"]
    # AWS takes a page of all jobs first and looks at their status then.
    page = aws.call("sagemaker", "ListTrainingJobs", {"MaxResults": 1, "StatusEquals": "InProgress"})
    assert (page["TrainingJobSummaries"], page["NextToken"]) == ([], "1")
    page = aws.call("sagemaker", "ListTrainingJobs", {"MaxResults": 2})
    first, second = page["TrainingJobSummaries"]
    assert "NextToken" in page
    assert set(first) - set(second) == {"TrainingEndTime", "WarmPoolStatus"}
    assert (second["TrainingJobStatus"], second["SecondaryStatus"]) == ("InProgress", "Starting")
    assert refusal(names, StatusEquals="Done")[0] == "ValidationException"


def test_quotas_come_in_pages(account: SageMakerAccount, aws: Aws) -> None:
    account.quota["ml.p3.8xlarge for training job usage"] = 0
    rows = aws.pages("service-quotas", "ListServiceQuotas", "Quotas", {"ServiceCode": "sagemaker"})
    values = {row["QuotaName"]: row["Value"] for row in rows}

    assert len(rows) > 200
    assert len(account.asked("ListServiceQuotas")) > 2
    assert values["ml.p3.8xlarge for training job usage"] == 0
    assert {f"{KIND} for {use}" for use in ("spot training job usage", "training warm pool usage")} <= set(values)
    one = rows[0]
    asked = {"ServiceCode": "sagemaker", "QuotaCode": one["QuotaCode"]}
    assert aws.call("service-quotas", "GetServiceQuota", asked)["Quota"]["QuotaName"] == one["QuotaName"]


def test_a_stack_names_bucket_and_role(account: SageMakerAccount, aws: Aws) -> None:
    account.make_stack()
    (stack,) = aws.call("cloudformation", "DescribeStacks", {"StackName": "aws-ddp-toolkit"})["Stacks"]

    assert {row["OutputKey"]: row["OutputValue"] for row in stack["Outputs"]} == {
        "Bucket": account.bucket, "SageMakerRole": account.role,
    }  # fmt: skip


def test_log_lines_are_in_one_stream_per_host(account: SageMakerAccount, aws: Aws) -> None:
    stream = account.log("j", "algo-1", ["one", "two"])
    account.log("j", "algo-1", ["three"])
    account.log("j2", "algo-1", ["other"])

    asked = {"logGroupName": LOG_GROUP, "logStreamNamePrefix": "j/"}
    rows = aws.pages("logs", "DescribeLogStreams", "logStreams", asked)
    assert [row["logStreamName"] for row in rows] == [stream]
    assert list(itertools.chain(*account.logged("j").values())) == ["one", "two", "three"]


def test_a_lost_answer_leaves_a_job(account: SageMakerAccount, aws: Aws, faults: Faults) -> None:
    faults.on("CreateTrainingJob", lost(attempts=1))

    assert refusal(start, account, aws)[0] == "ResourceInUse"
    assert list(account.jobs) == ["j"]
