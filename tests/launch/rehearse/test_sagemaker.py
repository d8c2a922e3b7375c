"""launch.rehearse.sagemaker: how it sets up its account, and what it refuses, with a remedy."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from launch.core.errors import NotSetUp
from launch.core.training.classifier import Classifier
from launch.rehearse import sagemaker
from launch.rehearse.aws.sagemaker.refusals import check_role
from launch.rehearse.aws.server import RequestLog
from launch.rehearse.backend import RehearsedJob
from launch.rehearse.faults import parse
from launch.rehearse.sagemaker import SageMaker, opened
from launch.sagemaker.backend import BACKEND
from tests import needs
from trainer.config import TrainConfig
from trainer.errors import SettingsError

pytestmark = needs.sagemaker_toolkit()


def job(**options: Any) -> RehearsedJob:
    return RehearsedJob(
        BACKEND,
        (),
        "job",
        {"instance_type": "ml.p3.8xlarge", **options},
        Classifier(TrainConfig(dataset="digits", epochs=4)),
        {},
    )


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SageMaker]:
    with mock_aws(), opened(job(nodes=1), tmp_path, RequestLog()) as backend:
        yield backend


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("no-capacity:zone-a", "SageMaker chooses the zone; leave this fault out."),
        ("spot-notice@epoch:1", "only spot instances are interrupted; add --spot."),
        ("slow-network:1gbit", "one instance uses no network; add --nodes 2."),
    ],
)
def test_impossible_faults_are_refused(here: SageMaker, word: str, reason: str) -> None:
    with pytest.raises(SettingsError) as refused:
        here.prepare(parse([word])[0])

    assert str(refused.value) == f"--inject {word}: {reason}"


def test_a_full_disk_needs_a_host_of_its_own(here: SageMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagemaker, "why_no_network", lambda: "needs root")
    here.agent.in_network = False

    with pytest.raises(SettingsError, match="a disk of the instance's own needs root"):
        here.prepare(parse(["disk-full@epoch:1"])[0])


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagemaker, "find_spec", lambda name: None if name == "mpi4py" else True)

    with pytest.raises(NotSetUp, match=r"needs mpi4py; run pip install .*rehearse-sagemaker"):
        opened(job(nodes=1), tmp_path, RequestLog()).__enter__()


def test_only_the_estimator_needs_the_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagemaker, "find_spec", lambda name: None if name == "sagemaker" else True)

    with mock_aws(), opened(job(nodes=1, through="boto3"), tmp_path, RequestLog()):
        pass
    with pytest.raises(NotSetUp, match="needs sagemaker; run pip install"):
        opened(job(nodes=1, through="estimator"), tmp_path, RequestLog()).__enter__()


def test_many_ranks_are_fewer_on_few_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagemaker.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(sagemaker, "why_no_network", lambda: None)

    with mock_aws(), opened(job(nodes=2), tmp_path, RequestLog()) as backend:
        assert backend.agent.ranks == 2
        assert any("2 on each instance (on AWS: 4)" in line for line in backend.differences)


def test_data_are_where_the_command_line_puts_them(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train/1.jpg").write_bytes(b"x")
    with_data = replace(job(nodes=1, data=("s3://pictures/all",)), data=tmp_path)
    with mock_aws(), opened(with_data, tmp_path / "rehearsal", RequestLog()) as backend:
        assert backend.account.get("s3://pictures/all/train/1.jpg") == b"x"


JOB = "arn:aws:sagemaker:us-east-1:123456789012:training-job/j"


@pytest.mark.parametrize("role", ["mine", "aws-ddp-toolkit-sagemaker"])
def test_a_role_that_the_command_line_names_is_there(tmp_path: Path, role: str) -> None:
    with mock_aws(), opened(job(nodes=1, role=role), tmp_path, RequestLog()) as backend:
        check_role(f"arn:aws:iam::{backend.account.id}:role/{role}", JOB)
