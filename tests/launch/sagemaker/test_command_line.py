"""`python -m launch.sagemaker` as it is typed: the dry run, the verbs, what they say and their exit codes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from launch.rehearse.aws.sagemaker.changes import advance, complete, fail
from launch.sagemaker.__main__ import main
from tests.conftest import ROOT
from tests.launch.faults import Faults, injected, refused
from tests.launch.sagemaker.known import BUCKET, NAME, typed
from tests.launch.sagemaker.test_stop import foreign
from tests.launch.sagemaker.world import Stage, idle, interrupt

VERBS = ["status", "logs", "stop", "leaks", "attach"]
WITH_JOBS = [("status", NAME), ("logs", NAME), ("stop", NAME), ("leaks",), ("attach", NAME)]


# ---- a launch


def test_a_dry_run_shows_the_plan_and_writes_nothing(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.type("--instance-type", "ml.p3.8xlarge", "--dry-run") == 0
    text = capsys.readouterr().out
    assert text.startswith("1 x ml.p3.8xlarge on SageMaker, job cifar10-resnet18-")
    assert "sagemaker:CreateTrainingJob  start the job, through the SDK's estimator" in text
    assert "training    4 processes by mpirun (pytorchddp): --dataset cifar10 --batch-size 256 --device cuda" in text
    assert "1 needed + 0 running <= 20 (ml.p3.8xlarge for training job usage)" in text
    assert "pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker" in text
    assert "warning: p3.8xlarge is being retired" in text
    assert stage.account.left() == []
    reads = ("Describe", "Get", "BatchGet", "List", "Head")
    assert not [name for name in stage.account.operations if not name.startswith(reads)]


def test_a_dry_run_for_programs_has_every_parameter(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.type("--nodes", "2", "--dry-run=json") == 0
    plan = json.loads(capsys.readouterr().out)
    create = plan["steps"][-1]
    assert create["call"] == "sagemaker:CreateTrainingJob"
    assert create["params"]["ResourceConfig"]["InstanceCount"] == 2
    assert len(create["params"]["AlgorithmSpecification"]["MetricDefinitions"]) == 19


def test_a_dry_run_tells_what_speaks_against_the_launch(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.type("--bucket", "none-such", "--dry-run") == 4
    assert "problem: there is no bucket none-such" in capsys.readouterr().out


def test_a_launch_ends_with_the_trainings_exit_code(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.events = iter([lambda: advance(stage.job()), stage.log("epoch 1"), stage.complete()])
    assert stage.type("--job-name", NAME) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[-3].startswith("the training is done; ")
    reason = 'AlgorithmError: ErrorMessage "Exception: exit code 5: the loss is not finite"'
    stage.events = iter([lambda: fail(stage.job(f"{NAME}--2"), reason)])
    assert stage.type("--job-name", NAME) == 5
    assert capsys.readouterr().err.startswith("error: the loss is not finite; 0 s billed, about 0.00 USD\n  python -m")


def test_ctrl_c_ends_with_130(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.events = iter([interrupt])
    assert stage.type("--job-name", NAME) == 130
    assert capsys.readouterr().err.startswith("error: stopped as requested; ")
    assert stage.account.left() == []


def test_settings_come_from_a_file_and_flags_win(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text("instance-type: ml.g5.12xlarge\nnodes: 2\nmodel: cnn\nspot: true\n")
    assert stage.type("--config", str(tmp_path / "job.yaml"), "--nodes", "1", "--dry-run") == 0
    text = capsys.readouterr().out
    assert text.startswith("1 x ml.g5.12xlarge on SageMaker, job cifar10-cnn-")
    assert "EnableManagedSpotTraining: True" in text


@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=["launch", "dry run"])
def test_a_job_of_launch_ec2_is_not_taken_over(
    stage: Stage, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    stage.account.put_json(f"jobs/{NAME}/job.json", {"job": NAME, "backend": "ec2"})
    assert stage.type("--job-name", NAME, *more) == 2
    assert f"{NAME} is a job of launch.ec2; see python -m launch.ec2 status {NAME}, or choose another --job-name." in (
        "".join(capsys.readouterr())
    )
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


def test_a_dry_run_needs_no_credentials_and_a_launch_does(nobody: dict[str, str]) -> None:
    command = [sys.executable, "-m", "launch.sagemaker", "--instance-type", "ml.p3.8xlarge"]
    done = subprocess.run([*command, "--dry-run"], cwd=ROOT, env=nobody, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "account     <unknown>, us-east-1" in done.stdout
    assert "sagemaker:CreateTrainingJob" in done.stdout
    assert "warning: nothing was looked up" in done.stdout
    assert done.stdout.endswith("problem: no AWS region; give --region us-east-1, or set AWS_DEFAULT_REGION.\n")


@pytest.mark.usefixtures("nobody")
def test_without_a_region_a_launch_ends_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nodes", "2"]) == 2
    assert capsys.readouterr() == ("", "error: no AWS region; give --region us-east-1, or set AWS_DEFAULT_REGION.\n")


def test_without_boto3_the_user_learns_what_to_install(nobody: dict[str, str]) -> None:
    program = (
        "import sys; sys.modules |= dict.fromkeys(['boto3', 'botocore', 'jmespath', 'sagemaker'])\n"
        "from launch.sagemaker.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=nobody, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    remedy = "run pip install -c constraints.txt -e '.[aws]' in the checkout."
    assert done.stderr == f"error: boto3 is not installed; {remedy}\n"
    done = subprocess.run([*command, "--dry-run"], cwd=ROOT, env=nobody, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# ---- verbs


@pytest.mark.parametrize("verb", VERBS)
def test_help_says_what_a_verb_does_with_an_example(
    stage: Stage, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        stage.type(verb, "--help")
    text = capsys.readouterr().out
    assert end.value.code == 0
    assert f"\n  python -m launch.sagemaker {verb}" in text
    assert "--region" in text
    assert stage.account.requests == []


def test_the_exit_codes_of_leaks_are_in_its_help(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        stage.type("leaks", "--help")
    assert "Exit code 0: no leak is left; 4: one is, or AWS did not answer." in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize("verb", VERBS)
def test_a_misspelt_flag_is_refused_before_aws_is_asked(
    stage: Stage, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.type(verb, "--regoin", "us-east-1") == 2
    assert capsys.readouterr().err == (
        "error: unknown flag --regoin; did you mean --region? See --help for all of them.\n"
    )
    assert stage.account.requests == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["logs", "demo", "--node", "0"], "--node 0: must be greater than or equal to 1.\n"),
        (["logs", "demo", "--since", "soon"], "--since soon: must be a number.\n"),
        (["logs", "demo", "--since", "0"], "--since 0: must be greater than 0.\n"),
        (["stop", "demo", "other"], "unexpected word 'other'; settings are given as --name value.\n"),
    ],
)
def test_a_wrong_value_is_refused_in_a_sentence(
    stage: Stage, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.type(*words) == 2
    assert capsys.readouterr().err == f"error: {sentence}"
    assert stage.account.requests == []


@pytest.mark.parametrize("words", WITH_JOBS, ids=VERBS)
def test_without_credentials_every_verb_says_what_to_do(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert main(list(words)) == 2
    assert (
        capsys.readouterr().err
        == "error: no AWS credentials; run aws configure or aws sso login, or set AWS_PROFILE.\n"
    )


@pytest.mark.parametrize("words", WITH_JOBS, ids=VERBS)
def test_a_permission_that_is_missing_is_named(
    stage: Stage, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with injected(Faults()) as faults:
        faults.on("ListTrainingJobs", refused("AccessDeniedException", 403), nth=None)
        assert stage.type(*words) == 4
    assert capsys.readouterr().err.startswith("error: these credentials may not sagemaker:ListTrainingJobs; ")


@pytest.mark.parametrize("verb", ["status", "logs", "stop", "attach"])
def test_an_unknown_job_is_told_by_every_verb(stage: Stage, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.type(verb, "no-such") == 2
    assert capsys.readouterr().err == (
        "error: no job 'no-such' in us-east-1. There are no jobs of the last day. For another region add --region.\n"
    )


@pytest.mark.parametrize("verb", ["status", "logs", "stop", "attach"])
@pytest.mark.parametrize("name", ["my_job", "arn:aws:sagemaker", "j" * 49, "j-"])
def test_what_is_no_name_of_a_job_is_refused_before_aws_is_asked(
    stage: Stage, verb: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.type(verb, name) == 2
    assert capsys.readouterr().err.startswith(f"error: --job-name {name}: at most 48 letters, digits and hyphens")
    assert stage.account.requests == []


@pytest.mark.parametrize("verb", ["status", "logs", "attach"])
def test_somebody_elses_job_of_that_name_is_no_job_of_ours(
    stage: Stage, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign(stage, NAME)
    assert stage.type(verb, NAME) == 2
    assert capsys.readouterr().err.startswith(f"error: no job '{NAME}' in us-east-1")


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
    assert capsys.readouterr().out == f"{NAME} logged nothing in the last 30 min\n"
    assert stage.type("logs", NAME, "--since", "90") == 0
    assert capsys.readouterr().out == "old\n"


def test_a_job_that_says_nothing_yet(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started(to="Downloading")
    assert stage.type("logs", NAME) == 0
    assert capsys.readouterr().out == f"{NAME} has logged nothing yet; it is Downloading\n"


def test_logs_are_followed_to_the_end(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started()
    stage.log("a")()
    stage.events = iter([stage.log("b"), *idle(2), stage.complete(), stage.log("c")])
    assert stage.type("logs", NAME, "-f") == 0
    assert capsys.readouterr().out.splitlines() == [
        "a", "b", "c", f"{NAME} has ended; for its result:", f"  {typed('status')}",
    ]  # fmt: skip


def test_ctrl_c_ends_the_following_and_not_the_job(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started()
    stage.events = iter([stage.log("a"), interrupt])
    assert stage.type("logs", NAME, "-f") == 130
    assert capsys.readouterr().out.splitlines()[-2:] == ["the job keeps running; to stop it:", f"  {typed('stop')}"]
    assert stage.account.left() == [f"training job {NAME} (InProgress)"]


# ---- attach


def test_attach_follows_to_the_end_and_fetches_the_result(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started()
    stage.events = iter([stage.log("epoch 3"), stage.complete()])
    assert stage.type("attach", NAME) == 0
    assert "epoch 3" in capsys.readouterr().out.splitlines()
    assert (stage.results / NAME / "model.pt").read_text() == "the weights"


def test_attach_without_fetch_leaves_the_result_where_it_is(stage: Stage) -> None:
    stage.started()
    stage.complete()()
    assert stage.type("attach", NAME, "--no-fetch") == 0
    assert list(stage.results.iterdir()) == []


def test_attach_to_a_job_that_failed_ends_with_its_code(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    fail(stage.started(), 'AlgorithmError: ErrorMessage "Exception: exit code 3: no images in train"')
    assert stage.type("attach", NAME) == 3
    out, err = capsys.readouterr()
    assert "FailureReason: AlgorithmError: ErrorMessage" in out
    assert err.startswith("error: no images in train; ")


def test_a_job_can_be_attached_to_twice(stage: Stage) -> None:
    stage.started()
    stage.complete()()
    assert [stage.type("attach", NAME) for _ in range(2)] == [0, 0]


def test_every_command_that_is_told_is_one_that_works(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started()
    stage.complete()()
    assert stage.type("status", NAME) == 0
    told = re.findall(r"python -m launch\.sagemaker (.*)", capsys.readouterr().out)
    assert told
    assert [stage.type(*command.split()) for command in told] == [0] * len(told)
    assert BUCKET in stage.text
