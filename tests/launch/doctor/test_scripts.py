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


def on_ec2(check: str, *, node: str = "", launcher: str = "", job: tuple[str, ...] = ()) -> dict[str, str]:
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


def test_a_launcher_that_may_not_send_a_source_is_told() -> None:
    found = on_ec2("permissions", launcher=without_sources("launcher"))

    assert found["state"] == "missing"
    assert "moto may not s3:PutObject" in found["text"]


def test_nodes_that_may_not_read_a_source_are_told() -> None:
    found = on_ec2("node's permissions", node=without_sources("node"))

    assert (found["state"], "may not s3:GetObject" in found["text"]) == ("missing", True)
    assert found["text"].endswith(", which infra/iam/node.json allows")
    assert found["remedy"].startswith(UPDATE)


def test_training_jobs_that_may_not_read_or_list_a_source_are_told() -> None:
    """SageMaker lists what it gives a job: https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html"""
    for rights, action in (
        (without_sources("sagemaker"), "s3:GetObject"),
        (without_their_list("sagemaker"), "s3:List"),
    ):
        found = on_sagemaker("job's permissions", rights)
        assert (found["state"], f"may not {action}" in found["text"]) == ("missing", True), found
        assert found["text"].endswith(", which infra/iam/sagemaker.json allows")
        assert found["remedy"].startswith(UPDATE)


def test_todays_policies_let_a_source_be_sent_and_read() -> None:
    assert on_ec2("permissions")["state"] == "ok"
    assert on_ec2("node's permissions")["state"] == "ok"
    assert on_sagemaker("job's permissions", json.dumps(policy("sagemaker")))["state"] == "ok"


def test_a_job_of_our_trainer_needs_none_of_it() -> None:
    ours = ("--nodes", "2", "--dataset", "cifar10")
    assert on_ec2("permissions", launcher=without_sources("launcher"), job=ours)["state"] == "ok"
    assert on_ec2("node's permissions", node=without_sources("node"), job=ours)["state"] == "ok"
