"""python -m launch.doctor: what it prints, asks and may; and its table of checks."""

import re
from collections.abc import Iterator

import pytest

from launch.core.backend import all_with
from launch.core.names import bucket_of
from launch.doctor import checks, data, image, permissions, time_limit
from launch.doctor.__main__ import main
from launch.doctor.options import BACKENDS
from launch.doctor.permissions import Right
from launch.rehearse.aws.iam.policies import Need, allows, policy
from tests.launch.doctor.account import EXT4, Patient
from tests.launch.ec2.terminal import Terminal
from tests.launch.privilege.enforced import enforced

READS = re.compile(r"Get|Describe|List|Head|BatchGet|Simulate")
MOST_CALLS = 67


@pytest.fixture
def patient() -> Iterator[Patient]:
    with Patient.opened() as opened:
        yield opened


def test_a_sound_account_lacks_nothing(patient: Patient) -> None:
    found = patient.examine()

    assert {name: row["state"] for name, row in found.items() if row["state"] != "ok"} == {}
    assert {check.name for check in checks.CHECKS if "ec2" in check.needed_by} - found.keys() == {
        "spot role", "reservation", "data in S3",  # which this job does not use
    }  # fmt: skip


def test_it_reads_only_and_asks_little(patient: Patient) -> None:
    before, first = patient.account.resources(), len(patient.account.requests)
    patient.examine("--data-volume", "multi-attach")
    asked = patient.account.requests[first:]

    assert [str(call) for call in asked if not READS.match(call.operation) and not call.params.get("DryRun")] == []
    assert patient.account.resources() == before
    assert len(asked) <= MOST_CALLS


def test_the_launchers_and_its_own_policy_are_all_that_it_needs() -> None:
    with Patient.opened() as patient, enforced(patient.account, "doctor") as watch:
        found = patient.examine()

    assert [str(need) for need in watch.refused] == []
    assert [row for row in found.values() if row["state"] == "unknown"] == []


def test_it_prints_a_table_and_below_it_what_mends(patient: Patient) -> None:
    patient.account.ec2.delete_snapshot(patient.account.snapshot)
    assert patient.type() == 4

    (text,) = patient.said
    assert text.startswith("2 x g5.2xlarge with launch.ec2: ")
    assert re.search(r"^  snapshot +missing +no snapshot in us-east-1 is tagged", text, re.MULTILINE)
    assert re.search(r"^  snapshot +python -m launch.data publish", text.partition("to mend it:")[2], re.MULTILINE)
    assert re.search(r"^1 missing, 0 warnings, \d unknown, \d+ ok$", text.splitlines()[-1])


def test_a_setting_that_no_account_can_run_is_refused_before_any_call(
    capsys: pytest.CaptureFixture[str], patient: Patient
) -> None:
    asked = len(patient.account.requests)

    assert patient.type("--nodes", "100") == 2
    assert "--nodes 100 exceeds --max-nodes 64" in capsys.readouterr().err
    assert main(["--for", "slurm"]) == 2
    assert "unknown backend 'slurm'" in capsys.readouterr().err
    assert len(patient.account.requests) == asked


def test_a_launch_that_aws_refuses_recommends_it(capsys: pytest.CaptureFixture[str], patient: Patient) -> None:
    patient.account.quota["L-DB2E81BA"] = 0.0

    assert Terminal(patient.account).type("--nodes", "2", "--dataset", "cifar10") == 4
    assert capsys.readouterr().err.splitlines()[-1].endswith("python -m launch.doctor --for ec2")
    assert Terminal(patient.account).type("--nodes", "2", "--dataset", "nonsense") == 2
    assert "launch.doctor" not in capsys.readouterr().err


def test_every_backend_that_says_so_is_examined() -> None:
    assert tuple(all_with(lambda backend: backend.is_examined)) == BACKENDS


# ---- parts


def test_what_it_simulates_is_what_the_policies_grant() -> None:
    """So the table of rights and infra/iam say the same."""
    tables = {"launcher": [*permissions.LAUNCHER_ON_EC2, *permissions.LAUNCHER_ON_SAGEMAKER],
              "node": permissions.NODE, "sagemaker": permissions.TRAINING_JOB,
              "scheduler": time_limit.RIGHTS}  # fmt: skip
    denied = [
        f"{file}: {need}" for file, rights in tables.items() for right in rights for need in needs(right)
        if not allows([policy(file)], need)
    ]  # fmt: skip
    assert denied == []


def needs(right: Right) -> Iterator[Need]:
    names = {"ACCOUNT": "1", "REGION": "us-east-1", "BUCKET": bucket_of("1", "us-east-1"), "JOB": "doctor",
             "USER_ID": "AIDAME",
             "NODE_ROLE": "aws-ddp-toolkit-node", "SCHEDULER_ROLE": "aws-ddp-toolkit-scheduler",
             "JOB_ROLE": "aws-ddp-toolkit-sagemaker"}  # fmt: skip
    context = {"aws:PrincipalAccount": "1"}
    context |= {key: value.format_map(names) for key, value in right.context.items()}
    for action in right.actions:
        yield from (Need(action, resource.format_map(names), context) for resource in right.resources)


@pytest.mark.parametrize(
    ("config", "platform", "cuda"),
    [
        ({"os": "linux", "architecture": "amd64", "config": {"Env": ["CUDA_VERSION=12.9.1"]}}, "linux/amd64", (12, 9)),
        (
            {"architecture": "arm64", "config": {"Labels": {
                "org.opencontainers.image.base.name": "x/pytorch-training:2.10.0-gpu-py313-cu130-ubuntu22.04-sagemaker"
            }}},
            "linux/arm64", (13, 0),
        ),
        (
            {"os": "linux", "architecture": "amd64", "config": {"Labels": {
                "org.opencontainers.image.base.name": "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime"
            }}},
            "linux/amd64", (13, 0),
        ),
        ({"os": "linux", "architecture": "amd64", "config": None}, "linux/amd64", None),
    ],
)  # fmt: skip
def test_an_image_says_its_platform_and_cuda(config: dict[str, object], platform: str, cuda: object) -> None:
    content = image.content_of(config)
    assert (content.platform, content.cuda) == (platform, cuda)


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (EXT4, "ext4"),
        (b"XFSB" + bytes(2000), "xfs"),
        (bytes(510) + b"\x55\xaaEFI PART" + bytes(1000), "gpt"),
        (bytes(510) + b"\x55\xaa" + bytes(1000), "mbr"),
        (bytes(2000), ""),
        (b"", ""),
    ],
)
def test_a_file_system_is_known_by_its_magic_number(block: bytes, kind: str) -> None:
    assert data.kind_of(block) == kind


# ---- SageMaker
