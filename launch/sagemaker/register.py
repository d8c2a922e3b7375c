"""Registers a trained model in SageMaker's model registry.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateModelPackage.html
"""

import hashlib
from typing import Any

from launch.aws.client import Aws
from launch.aws.containers import inference_image
from launch.core.errors import AwsError
from launch.core.plan import Request
from launch.sagemaker.training_job import TrainingJob
from trainer.errors import TrainerError

HEADING = "when the training is done, for --register:"
# The content types of trainer.trained's input and output.
TAKES, GIVES = ("image/jpeg", "image/png", "application/x-image"), ("application/json",)


def requests(group: str, job: str, region: str, model: str, token: str) -> tuple[Request, ...]:
    """The requests that register the model of the training job called `job` in `group`.

    model: its location in S3; token: distinguishes the job from another of the same name.
    """
    package: dict[str, Any] = {
        "ModelPackageGroupName": group,
        "ModelPackageDescription": f"trained by {job}",
        "InferenceSpecification": {
            "Containers": [
                {
                    "Image": inference_image(region),
                    "ModelDataUrl": model,
                    # As the SDK's PyTorchModel sets them for code in the archive.
                    "Environment": {
                        "SAGEMAKER_PROGRAM": "inference.py",
                        "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code",
                        "SAGEMAKER_CONTAINER_LOG_LEVEL": "20",
                        "SAGEMAKER_REGION": region,
                    },
                    "Framework": "PYTORCH",
                }
            ],
            "SupportedContentTypes": list(TAKES),
            "SupportedResponseMIMETypes": list(GIVES),
        },
        "ModelApprovalStatus": "PendingManualApproval",
        "CustomerMetadataProperties": {"training-job": job},
        # A training is registered only once, even if it is attached to repeatedly.
        "ClientToken": hashlib.sha256(f"{region} {job} {token}".encode()).hexdigest()[:32],
    }
    named = {"ModelPackageGroupName": group}
    return (
        Request("sagemaker", "CreateModelPackageGroup", named, "make the group, if there is none"),
        Request("sagemaker", "CreateModelPackage", package, "register the model; somebody must approve it"),
    )


def register(aws: Aws, training_job: TrainingJob) -> str:
    """Register the model of `training_job`, which is done and has a group; return a sentence about it."""
    group = training_job.registers_in
    try:
        assert group is not None
        assert training_job.model is not None
        make, create = requests(group, training_job.name, aws.region, training_job.model, training_job.token)
        if not _is_there(aws, group):
            _make(aws, make)
        answer = aws.call(create.service, create.operation, create.params)
    except TrainerError as error:  # only a warning: the result is in S3
        return f"warning: the model was not registered in {group}: {error}"
    return f"registered: {answer['ModelPackageArn']}, pending approval"


def _is_there(aws: Aws, group: str) -> bool:
    try:
        aws.call("sagemaker", "DescribeModelPackageGroup", {"ModelPackageGroupName": group})
    except AwsError as error:
        if error.aws_code in ("ValidationException", "ResourceNotFound") and "does not exist" in str(error):
            return False
        raise
    return True


def _make(aws: Aws, make: Request) -> None:
    """Create the group, unless another training has just created it."""
    try:
        aws.call(make.service, make.operation, make.params)
    except AwsError as error:
        if "already exists" not in str(error):
            raise
