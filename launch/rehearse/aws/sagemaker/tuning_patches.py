"""The operations for tuning jobs, in moto's own classes; tuning.py is what they act on."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.sagemaker.exceptions import SagemakerClientError
from moto.sagemaker.responses import SageMakerResponse

from launch.rehearse.aws.sagemaker.jobs import TrainingJob
from launch.rehearse.aws.sagemaker.refusals import check_shape, invalid
from launch.rehearse.aws.sagemaker.rules import Rules, operation_input
from launch.rehearse.aws.sagemaker.tuning import ENDED, TuningJob

CREATE, LIST = "CreateHyperParameterTuningJob", "ListTrainingJobsForHyperParameterTuningJob"
Admit = Callable[[Rules, dict[str, Any], Any], TrainingJob]


def patches(admit: Admit) -> list[tuple[type, str, Callable[..., Any]]]:
    """As moto_patches.patched() takes them.  admit: the training job of a request, if that is not refused."""

    def create(rules: Rules, original: Any, response: Any) -> ActionResult:
        request, tunings = json.loads(response.body), response.sagemaker_backend.hyper_parameter_tuning_jobs
        check_shape(operation_input(CREATE), request, "")
        name = request["HyperParameterTuningJobName"]
        if name in tunings:
            raise SagemakerClientError("ResourceInUse", f"The tuning job {name} exists already.")  # [?]
        arn = f"arn:aws:sagemaker:{response.region}:{response.current_account}:hyper-parameter-tuning-job/{name}"
        tunings[name] = TuningJob(rules, arn, request, lambda asked: admit(rules, asked, response))
        return ActionResult({"HyperParameterTuningJobArn": arn})

    return [
        (SageMakerResponse, "create_hyper_parameter_tuning_job", create),
        (SageMakerResponse, "describe_hyper_parameter_tuning_job", _describe),
        (SageMakerResponse, "list_training_jobs_for_hyper_parameter_tuning_job", _list),
        (SageMakerResponse, "stop_hyper_parameter_tuning_job", _stop),
    ]


def _known(response: Any) -> TuningJob:
    name = response._get_param("HyperParameterTuningJobName")
    tuning = response.sagemaker_backend.hyper_parameter_tuning_jobs.get(name)
    if tuning is None:
        raise invalid("Requested resource not found.")
    tuning.go_on()
    return tuning  # type: ignore[no-any-return]


def _describe(rules: Rules, original: Any, response: Any) -> ActionResult:
    return ActionResult(copy.deepcopy(_known(response).described))


def _list(rules: Rules, original: Any, response: Any) -> ActionResult:
    return ActionResult({"TrainingJobSummaries": copy.deepcopy(_known(response).summaries)})


def _stop(rules: Rules, original: Any, response: Any) -> EmptyResult:
    tuning = _known(response)
    if tuning.status in ENDED:
        raise invalid(f"The request was rejected because the tuning job is in status {tuning.status}.")  # [?]
    tuning.stop()
    return EmptyResult()
