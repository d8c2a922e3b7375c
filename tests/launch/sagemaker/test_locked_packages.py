"""What pip installs in a job's container: what the image lacks, and nothing that is not the file that was locked."""

import re
from datetime import date
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from infra.container.pins import read_lock
from launch.core import catalog
from launch.core.training.classifier import Classifier
from launch.sagemaker.bundle import requirements_of, tracking_of
from launch.sagemaker.images import choose
from tests.conftest import ROOT
from tests.launch.sagemaker.test_images import AWS, options
from trainer.config import TrainConfig

LOCKED = re.compile(r"[\w.-]+==\S+( ; .*)? \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+")
SERVER = {"mlflow_server": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/team"}


def requirements(instance: str = "g5.2xlarge", data_url: str | None = None, **given: Any) -> str:
    wanted, train = options(**given), Classifier(TrainConfig(data_url=data_url, dataset="imagenet"))
    return requirements_of(wanted, choose(wanted, [catalog.load()[instance]], "us-east-1", date(2026, 11, 28)), train)


def tracking(where: Any = None, **settings: Any) -> str:
    return tracking_of(options(**(where or {})), Classifier(TrainConfig.model_validate(settings)))


def pins(text: str) -> list[str]:
    return re.findall(r"^[\w.-]+==\S+", text, re.MULTILINE)


def test_requirements_are_what_the_image_lacks_pinned() -> None:
    assert pins(requirements()) == ["nvidia-ml-py==13.615.71", "pytorch-optimizer==4.1.0", "simplejpeg==1.9.0"]


def test_mpi4py_is_added_where_mpirun_needs_it_and_the_image_has_none() -> None:
    bare = f"{AWS}/pytorch:2.11.0-cu130-amzn2023-sagemaker"
    assert "mpi4py==4.1.2" in pins(requirements(image=bare))
    assert "mpi4py==4.1.2" not in pins(requirements(image=bare, distribution="torch_distributed"))
    assert "mpi4py==4.1.2" not in pins(requirements())


def test_what_reads_shards_from_s3_is_added_where_shards_are_read_from_s3() -> None:
    assert "obstore==0.12.1" in pins(requirements(data_url="s3://b/pets"))
    assert "obstore==0.12.1" not in pins(requirements())


@pytest.mark.parametrize(
    "text", [requirements(data_url="s3://b/pets"), tracking(tensorboard=True, wandb="x", mlflow="x", where=SERVER)]
)
def test_every_file_that_pip_installs_has_a_hash(text: str) -> None:
    """The job's role reads secrets: who changes a file of any of dozens of packages on PyPI must not get them."""
    assert pins(text)
    assert LOCKED.sub("", text) == ""


@pytest.mark.parametrize(
    ("tracker", "package", "in_turn"),
    [("tensorboard", "tensorboard", "grpcio"), ("wandb", "wandb", "requests"), ("mlflow", "mlflow-skinny", "fastapi")],
)
def test_a_tracker_brings_all_that_it_needs_in_turn(tracker: str, package: str, in_turn: str) -> None:
    value: Any = True if TrainConfig.model_fields[tracker].annotation is bool else "x"
    locked = read_lock(tracking(**{tracker: value}))
    assert {package, in_turn} <= set(locked)
    assert tracking() == ""


def test_awss_plugin_for_mlflow_is_added_for_a_managed_server() -> None:
    added = set(pins(tracking(SERVER, mlflow="vision"))) - set(pins(tracking(mlflow="vision")))
    assert {"sagemaker-mlflow==0.5.0", "boto3==1.44.5"} <= added


def test_the_pins_are_those_of_our_own_constraints() -> None:
    pinned = {canonicalize_name(line.split("==")[0]): line.split("==")[1]
              for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}  # fmt: skip
    for pin in pins(requirements() + tracking(SERVER, tensorboard=True, wandb="x", mlflow="x")):
        name, _, version = pin.partition("==")
        assert (name, pinned.get(name, version)) == (name, version)
