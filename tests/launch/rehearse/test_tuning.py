"""The embedded SageMaker's tuning jobs."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from launch.rehearse.aws.sagemaker.changes import complete
from launch.sagemaker import training_jobs
from launch.sagemaker.leaks import judge
from tests.launch.sagemaker.account import SageMakerAccount
from tests.launch.sagemaker.known import request

NAME = "tuning-1"
RANGES = {
    "ContinuousParameterRanges": [{"Name": "lr", "MinValue": "0.001", "MaxValue": "0.1", "ScalingType": "Logarithmic"}],
    "IntegerParameterRanges": [{"Name": "warmup", "MinValue": "0", "MaxValue": "5"}],
    "CategoricalParameterRanges": [{"Name": "batch-size", "Values": ['"16"', '"64"']}],
}


def asked(most: int = 3, parallel: int = 2) -> dict[str, Any]:
    made = dict(request())
    definition = {name: made[name] for name in ("RoleArn", "ResourceConfig", "StoppingCondition", "OutputDataConfig")}
    definition["AlgorithmSpecification"] = made["AlgorithmSpecification"]
    definition["StaticHyperParameters"] = made["HyperParameters"]
    return {
        "HyperParameterTuningJobName": NAME,
        "HyperParameterTuningJobConfig": {
            "Strategy": "Random",
            "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "eval_top1"},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": most, "MaxParallelTrainingJobs": parallel},
            "ParameterRanges": RANGES,
        },
        "TrainingJobDefinition": definition,
        "Tags": made["Tags"],
    }


@pytest.fixture
def account() -> Any:
    with SageMakerAccount.opened() as opened:
        yield opened


def test_a_tuning_job_starts_training_jobs_in_turn_and_names_the_best(account: SageMakerAccount) -> None:
    client = account.aws().client("sagemaker")
    client.create_hyper_parameter_tuning_job(**asked())
    assert len(account.jobs) == 2
    for score in (0.5, 0.9, 0.7):
        running = next(job for job in account.jobs.values() if not job.has_ended)
        complete(running, metrics={"eval_top1": score})
        shown = client.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=NAME)
    assert shown["HyperParameterTuningJobStatus"] == "Completed"
    assert shown["TrainingJobStatusCounters"]["Completed"] == shown["ObjectiveStatusCounters"]["Succeeded"] == 3
    rows = client.list_training_jobs_for_hyper_parameter_tuning_job(HyperParameterTuningJobName=NAME)
    best = shown["BestTrainingJob"]
    assert best["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] == pytest.approx(0.9)
    for row in rows["TrainingJobSummaries"]:
        drawn = row["TunedHyperParameters"]
        assert 0.001 <= float(drawn["lr"]) <= 0.1
        assert 0 <= int(drawn["warmup"]) <= 5
        assert drawn["batch-size"] in ('"16"', '"64"')
        given = account.jobs[row["TrainingJobName"]].request["HyperParameters"]
        assert {name: given[name] for name in drawn} == drawn
        assert given["sagemaker_program"] == '"train.py"'


def test_a_tuning_job_that_is_stopped_ends_with_its_training_jobs(account: SageMakerAccount) -> None:
    client = account.aws().client("sagemaker")
    client.create_hyper_parameter_tuning_job(**asked())
    client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=NAME)
    for name in list(account.jobs):  # it shows each of them as Stopping once
        for _ in range(2):
            client.describe_training_job(TrainingJobName=name)
    shown = client.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=NAME)
    assert shown["HyperParameterTuningJobStatus"] == "Stopped"
    assert account.left() == []
    with pytest.raises(ClientError, match="is in status Stopped"):
        client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=NAME)


def test_names_are_unique_and_ranges_are_those_of_awss_model(account: SageMakerAccount) -> None:
    client = account.aws().client("sagemaker")
    client.create_hyper_parameter_tuning_job(**asked(most=1, parallel=1))
    with pytest.raises(ClientError, match="exists already"):
        client.create_hyper_parameter_tuning_job(**asked())
    wrong = asked()
    wrong["HyperParameterTuningJobConfig"]["Strategy"] = "Guessing"
    with pytest.raises(ClientError, match="enum value set"):
        client.create_hyper_parameter_tuning_job(**{**wrong, "HyperParameterTuningJobName": "other"})


def test_the_training_jobs_of_a_tuning_job_are_no_leaks_while_it_tunes(account: SageMakerAccount) -> None:
    """They have the tuning job's tags, and names of its own: API_CreateHyperParameterTuningJob.html, Tags."""
    account.aws().client("sagemaker").create_hyper_parameter_tuning_job(**asked())
    now = account.rules.now()
    found = judge(training_jobs.costing(account.aws(), now), now)
    assert [(finding.is_leak, finding.why) for finding in found] == [(False, f"of tuning job {NAME}")] * 2
