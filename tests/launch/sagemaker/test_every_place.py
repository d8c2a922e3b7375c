"""A dry run of every NVIDIA type that SageMaker has, and in every commercial region: a plan, or one clear sentence."""

import pytest

from launch.core import catalog
from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from tests.launch.ec2.test_every_place import JOB, REGIONS, Capture, some_quick, why_not
from tests.launch.sagemaker.world import Stage

# SageMaker's SDK does not have these in its list for pytorchddp, the default.
ONLY_WITH_TORCHRUN = ["ml.p5.48xlarge"]
NVIDIA = [one.sagemaker_name for one in catalog.load().values() if one.is_gpu and one.sagemaker_name]
SLOW = pytest.mark.slow("SageMaker plans every NVIDIA type that it has, and in every commercial region")


@pytest.mark.parametrize("family", some_quick({name.split(".")[1] for name in NVIDIA}, ("g5", "p5"), SLOW))
def test_every_type(family: str, stage: Stage, capsys: Capture) -> None:
    for name in NVIDIA:
        if name.split(".")[1] == family:
            why = why_not(stage.type(*JOB, "--instance-type", name), capsys)
            needed = ["--distribution torch_distributed" in sentence for sentence in why]
            assert needed == [True] * (name in ONLY_WITH_TORCHRUN), (name, why)


@pytest.mark.parametrize("continent", some_quick({name.split("-")[0] for name in REGIONS}, ("sa",), SLOW))
def test_every_region(continent: str, stage: Stage, capsys: Capture) -> None:
    """One that is not set up names the command for that region; one that is has a plan."""
    for region in REGIONS:
        if region.split("-")[0] == continent:
            words = (*JOB, "--region", region)
            if region != stage.account.region:
                why = why_not(stage.type(*words), capsys)
                assert [f"python -m launch.infra up --region {region})" in sentence for sentence in why] == [True]
                SageMakerAccount(region, rules=stage.account.rules).fill()
            assert why_not(stage.type(*words), capsys) == []
