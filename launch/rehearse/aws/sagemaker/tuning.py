"""Hyperparameter tuning jobs: training jobs started one after the other, with values drawn at random.

AWS's own default strategy, Bayesian, learns from earlier jobs; here values are drawn, whatever the strategy, and the
same tuning job draws the same ones.  A tuning job goes on when an answer shows it.
https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateHyperParameterTuningJob.html
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch.rehearse.aws.sagemaker.changes import stopping
from launch.rehearse.aws.sagemaker.jobs import TrainingJob
from launch.rehearse.aws.sagemaker.rules import Rules

ENDED = ("Completed", "Failed", "Stopped")
# What a training job's request takes over from the definition, under the same names.
SAME = ("RoleArn", "InputDataConfig", "VpcConfig", "OutputDataConfig", "StoppingCondition",
        "EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining",
        "CheckpointConfig", "RetryStrategy", "Environment")  # fmt: skip
Admit = Callable[[dict[str, Any]], TrainingJob]


class TuningJob:
    """A tuning job and its training jobs, oldest first.  admit: makes a training job of its request."""

    def __init__(self, rules: Rules, arn: str, request: Mapping[str, Any], admit: Admit) -> None:
        self.rules, self.arn, self.request, self._admit = rules, arn, request, admit
        self.config = request["HyperParameterTuningJobConfig"]
        self.definition = request["TrainingJobDefinition"]
        self.created, self.status = rules.now(), "InProgress"
        self.jobs: list[TrainingJob] = []
        self.drawn: list[dict[str, str]] = []
        self._dice = random.Random(self.config.get("RandomSeed", self.name))  # nosec B311  # no secret
        self.go_on()

    @property
    def name(self) -> str:
        return str(self.request["HyperParameterTuningJobName"])

    @property
    def tags(self) -> list[dict[str, str]]:
        return list(self.request.get("Tags", []))

    @property
    def objective(self) -> Mapping[str, str]:
        stated: Mapping[str, str] = self.config["HyperParameterTuningJobObjective"]
        return stated

    def go_on(self) -> None:
        """Starts the training jobs that may run now, and ends when all have ended."""
        running = sum(not job.has_ended for job in self.jobs)
        limits = self.config["ResourceLimits"]
        if self.status == "Stopping" and not running:
            self.status = "Stopped"
        while self.status == "InProgress" and running < limits["MaxParallelTrainingJobs"]:
            if len(self.jobs) == limits["MaxNumberOfTrainingJobs"]:
                break
            self._start()
            running += 1
        if self.status == "InProgress" and not running:
            self.status = "Completed"

    def stop(self) -> None:
        """Stops it with its training jobs."""
        self.status = "Stopping"
        for job in self.jobs:
            if job.status == "InProgress":
                stopping(job)

    def _start(self) -> None:
        number, values = len(self.jobs) + 1, draw(self.config["ParameterRanges"], self._dice)
        digest = hashlib.sha256(f"{self.name} {number}".encode()).hexdigest()[:8]
        request = {
            **{name: self.definition[name] for name in SAME if name in self.definition},
            "TrainingJobName": f"{self.name}-{number:03d}-{digest}",
            "AlgorithmSpecification": dict(self.definition["AlgorithmSpecification"]),
            "ResourceConfig": self._resources(),
            "HyperParameters": {**self.definition.get("StaticHyperParameters", {}), **values},
            "Tags": self.tags,
        }
        job = self._admit(request)
        job.described["TuningJobArn"] = self.arn
        self.jobs.append(job)
        self.drawn.append(values)

    def _resources(self) -> dict[str, Any]:
        """The SDK writes them under a name of tuning jobs' own."""
        given = self.definition.get("ResourceConfig") or self.definition["HyperParameterTuningResourceConfig"]
        return {name: value for name, value in given.items() if name != "AllocationStrategy"}

    # ---- answers

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """The rows of ListTrainingJobsForHyperParameterTuningJob."""
        return [self._summary(job, values) for job, values in zip(self.jobs, self.drawn, strict=True)]

    @property
    def described(self) -> dict[str, Any]:
        """The answer of DescribeHyperParameterTuningJob."""
        statuses = [job.status for job in self.jobs]
        rows = [row for row in self.summaries if "FinalHyperParameterTuningJobObjectiveMetric" in row]
        best = sorted(rows, key=self._score)[-1:]
        return {
            "HyperParameterTuningJobName": self.name,
            "HyperParameterTuningJobArn": self.arn,
            "HyperParameterTuningJobConfig": self.config,
            "TrainingJobDefinition": self.definition,
            "HyperParameterTuningJobStatus": self.status,
            "CreationTime": self.created,
            "TrainingJobStatusCounters": {
                "Completed": statuses.count("Completed"),
                "InProgress": sum(not job.has_ended for job in self.jobs),
                "RetryableError": 0,
                "NonRetryableError": statuses.count("Failed"),
                "Stopped": statuses.count("Stopped"),
            },
            "ObjectiveStatusCounters": {
                "Succeeded": len(rows),
                "Pending": sum(not job.has_ended for job in self.jobs),
                "Failed": sum(job.has_ended for job in self.jobs) - len(rows),
            },
            **({"BestTrainingJob": best[0]} if best else {}),
        }

    def _score(self, row: Mapping[str, Any]) -> float:
        value = float(row["FinalHyperParameterTuningJobObjectiveMetric"]["Value"])
        return value if self.objective["Type"] == "Maximize" else -value

    def _summary(self, job: TrainingJob, values: Mapping[str, str]) -> dict[str, Any]:
        keys = ("TrainingJobName", "TrainingJobArn", "CreationTime", "TrainingStartTime", "TrainingEndTime",
                "TrainingJobStatus", "FailureReason")  # fmt: skip
        row = {key: job.described[key] for key in keys if key in job.described}
        row["TunedHyperParameters"] = dict(values)
        measured: Sequence[Mapping[str, Any]] = job.described.get("FinalMetricDataList", ())
        for metric in measured:
            if job.has_ended and metric["MetricName"] == self.objective["MetricName"]:
                row["FinalHyperParameterTuningJobObjectiveMetric"] = {**self.objective, "Value": metric["Value"]}
                row["ObjectiveStatus"] = "Succeeded"
        return row


def draw(ranges: Mapping[str, Any], dice: random.Random) -> dict[str, str]:
    """A value of each range, as text."""
    values = dict[str, str]()
    for one in ranges.get("ContinuousParameterRanges", ()):
        values[one["Name"]] = repr(_between(one, dice))
    for one in ranges.get("IntegerParameterRanges", ()):
        values[one["Name"]] = str(round(_between(one, dice)))
    for one in ranges.get("CategoricalParameterRanges", ()):
        values[one["Name"]] = dice.choice(one["Values"])
    return values


def _between(one: Mapping[str, Any], dice: random.Random) -> float:
    least, most = float(one["MinValue"]), float(one["MaxValue"])
    if one.get("ScalingType") == "Logarithmic":
        return math.exp(dice.uniform(math.log(least), math.log(most)))
    return dice.uniform(least, most)
