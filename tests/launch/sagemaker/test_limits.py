"""SageMaker's limits of a request's values are told by the flag, and are those of AWS's own model of CreateTrainingJob.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
"""

from typing import Any

import pytest

from launch.rehearse.aws.sagemaker.rules import operation_input
from launch.sagemaker import options
from tests.launch.sagemaker.known import plan, resolve
from trainer.errors import SettingsError


def test_what_sagemaker_would_refuse_is_told_by_its_flag() -> None:
    cases = [
        ({"tags": ["team=a&b"]}, "--tags a&b: SageMaker takes letters, digits, spaces and _ . : / = + - @."),
        ({"tags": [f"{'k' * 129}=1"]}, f"--tags {'k' * 40}...: SageMaker takes 128 characters; shorten it."),
        ({"tags": [f"k{i}=1" for i in range(41)]}, "--tags: SageMaker takes 40 beside the toolkit's own; leave 1 out."),
        ({"environment": [f"LONG={'x' * 513}"]}, "--environment LONG: SageMaker takes 512 characters; shorten it."),
        ({"subnet": ["subnet-1"] * 17, "security_group": ["sg-1"]}, "--subnet: SageMaker takes 16"),
        ({"subnet": ["subnet-1"], "security_group": ["sg-1"] * 6}, "--security-group: SageMaker takes 5"),
        ({"subnet": ["my subnet"], "security_group": ["sg-1"]}, "--subnet my subnet: SageMaker takes ids such as"),
        ({"kms_key": "our key"}, "--kms-key our key: SageMaker takes a key's id, ARN or alias."),
        ({"image": "r/" + "i" * 300}, "--image r/iiii"),
        ({"data": [f"c{i}=s3://bucket/x" for i in range(21)]}, "--data: SageMaker takes 20"),
    ]
    for settings, sentence in cases:
        with pytest.raises(SettingsError) as error:
            resolve(**settings)
        assert sentence in str(error.value)


def test_what_it_takes_is_taken() -> None:
    assert resolve(tags=["team=computer vision/été", "cost:center=a@b"], kms_key="alias/ours").tags


def of(path: str) -> Any:
    """The shape of a field; of a list or map that of its items."""
    shape = operation_input("CreateTrainingJob")
    for name in path.split("."):
        shape = getattr(shape, name) if name in ("member", "key", "value") else shape.members[name]
    return shape


def test_the_lengths_are_those_of_awss_own_model() -> None:
    cases = [
        ("Tags.member.Key", options.TAG_NAMES),
        ("Tags.member.Value", options.TAG_VALUES),
        ("Environment.value", options.VARIABLES),
        ("Environment.key", options.VARIABLES),
        ("VpcConfig.Subnets.member", options.SUBNETS),
        ("VpcConfig.SecurityGroupIds.member", options.GROUPS),
        ("ResourceConfig.VolumeKmsKeyId", options.KEY),
        ("OutputDataConfig.KmsKeyId", options.KEY),
        ("AlgorithmSpecification.TrainingImage", options.IMAGE),
        ("InputDataConfig.member.DataSource.S3DataSource.S3Uri", options.PLACES),
    ]
    for path, limit in cases:
        assert of(path).metadata["max"] == limit.longest


def test_the_numbers_leave_room_for_what_the_toolkit_adds() -> None:
    made = plan(register="pets", secret="A=ssm:/ddp-toolkit/a", health_check=True).payload.description
    assert options.TAG_NAMES.most + len(made.tags) <= of("Tags").metadata["max"]
    assert options.VARIABLES.most + len(made.environment) <= of("Environment").metadata["max"]
    assert options.SUBNETS.most == of("VpcConfig.Subnets").metadata["max"]
    assert options.GROUPS.most == of("VpcConfig.SecurityGroupIds").metadata["max"]
    assert options.PLACES.most == of("InputDataConfig").metadata["max"]
    assert options.PLACES_BESIDE_A_SCRIPT.most + 1 == of("InputDataConfig").metadata["max"]


def test_a_script_takes_a_channel_of_its_own() -> None:
    resolved = resolve(data=[f"c{i}=s3://bucket/x" for i in range(20)])

    with pytest.raises(SettingsError, match="--data: SageMaker takes 19 beside the toolkit's own; leave 1 out"):
        options.check_limits(resolved.options, {}, {}, resolved.channels, has_script=True)
