"""`python -m launch.sagemaker` as it is typed: the dry run, the verbs, what they say and their exit codes."""

import os
import re
from pathlib import Path

import pytest

from launch.rehearse.aws.sagemaker.changes import complete, fail
from launch.sagemaker.__main__ import main
from tests.launch.sagemaker.known import BUCKET, NAME, typed
from tests.launch.sagemaker.world import Stage, idle

# ---- a launch


def test_a_dry_run_shows_the_plan_and_writes_nothing(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.type("--instance-type", "ml.p3.8xlarge", "--dry-run") == 0
    assert capsys.readouterr().out.startswith("1 x ml.p3.8xlarge on SageMaker, job cifar10-resnet18-")
    assert stage.account.left() == []
    reads = ("Describe", "Get", "BatchGet", "List", "Head")
    assert not [name for name in stage.account.operations if not name.startswith(reads)]


def test_a_job_of_launch_ec2_is_not_taken_over(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.account.put_json(f"jobs/{NAME}/job.json", {"job": NAME, "backend": "ec2"})
    assert stage.type("--job-name", NAME) == 2
    assert f"python -m launch.ec2 status {NAME}" in capsys.readouterr().err
    assert stage.account.jobs == {}
    assert stage.account.s3(f"jobs/{NAME}/job.json") == {"job": NAME, "backend": "ec2"}


# ---- machines that are not set up


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """A machine that never heard of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return dict(os.environ)


@pytest.mark.usefixtures("nobody")
def test_a_dry_run_needs_no_credentials_and_a_launch_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--instance-type", "ml.p3.8xlarge", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "account     <unknown>, us-east-1" in out
    assert "sagemaker:CreateTrainingJob" in out
    assert out.splitlines()[-1].startswith("problem: no AWS region; give --region us-east-1")
    assert main(["--nodes", "2"]) == 2
    assert capsys.readouterr().err.startswith("error: no AWS region; give --region us-east-1")


# ---- verbs


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--node", "0"), ("--since", "soon")],
)
def test_a_wrong_value_is_refused_before_any_request(
    stage: Stage, flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.type("logs", "demo", flag, value) == 2
    assert capsys.readouterr().err.startswith(f"error: {flag} {value}: ")
    assert stage.account.requests == []


@pytest.mark.parametrize("verb", ["status", "logs", "stop", "attach"])
def test_every_verb_refuses_an_unknown_job_with_the_nearest_name(
    stage: Stage, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.started("imagenet-1")
    stage.started_by_others(NAME)  # a job that somebody started without the toolkit
    assert stage.type(verb, "imagenet-2") == 2
    assert "did you mean 'imagenet-1'?" in capsys.readouterr().err
    assert stage.type(verb, NAME) == 2
    assert capsys.readouterr().err.startswith(f"error: no job '{NAME}' in us-east-1")
    assert len(stage.account.left()) == 2


def test_without_a_job_those_there_are_are_named(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started("one")
    assert stage.type("stop") == 2
    assert capsys.readouterr().err.startswith("error: which job? ")
    assert stage.type("stop", "--all") == 2
    assert "--yes" in capsys.readouterr().err
    assert len(stage.account.left()) == 1


@pytest.mark.parametrize(
    "name",
    ["my_job", "arn:aws:sagemaker"],
)
def test_an_invalid_job_name_is_refused_before_any_request(
    stage: Stage, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.type("status", name) == 2
    assert capsys.readouterr().err.startswith(f"error: --job-name {name}: ")
    assert stage.account.requests == []


# ---- logs


def test_logs_are_shown_also_after_the_end(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started()
    stage.log("[1,mpirank:0,algo-1]<stdout>:epoch 1", "[1,mpirank:1,algo-1]<stderr>:hm")()
    complete(stage.job(), 60)
    assert stage.type("logs", NAME) == 0
    assert capsys.readouterr().out == "epoch 1\nrank 1: hm\n"


def test_logs_of_one_of_several_machines(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started(nodes=2)
    stage.log("a")()
    stage.log("b", host="algo-2")()
    assert stage.type("logs", NAME, "--node", "2") == 0
    assert capsys.readouterr().out == "b\n"
    assert stage.type("logs", NAME) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ["[1] a", "[2] b"]
    assert stage.type("logs", NAME, "--node", "3") == 2
    assert capsys.readouterr().err == f"error: --node 3: {NAME} has 2, numbered from 1.\n"


def test_logs_of_the_newest_start(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    complete(stage.started())
    stage.log("old")()
    stage.started()
    stage.log("new", name=f"{NAME}--2")()
    assert stage.type("logs", NAME) == 0
    assert capsys.readouterr().out == "new\n"


def test_logs_since_some_minutes(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started()
    stage.log("old")()
    stage.slept_s += 3600
    assert stage.type("logs", NAME, "--since", "30") == 0
    assert "old" not in capsys.readouterr().out
    assert stage.type("logs", NAME, "--since", "90") == 0
    assert capsys.readouterr().out == "old\n"


def test_logs_are_followed_to_the_end(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started()
    stage.log("a")()
    stage.events = iter([stage.log("b"), *idle(2), stage.complete(), stage.log("c")])
    assert stage.type("logs", NAME, "-f") == 0
    assert capsys.readouterr().out.splitlines() == [
        "a", "b", "c", f"{NAME} has ended; for its result:", f"  {typed('status')}",
    ]  # fmt: skip


# ---- attach


def test_attach_to_a_job_that_failed_ends_with_its_code(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    fail(stage.started(), 'AlgorithmError: ErrorMessage "Exception: exit code 3: no images in train"')
    assert stage.type("attach", NAME) == 3
    assert capsys.readouterr().err.startswith("error: no images in train; ")


def test_every_suggested_command_works(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started()
    stage.complete()()
    assert stage.type("status", NAME) == 0
    commands = re.findall(r"python -m launch\.sagemaker (.*)", capsys.readouterr().out)
    assert commands
    assert [stage.type(*command.split()) for command in commands] == [0] * len(commands)
    assert BUCKET in stage.text


# ---- remote shell


def test_a_running_job_has_a_shell_on_each_instance(stage: Stage) -> None:
    """The target is as on https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html"""
    stage.started(remote_debug=True, nodes=2)
    assert stage.type("ssh", NAME, "--node", "2", "--print") == 0
    target = f"sagemaker-training-job:{NAME}_algo-2"
    assert stage.said[-1] == f"aws ssm start-session --target {target} --region us-east-1"


def test_without_a_shell_the_user_learns_why(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    made = stage.started()
    assert stage.type("ssh", NAME) == 2
    said = capsys.readouterr().err
    assert f"job {NAME} was started without --remote-debug; turn it on while it trains:" in said
    # https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_UpdateTrainingJob.html, RemoteDebugConfig
    assert f"update-training-job --training-job-name {NAME} --remote-debug-config EnableRemoteDebug=true" in said
    complete(made)
    assert stage.type("ssh", NAME) == 2
    assert f"job {NAME} has ended" in capsys.readouterr().err
    stage.started("other", remote_debug=True)
    assert stage.type("ssh", "other", "--node", "2") == 2
    assert "--node 2: other has 1, numbered from 1." in capsys.readouterr().err
