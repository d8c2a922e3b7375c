"""--secret: what is taken, and that a secret planted wherever one may lie is found nowhere that launchers leave things.

What nodes do with it is in ec2/boot/test_secrets.py and tests/trainer/test_sagemaker.py; a whole rehearsal is in
rehearse/ec2/test_undisturbed.py.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.s3.models import s3_backends

from launch.aws.client import Aws
from launch.core import secrets
from launch.core.errors import Ended
from launch.core.plan import as_json, as_text
from launch.ec2.__main__ import main as launch_ec2
from launch.rehearse.aws.account import Account as AnyAccount
from tests.launch.ec2 import known as on_ec2
from tests.launch.ec2.account import Account
from tests.launch.ec2.world import Stage as Ec2Stage
from tests.launch.sagemaker import known as on_sagemaker
from tests.launch.sagemaker.world import Stage
from trainer.errors import SettingsError

PLANTED = "planted-0f3c9a7e51"
WORDS = ("WANDB_API_KEY=ssm:/ddp-toolkit/wandb", "MLFLOW_TRACKING_PASSWORD=secretsmanager:ddp-toolkit/mlflow")
REFERENCES = {
    "WANDB_API_KEY": "ssm:/ddp-toolkit/wandb",
    "MLFLOW_TRACKING_PASSWORD": "secretsmanager:ddp-toolkit/mlflow",
}


def test_references_are_read_and_those_outside_the_policies_are_listed() -> None:
    others = ["A=ssm:/theirs/wandb", "B=ssm:/ddp-toolkit-not/x", "C=secretsmanager:wandb"]

    assert secrets.read_references(WORDS) == REFERENCES
    assert secrets.beyond_the_policies([*WORDS, *others]) == [word.partition("=")[2] for word in others]


def test_what_is_no_reference_is_refused_without_repeating_it() -> None:
    cases = [
        ([PLANTED], "--secret: write NAME=ssm:/PARAMETER or NAME=secretsmanager:SECRET"),
        ([f"{PLANTED}=ssm:/a"], "--secret: write NAME=ssm:/PARAMETER"),
        ([f"KEY={PLANTED}"], "--secret KEY: give the place"),
        ([f"KEY=env:{PLANTED}"], "--secret KEY: give the place"),
        (["KEY=ssm:/$(id)"], "--secret KEY: give the place"),
        (["KEY=ssm:/" + "a" * 500], "--secret KEY: give the place"),
        (["KEY=secretsmanager:"], "--secret KEY: give the place"),
        (["PATH=ssm:/a"], "--secret PATH: the machine sets this variable"),
        (["LD_PRELOAD=ssm:/a"], "--secret LD_PRELOAD: the machine sets this variable"),
        (["AWS_SECRET_ACCESS_KEY=ssm:/a"], "--secret AWS_SECRET_ACCESS_KEY: the machine sets this variable"),
        (["KEY=ssm:/a", "KEY=ssm:/b"], "--secret KEY is given twice"),
    ]
    for words, named in cases:
        with pytest.raises(SettingsError) as caught:
            secrets.read_references(words)

        assert str(caught.value).startswith(named)
        assert PLANTED not in str(caught.value)


@pytest.mark.parametrize(
    "content", [f"secret: {{KEY: {PLANTED}}}", f"secret: [[{PLANTED}]]", f"secret: [KEY={PLANTED}]"]
)
def test_a_value_in_the_config_is_refused_without_repeating_it(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "job.yaml"
    config.write_text(content)

    code = launch_ec2(["--config", str(config), "--dry-run"])

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert PLANTED not in err
    assert "secret" in err


@pytest.mark.parametrize(("plan", "policy"), [(on_ec2.plan, "node.json"), (on_sagemaker.plan, "sagemaker.json")])
def test_a_plan_shows_where_they_are_kept_and_warns_of_what_the_roles_may_not_read(plan: Any, policy: str) -> None:
    made = plan(secret="KEY=ssm:/ddp-toolkit/key,OTHER=ssm:/theirs/key")

    (fact,) = [fact for fact in made.facts if fact.name == "secrets"]
    assert fact.value == {"KEY": "ssm:/ddp-toolkit/key", "OTHER": "ssm:/theirs/key"}
    (warning,) = [text for text in made.warnings if "theirs" in text]
    assert warning.startswith(f"ssm:/theirs/key is not in infra/iam/{policy}; make sure that ")


# ---- planted


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own environment has secrets, too."""
    for name in ("WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "HF_TOKEN"):
        monkeypatch.setenv(name, PLANTED)


def keep(aws: Aws) -> None:
    """Both services hold the secret."""
    aws.call("ssm", "PutParameter", {"Name": "/ddp-toolkit/wandb", "Type": "SecureString", "Value": PLANTED})
    aws.call("secretsmanager", "CreateSecret", {"Name": "ddp-toolkit/mlflow", "SecretString": PLANTED})


def stored(account: AnyAccount) -> Iterator[bytes]:
    """Every version of every object of every bucket."""
    for bucket in s3_backends[account.id]["aws"].buckets.values():
        for key in bucket.keys.values():
            yield key.value


def assert_nowhere(*places: Any) -> None:
    """In none of `places`, in plain text or in base64, whatever it is aligned to."""
    hidden = [base64.b64encode(b"-" * shift + PLANTED.encode())[4:-4].decode() for shift in range(3)]
    texts = [place.decode(errors="replace") if isinstance(place, bytes) else str(place) for place in places]
    found = [text[:300] for text in texts for form in (PLANTED, *hidden) if form in text]
    assert found == []


@pytest.mark.usefixtures("planted")
def test_a_job_on_ec2_leaves_its_secrets_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    with Account.opened() as account:
        keep(account.aws())
        setting_up = len(account.requests)
        stage = Ec2Stage(account, where={"secret": WORDS})
        plan = stage.plan()
        stage.events = iter([lambda: None, stage.end_nodes(1, reason="the training failed")])

        with pytest.raises(Ended) as ended:
            stage.launch()

        scripts = [instance.user_data.decode() for instance in account.ec2.all_instances()]
        objects = list(stored(account))
        requests = account.requests[setting_up:]
        assert_nowhere(as_text(plan), as_json(plan), repr(plan), *scripts, *objects, *requests, *stage.said)
        assert_nowhere(ended.value, account.logs(), *capfd.readouterr())
        # What does travel is where it is kept.
        assert all("WANDB_API_KEY=ssm:/ddp-toolkit/wandb" in script for script in scripts)
        assert account.s3("jobs/imagenet-1/job.json")["where"]["secret"] == list(WORDS)
        assert {request.service for request in requests} & {"secretsmanager"} == set()


@pytest.mark.usefixtures("planted")
def test_a_job_on_sagemaker_leaves_its_secrets_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    with Stage.opened(secret=",".join(WORDS), environment="NCCL_DEBUG=INFO") as stage:
        keep(stage.aws)
        setting_up = len(stage.account.requests)
        plan = stage.plan()
        stage.events = iter([stage.log("hello"), stage.complete()])

        assert stage.launch() == 0
        assert stage.type("status", "cifar10-1") == 0

        requests = stage.account.requests[setting_up:]
        fetched = [path.read_bytes() for path in stage.results.rglob("*") if path.is_file()]
        assert_nowhere(as_text(plan), as_json(plan), repr(plan), *stored(stage.account), *requests, *stage.said)
        assert_nowhere(*fetched, stage.job().request, stage.account.logs(), *capfd.readouterr())
        assert stage.job().request["Environment"] == {
            "NCCL_DEBUG": "INFO",
            **{f"DDP_SECRET_{name}": where for name, where in REFERENCES.items()},
        }
        assert {request.service for request in requests} & {"ssm", "secretsmanager"} == set()
