"""The container of a job: one with kernels for its GPU, in every region, and what it lacks."""

import json
import re
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.aws.containers import Image, known, registry
from launch.core import catalog
from launch.sagemaker.images import check_image, choose, warnings_about
from launch.sagemaker.options import SageMakerOptions
from launch.sagemaker.sdk import importing
from tests.conftest import ROOT
from trainer.errors import SettingsError

ON_SAGEMAKER = [instance for instance in catalog.load().values() if instance.sagemaker_name]
GPUS = [instance.name for instance in ON_SAGEMAKER if instance.is_gpu]
CPUS = [instance.name for instance in ON_SAGEMAKER if not instance.is_gpu]
TODAY = date(2026, 11, 28)
AWS = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
OWN = "123456789012.dkr.ecr.us-east-1.amazonaws.com"


def options(**given: Any) -> SageMakerOptions:
    return SageMakerOptions.model_validate(given)


def chosen(instance: str, region: str = "us-east-1", **given: Any) -> Image:
    return choose(options(**given), [catalog.load()[instance]], region, TODAY)


@cache
def table() -> list[dict[str, Any]]:
    images: list[dict[str, Any]] = yaml.safe_load((ROOT / "infra/images.yaml").read_text())["images"]
    return images


@cache
def sdk_table() -> dict[str, Any]:
    """What the installed SDK knows of AWS's PyTorch images."""
    with importing():
        import sagemaker.image_uris
    content: dict[str, Any] = json.loads(
        (Path(sagemaker.image_uris.__file__).parent / "image_uri_config/pytorch.json").read_text()
    )["training"]["versions"]
    return content


# ---- the choice


def test_every_gpu_gets_an_image_with_kernels_for_it() -> None:
    for name in GPUS:
        image = chosen(name)
        assert catalog.load()[name].architecture in image.architectures
        assert image.known
        assert "-gpu-" in image.uri


def test_a_machine_without_gpu_gets_an_image_without() -> None:
    for name in CPUS:
        assert "-cpu-" in chosen(name).uri


def test_a_v100_gets_the_last_image_that_was_built_for_it() -> None:
    for name in ["p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "p3dn.24xlarge"]:
        image = chosen(name)
        assert image.uri == f"{AWS}/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
        assert image.cuda == "12.9"


def test_a_gpu_that_no_image_supports_is_refused() -> None:
    old = replace(catalog.load()["p3.8xlarge"], architecture="sm_37", gpu_model="K80")
    with pytest.raises(SettingsError, match=r"no known image has kernels for K80 \(sm_37\); give an --image"):
        choose(options(), [old], "us-east-1", TODAY)


def test_an_own_image_is_taken_as_it_is_and_gets_all_that_the_trainer_needs() -> None:
    image = chosen("g5.2xlarge", image=f"{OWN}/ours:1")
    assert image.uri == f"{OWN}/ours:1"
    assert not image.known
    assert {"simplejpeg", "pytorch_optimizer", "nvidia-ml-py"} <= set(image.lacks)


# ---- against the SDK's own table


def test_the_registries_are_the_sdks_own_in_every_region_it_knows() -> None:
    known = sdk_table()["2.8.0"]["registries"]
    assert len(known) > 30
    assert {region: registry(region).partition(".")[0] for region in known} == known


def test_the_host_names_end_as_the_sdk_ends_them() -> None:
    with importing():
        from sagemaker.image_uris import retrieve
    for region in ("us-east-1", "eu-central-2", "cn-north-1", "us-gov-west-1"):
        with importing():
            uri = retrieve("pytorch", region, version="2.8.0", py_version="py312",
                           instance_type="ml.g5.2xlarge", image_scope="training")  # fmt: skip
        assert uri.partition("/")[0] == registry(region)


@pytest.mark.parametrize("row", table(), ids=lambda row: row["tag"])
def test_the_images_of_versions_that_the_sdk_knows_are_the_ones_it_gives(row: dict[str, Any]) -> None:
    version = sdk_table().get(row["torch"])
    if version is None:  # newer than the SDK
        newest = max(tuple(map(int, name.split("."))) for name in sdk_table())
        assert tuple(map(int, row["torch"].split("."))) > newest
        return
    with importing():
        from sagemaker.image_uris import retrieve
    kind = "ml.g5.2xlarge" if "cuda" in row else "ml.c5.2xlarge"
    with importing():
        uri = retrieve("pytorch", "us-east-1", version=row["torch"], py_version=f"py{row['python'].replace('.', '')}",
                       instance_type=kind, image_scope="training")  # fmt: skip
    # The SDK leaves out what is behind the Python version: the registry has both names.
    assert f"{AWS}/pytorch-training:{row['tag']}".startswith(uri)


def test_a_row_of_the_table_agrees_with_its_tag() -> None:
    for row in table():
        tag = row["tag"]
        assert tag.startswith(row["torch"] + "-")
        assert tag.endswith("-sagemaker")
        python = re.search(r"-py(\d)(\d+)-", tag)
        assert python is None or f"{python[1]}.{python[2]}" == row["python"]
        assert ("-cu" in tag) == ("architectures" in row)
        assert isinstance(row["patched_until"], date)


# ---- --image


@pytest.mark.parametrize(
    ("tag", "instance", "sentence"),
    [
        ("2.9.0-gpu-py312-cu130-ubuntu22.04-sagemaker", "p3.8xlarge",
         "no kernels for V100 (sm_70) of ml.p3.8xlarge"),
        ("2.5.1-gpu-py311-cu124-ubuntu22.04-sagemaker", "g5.2xlarge", "needs PyTorch 2.6 and Python 3.11"),
        ("2.6.0-gpu-py310-cu126-ubuntu22.04-sagemaker", "g5.2xlarge", "needs PyTorch 2.6 and Python 3.11"),
        ("2.8.0-gpu-py312-cu129-ubuntu22.04-ec2", "g5.2xlarge", "-sagemaker"),
        ("2.8.0-cpu-py312-ubuntu22.04-sagemaker", "g5.2xlarge", "without a GPU"),
        ("2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker", "c5.2xlarge", "for GPUs"),
    ],
)  # fmt: skip
def test_an_image_that_cannot_work_is_refused_by_its_name(tag: str, instance: str, sentence: str) -> None:
    uri = f"{AWS}/pytorch-training:{tag}"
    with pytest.raises(SettingsError) as error:
        check_image(uri, catalog.load()[instance])
    assert str(error.value).startswith(f"--image {uri}")
    assert sentence in str(error.value)


@pytest.mark.parametrize(("tag", "target"), [("latest", "trainer"), ("trainer-0123456789abcdef", "trainer"),
                                             ("jupyter", "jupyter")])  # fmt: skip
def test_our_own_image_that_is_not_root_is_refused_with_the_target_to_push(tag: str, target: str) -> None:
    """SageMaker runs a container as the image's user, and makes /opt/ml for root:
    https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html"""
    uri = f"{OWN}/aws-ddp-toolkit:{tag}"
    with pytest.raises(SettingsError, match=rf"target {target} of .* push --target sagemaker, and give .*:sagemaker\."):
        check_image(uri, catalog.load()["g5.2xlarge"])


def test_what_the_sdk_itself_retrieves_is_accepted() -> None:
    with importing():
        from sagemaker.image_uris import retrieve
    uri = retrieve("pytorch", "us-east-1", version="2.8.0", py_version="py312", instance_type="ml.g5.2xlarge",
                   image_scope="training")  # fmt: skip
    assert not uri.endswith("-sagemaker")
    check_image(uri, catalog.load()["g5.2xlarge"])


@pytest.mark.parametrize(
    ("uri", "instance"),
    [
        (f"{AWS}/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker", "p3.8xlarge"),
        (f"{AWS}/pytorch:2.11.0-cu130-amzn2023-sagemaker", "g5.2xlarge"),
        (f"{AWS}/pytorch-training:2.10.0-cpu-py313-ubuntu22.04-sagemaker", "c5.2xlarge"),
        # Hugging Face's, which AWS has in the same registries
        (f"{AWS}/huggingface-pytorch-training:2.8.0-transformers4.56.2-gpu-py312-cu129-ubuntu22.04", "g5.2xlarge"),
        (f"{OWN}/aws-ddp-toolkit:sagemaker", "g5.2xlarge"),
        (f"{OWN}/aws-ddp-toolkit:sagemaker-0123456789abcdef", "g5.2xlarge"),
        (f"{OWN}/ours:1.13-cpu-py39", "g5.2xlarge"),
        (f"{OWN}/ours@sha256:0123456789abcdef", "g5.2xlarge"),
        # AWS's image, copied into somebody's own registry: what was done to it, nobody knows
        (
            f"{OWN}/pytorch-training:2.5.1-gpu-py311-cu124-ubuntu22.04-ec2",
            "p3.8xlarge",
        ),
    ],
)
def test_an_image_that_may_work_is_accepted(uri: str, instance: str) -> None:
    check_image(uri, catalog.load()[instance])
    assert chosen(instance, image=uri).uri == uri


def test_a_copy_of_an_image_of_awss_is_somebodys_own() -> None:
    tag = "pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
    assert chosen("g5.2xlarge", image=f"{AWS}/{tag}-v1.4").known  # with a patch number, too
    copied = chosen("g5.2xlarge", image=f"{OWN}/{tag}")
    assert not copied.known
    assert {"simplejpeg", "pytorch_optimizer", "nvidia-ml-py"} <= set(copied.lacks)


def test_awss_image_is_known_in_every_region() -> None:
    tag = "pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
    for region in ("eu-central-2", "cn-north-1", "us-gov-west-1"):
        assert chosen("g5.2xlarge", image=f"{registry(region)}/{tag}").known


# ---- warnings


def test_an_image_that_aws_no_longer_patches_gives_a_warning() -> None:
    image = chosen("p3.8xlarge")
    (sentence,) = warnings_about(options(), image, date(2026, 8, 7))
    assert "2026-08-06" in sentence
    (warning,) = warnings_about(options(), image, date(2026, 5, 8))  # 90 days before
    assert "until 2026-08-06" in warning
    assert warnings_about(options(), image, date(2026, 5, 7)) == []


def test_pytorchddp_has_a_home_on_a_newer_image_once_its_own_is_no_longer_patched() -> None:
    late, given = date(2027, 3, 1), options()
    image = choose(given, [catalog.load()["g5.2xlarge"]], "eu-west-1", late)
    (sentence,) = warnings_about(given, image, late)
    assert image.mpi4py
    (base,) = re.findall(r"launch.image push --target sagemaker --base (\S+)", sentence)
    newer = known(base, "eu-west-1")
    assert newer is not None
    assert newer.patched_until is not None
    assert newer.patched_until > late
    assert set(image.architectures) <= set(newer.architectures)
    by_torchrun = options(distribution="torch_distributed")
    assert (
        warnings_about(by_torchrun, choose(by_torchrun, [catalog.load()["g5.2xlarge"]], "eu-west-1", late), late) == []
    )


def test_an_unknown_image_gives_a_warning_about_what_it_must_have() -> None:
    own = Image("ours:1", known=False)
    for distribution, needs_mpi in (("pytorchddp", True), ("torch_distributed", False)):
        (sentence,) = warnings_about(options(distribution=distribution), own, date(2026, 1, 1))
        assert ("mpirun" in sentence) is needs_mpi


def test_mpirun_in_an_image_without_it_gives_a_warning() -> None:
    image = chosen("g5.2xlarge", image=f"{AWS}/pytorch:2.11.0-cu130-amzn2023-sagemaker")
    (sentence,) = warnings_about(options(), image, date(2026, 1, 1))
    assert "--distribution torch_distributed" in sentence
