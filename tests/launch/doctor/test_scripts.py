"""launch.doctor of a job with a script: whether its source may be sent and read; an older stack lacks that."""

import json
from pathlib import Path

import pytest
from moto.iam.models import iam_backends

from launch.rehearse.aws.iam.policies import policy
from tests.launch.doctor.account import Patient, only
from tests.launch.sagemaker.account import SageMakerAccount
from tests.launch.sagemaker.examination.test_training_jobs import ROLE, Ward

SOURCES = "arn:aws:s3:::aws-ddp-toolkit-*/scripts/*"
UPDATE = "python -m launch.infra up"


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    monkeypatch.chdir(tmp_path)


def without_sources(name: str) -> str:
    """A policy of infra/iam without the objects below scripts/."""
    content = policy(name)
    kept = []
    for statement in content["Statement"]:
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        if left := [one for one in resources if one != SOURCES]:
            kept.append({**statement, "Resource": left})
    return json.dumps({**content, "Statement": kept})


def without_their_list(name: str) -> str:
    """A policy of infra/iam that does not let anybody list what is below scripts/."""
    return json.dumps(policy(name)).replace('"scripts/*"', '"elsewhere/*"')


def on_ec2(check: str, job: tuple[str, ...] = (), *, node: str = "", launcher: str = "") -> dict[str, str]:
    """What is found where nodes or the launcher have those policies."""
    with Patient.opened() as patient:
        iam = iam_backends[patient.account.id]["aws"]
        if node:
            iam.put_role_policy("aws-ddp-toolkit-node", "node", node)
        if launcher:
            iam.users["moto"].policies["launcher"] = launcher
        patient.job = job or ("--script", "train.py")
        with only(check):
            found = patient.examine(code=4 if (node or launcher) and not job else 0)
    return found[check]


def on_sagemaker(check: str, rights: str) -> dict[str, str]:
    """What is found where the job's role has those rights."""
    with SageMakerAccount.opened() as account:
        ward = Ward(account)
        ward.iam.put_role_policy(ROLE, "sagemaker", rights)
        ward.words = ["--instance-type", "ml.g5.12xlarge", "--nodes", "2", "--script", "train.py"]
        with only(check):
            _, found = ward.examine()
    (one,) = [row for row in found if row["check"] == check]
    return one


@pytest.mark.parametrize(
    ("check", "role", "action"),
    [("permissions", "launcher", "s3:PutObject"), ("node's permissions", "node", "s3:GetObject")],
)
def test_roles_that_may_not_upload_or_read_a_source_are_reported(check: str, role: str, action: str) -> None:
    found = on_ec2(check, **{role: without_sources(role)})

    assert found["state"] == "missing"
    assert f"may not {action}" in found["text"]
    assert f"infra/iam/{role}.json" in found["text"]
    assert on_ec2(check)["state"] == "ok"
    ours = ("--nodes", "2", "--dataset", "cifar10")  # which needs none of it
    assert on_ec2(check, **{role: without_sources(role)}, job=ours)["state"] == "ok"


@pytest.mark.parametrize(
    ("rights", "action"),
    [(without_sources("sagemaker"), "s3:GetObject"), (without_their_list("sagemaker"), "s3:List"), ("", "")],
)
def test_a_training_role_that_may_not_read_or_list_a_source_is_reported(rights: str, action: str) -> None:
    """SageMaker lists what it gives a job: https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html"""
    found = on_sagemaker("job's permissions", rights or json.dumps(policy("sagemaker")))

    assert found["state"] == ("missing" if rights else "ok")
    assert f"may not {action}" in found["text"] or not rights
    assert found["remedy"].startswith(UPDATE) or not rights
