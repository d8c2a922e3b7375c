"""--register GROUP: the requests, in the plan and after the training."""

from collections.abc import Iterator, Mapping
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from launch.aws.containers import inference_image
from launch.core.plan import as_text
from launch.sagemaker.sdk import importing
from tests.launch.faults import Faults, injected, refused
from tests.launch.sagemaker.known import NAME, plan, request
from tests.launch.sagemaker.world import Stage

GROUP = "digits"
PAIR = ["CreateModelPackageGroup", "CreateModelPackage"]


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage.opened(register=GROUP, through="boto3") as stage:
        yield stage


def planned(**settings: Any) -> list[Any]:
    ((_, requests),) = plan(register=GROUP, **settings).later
    return list(requests)


def made(stage: Stage) -> list[Mapping[str, Any]]:
    return [call.params for call in stage.account.requests if call.operation in PAIR]


def test_the_plan_shows_what_registers_the_model_and_awss_model_accepts_it() -> None:
    """Pages API_CreateModelPackage and API_CreateModelPackageGroup of https://docs.aws.amazon.com/sagemaker/latest/APIReference/"""
    model = botocore.session.Session().get_service_model("sagemaker")
    asked = planned()
    assert [one.operation for one in asked] == PAIR
    for one in asked:
        report = ParamValidator().validate(dict(one.params), model.operation_model(one.operation).input_shape)
        assert not report.has_errors(), report.generate_report()
    (container,) = asked[1].params["InferenceSpecification"]["Containers"]
    job = request()
    assert container["ModelDataUrl"] == f"{job['OutputDataConfig']['S3OutputPath']}/{NAME}/output/model.tar.gz"
    assert container["Environment"]["SAGEMAKER_PROGRAM"] == "inference.py"
    assert asked[1].params["ModelApprovalStatus"] == "PendingManualApproval"
    text = as_text(plan(register=GROUP))
    assert "when the training is done, for --register:\n" in text
    assert plan().later == ()


def test_the_trainer_writes_the_code_that_serves_the_model() -> None:
    asked = request(register=GROUP)
    assert asked["Environment"]["DDP_INFERENCE_CODE"] == "1"
    assert {"Key": "aws-ddp-toolkit:register", "Value": GROUP} in asked["Tags"]
    assert "DDP_INFERENCE_CODE" not in request().get("Environment", {})


def test_the_image_is_one_that_the_sdk_knows() -> None:
    with importing():
        from sagemaker import image_uris
    known = image_uris.retrieve("pytorch", "eu-west-1", version="2.6.0", py_version="py312",
                                instance_type="ml.c5.xlarge", image_scope="inference")  # fmt: skip
    assert inference_image("eu-west-1") == known


def test_a_training_that_is_done_is_registered_once(stage: Stage) -> None:
    stage.events = iter([stage.complete()])
    assert stage.launch() == 0
    assert [{key: value for key, value in one.items() if key != "ClientToken"} for one in made(stage)] == [
        {key: value for key, value in step.params.items() if key != "ClientToken"} for step in planned()
    ]
    assert any(line.startswith("registered: arn:aws:sagemaker:") for line in stage.said)
    stage.attach()
    assert [call.operation for call in stage.account.requests if call.operation in PAIR] == [*PAIR, PAIR[1]]
    first, second = [one["ClientToken"] for one in made(stage) if "ClientToken" in one]
    assert first == second  # so that AWS makes no second one


def test_a_model_that_cannot_be_registered_is_no_failed_training(stage: Stage) -> None:
    stage.events = iter([stage.complete()])
    with injected(Faults()) as faults:
        faults.on("CreateModelPackage", refused("AccessDeniedException"))
        assert stage.launch() == 0
    assert any(line.startswith(f"warning: the model was not registered in {GROUP}: ") for line in stage.said)


def test_a_group_that_another_training_makes_at_the_same_moment_is_no_failure(stage: Stage) -> None:
    stage.events = iter([stage.complete()])
    with injected(Faults()) as faults:
        exists = (
            "Model Package Group already exists: arn:aws:sagemaker:us-east-1:123456789012:model-package-group/digits"
        )
        faults.on("CreateModelPackageGroup", refused("ValidationException", 400, exists))
        stage.launch()
    assert [call.operation for call in stage.account.requests if call.operation in PAIR] == PAIR


def test_a_training_that_fails_registers_nothing(stage: Stage) -> None:
    from launch.core.errors import Ended
    from launch.rehearse.aws.sagemaker.changes import fail

    stage.events = iter([lambda: fail(stage.job(), "AlgorithmError: it broke")])
    with pytest.raises(Ended):
        stage.launch()
    assert made(stage) == []
