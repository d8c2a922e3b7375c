"""The estimator's arguments: what the user asked for, and nothing that costs GPU time unasked."""

import re
from dataclasses import replace
from typing import Any

import pytest

from launch.core.training.classifier import METRICS, Classifier
from launch.sagemaker import sdk
from tests import needs
from tests.launch.sagemaker.known import FACTS, ROLE, job, plan
from trainer.config import TrainConfig
from trainer.metrics.log import MetricLines
from trainer.settings import flags


def arguments(**settings: Any) -> dict[str, Any]:
    return sdk.arguments(plan(**settings).payload.description)


def test_only_what_differs_from_the_trainers_defaults_is_passed_by_its_flags_name() -> None:
    given = job(epochs=3, batch_size=64, label_smoothing=0.1).train.hyperparameters
    assert given == {
        "dataset": "cifar10",
        "epochs": "3",
        "batch-size": "64",
        "label-smoothing": "0.1",
        "progress": "false",
    }


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"amp": True, "compile": True, "plot": False, "lr": 1e-5, "milestones": [2, 3], "schedule": "multistep"},
        {"batch_ramp": {0: 512, 2: 2048}, "wandb": "a project", "tensorboard": True, "max_steps": 7},
        {"init_from": "/opt/ml/input/data/weights/model.pt", "data": "data=s3://bucket/a,weights=s3://bucket/b"},
    ],
    ids=lambda settings: " ".join(settings) or "default",
)
def test_the_trainer_reads_its_settings_back_from_the_hyperparameters(settings: dict[str, Any]) -> None:
    train = job(**settings).train
    words = [word for name, value in train.hyperparameters.items() for word in (f"--{name}", value)]
    (read,) = flags.parse(words, [TrainConfig], prog="trainer", about="", sections={})
    assert Classifier(read) == train


def test_the_distribution_is_the_requested_one() -> None:
    assert arguments(distribution="torch_distributed")["distribution"] == {"torch_distributed": {"enabled": True}}
    assert list(arguments(distribution="pytorchddp")["distribution"]) == ["pytorchddp"]


@needs.sagemaker_toolkit()
@pytest.mark.parametrize(("environment", "level"), [("", "WARN"), ("NCCL_DEBUG=INFO", "INFO")])
def test_nccls_debugging_lines_are_not_in_the_log_by_default(environment: str, level: str) -> None:
    """AWS's toolkit, by itself, sets NCCL_DEBUG=INFO on every rank that mpirun starts."""
    from sagemaker_training.smdataparallel import _parse_custom_mpi_options

    wanted = arguments(distribution="pytorchddp", environment=environment)["distribution"]["pytorchddp"]
    known, others = _parse_custom_mpi_options(wanted["custom_mpi_options"])

    assert (wanted["enabled"], known.NCCL_DEBUG, others) == (True, level, [])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"warm_pool_s": 600}, {"keep_alive_period_in_seconds": 600}),
        ({"max_restarts": 0}, {"max_retry_attempts": None}),
        ({"checkpoints": False}, {"checkpoint_s3_uri": None}),
        ({"spot": True, "max_hours": 2, "max_wait_hours": 5},
         {"use_spot_instances": True, "max_run": 7200, "max_wait": 18_000}),
        ({"encrypt_traffic": True}, {"encrypt_inter_container_traffic": True}),
        ({"environment": "A=1"}, {"environment": {"A": "1"}}),
        ({"subnet": "subnet-1,subnet-2", "security_group": "sg-1"},
         {"subnets": ["subnet-1", "subnet-2"], "security_group_ids": ["sg-1"]}),
        ({"kms_key": "alias/k"}, {"output_kms_key": "alias/k", "volume_kms_key": None}),
        ({"kms_key": "alias/k", "instance_type": "ml.p3.8xlarge"}, {"output_kms_key": "alias/k",
                                                                    "volume_kms_key": "alias/k", "volume_size": 30}),
    ],
    ids=lambda value: " ".join(value),
)  # fmt: skip
def test_an_option_becomes_an_argument(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    plain, given = arguments(), arguments(**settings)
    assert {name: given.get(name) for name in expected} == expected
    assert given != plain


def test_without_an_account_a_plan_has_the_likely_role_as_an_arn() -> None:
    nobody = replace(FACTS, account=None, role=None, bucket=None)
    roles = [plan(nobody, **s).payload.description.role for s in ({}, {"role": "mine"}, {"role": ROLE})]
    assert roles == [
        "arn:aws:iam::<account>:role/aws-ddp-toolkit-sagemaker", "arn:aws:iam::<account>:role/mine", ROLE,
    ]  # fmt: skip


def test_sagemaker_finds_the_numbers_in_the_trainers_lines(capsys: pytest.CaptureFixture[str]) -> None:
    values = {name: number + 0.5 for number, name in enumerate(METRICS)} | {"train_loss": 1.25e-7, "epoch": 3}
    MetricLines().write(values)
    line = capsys.readouterr().out
    # As mpirun tags it, too.
    for written in (line, f"[1,mpirank:0,algo-1]<stdout>:{line}"):
        for definition in sdk.arguments(plan().payload.description)["metric_definitions"]:
            found = re.search(definition["Regex"], written)
            assert found is not None, definition
            assert float(found[1]) == values[definition["Name"]]
