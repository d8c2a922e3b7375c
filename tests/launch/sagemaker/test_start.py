"""The life of a job: started, followed, its result fetched; and what is reported and left when something goes wrong."""

import dataclasses
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.response import StreamingBody
from moto.iam.models import iam_backends

from launch.aws.names import ROLES_TAG, SCHEDULER_ROLE, SHARED_SINCE, STACK_TAG
from launch.core.errors import AwsError, Ended, LeftRunning, NoAnswer
from launch.core.job import Job
from launch.core.plan import as_text
from launch.core.signals import Hangup
from launch.core.source.find import Source, find
from launch.core.training.script import Script
from launch.rehearse.aws.sagemaker.changes import advance, complete, fail
from launch.sagemaker import sdk
from launch.sagemaker import start as start_module
from launch.sagemaker.planner import SageMakerPlan
from tests.launch.faults import (
    Died,
    Fault,
    Faults,
    died_after,
    died_before,
    lost,
    refused,
    unreachable,
)
from tests.launch.sagemaker import known
from tests.launch.sagemaker.known import BUCKET, NAME, typed
from tests.launch.sagemaker.world import Event, Stage, idle, sending
from tests.launch.sagemaker.world import interrupt as ctrl_c
from trainer.errors import SettingsError

CONSOLE = f"https://us-east-1.console.aws.amazon.com/sagemaker/home?region=us-east-1#/jobs/{NAME}"
# Shown before anything costs money, so that each can be pasted.
COMMANDS = [f"job {NAME}; from any terminal:", *(f"  {typed(verb)}" for verb in ("status", "logs", "stop"))]
FAILED = 'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "{}"\nCommand "mpirun --host algo-1"'


def train(stage: Stage) -> Event:
    """An event: the training begins."""
    return lambda: advance(stage.job(), "Training")


def ended(stage: Stage) -> Ended:
    with pytest.raises(Ended) as error:
        stage.launch()
    return error.value


# ---- it goes well


def test_a_job_is_started_followed_and_its_result_fetched(stage: Stage) -> None:
    stage.events = iter([train(stage), stage.log("epoch 1"), stage.log("epoch 2"), stage.complete(seconds=3600)])
    assert stage.launch() == 0
    assert stage.account.left() == []
    assert stage.said == [
        *COMMANDS,
        "upload the trainer for the container",
        "write the job's settings",
        "start the job, through the SDK's estimator",
        f"{NAME} is started: {CONSOLE}",
        "Starting: Starting the training job",
        "Downloading: Downloading the training image",
        "Training: Training image download completed. Training in progress.",
        "epoch 1",
        "epoch 2",
        "Uploading: Uploading generated training model",
        "Completed: Training job completed",
        "the training is done; 1 h 0 min billed, about 1.51 USD",
        f"results: {stage.results / NAME}",
        f"checkpoints: s3://{BUCKET}/jobs/{NAME}/run",
    ]
    assert (stage.results / NAME / "model.pt").read_text() == "the weights"


def test_of_two_launches_of_one_name_with_other_settings_one_is_refused(stage: Stage) -> None:
    stage.settings = {"detach": True, "epochs": 3}
    first = stage.plan()
    stage.settings = {"detach": True, "epochs": 4}
    second = stage.plan()
    start_module.launch(first, stage.runtime())

    with pytest.raises(AwsError, match="Another command has just started a job of this name: see its status, or choo"):
        start_module.launch(second, stage.runtime())

    assert "--epochs 3" in " ".join(stage.account.s3(f"jobs/{NAME}/job.json")["train"])
    assert len(stage.account.asked("CreateTrainingJob")) == 1


def test_the_source_and_the_spec_lie_in_the_jobs_folder(stage: Stage) -> None:
    stage.settings = {"detach": True, "epochs": 3}
    stage.launch()
    (source,) = [key for key in stage.account.s3_keys() if key.endswith("sourcedir.tar.gz")]
    submitted = stage.job().request["HyperParameters"]["sagemaker_submit_directory"]
    assert submitted == f'"s3://{BUCKET}/{source}"'
    spec = stage.account.s3(f"jobs/{NAME}/job.json")
    assert (spec["job"], spec["backend"], spec["region"]) == (NAME, "sagemaker", "us-east-1")
    assert "--epochs 3" in " ".join(spec["train"])


def test_without_fetch_the_result_stays_where_it_is(stage: Stage) -> None:
    stage.settings = {"fetch": False}
    stage.events = iter([train(stage), stage.complete()])
    assert stage.launch() == 0
    assert list(stage.results.iterdir()) == []
    assert not [params for params in stage.account.asked("GetObject") if params["Key"].endswith("model.tar.gz")]


def test_a_detached_launch_returns_at_once_and_says_how_to_go_on(stage: Stage) -> None:
    stage.settings = {"detach": True}
    assert stage.launch() == 0
    assert stage.account.left() == [f"training job {NAME} (InProgress)"]
    assert stage.outcome is None  # it still runs
    assert stage.slept_s == 0
    assert stage.said[-2:] == [f"  {typed('attach')}", f"  {typed('stop')}"]


@pytest.mark.parametrize(
    ("reason", "kept"),
    [("", True), ("InternalServerError: We encountered an internal error.", False)],
)
def test_machines_that_are_kept_are_shown_with_the_command_that_releases_them(
    stage: Stage, reason: str, kept: bool
) -> None:
    stage.settings = {"warm_pool_s": 600}
    stage.events = iter([train(stage), (lambda: fail(stage.job(), reason)) if reason else stage.complete()])
    with suppress(Ended):
        stage.launch()
    assert (f"to release them:\n  {typed('stop')}" in stage.text) == kept
    assert stage.account.left() == ([f"warm pool of {NAME}"] if kept else [])


def test_the_saving_by_spot_is_shown(stage: Stage) -> None:
    stage.settings = {"spot": True}
    stage.events = iter([train(stage), stage.complete(seconds=1000, billable=250)])
    assert stage.launch() == 0
    assert "75% saved by spot" in stage.text


# ---- it goes wrong


def test_a_failed_job_is_reported_with_its_code_reason_and_links(stage: Stage) -> None:
    reason = FAILED.format("Exception: exit code 5: the loss is not finite")
    stage.events = iter([train(stage), lambda: fail(stage.job(), reason, seconds=7200)])
    error = ended(stage)
    assert error.code == 5
    assert str(error) == (f"the loss is not finite; 2 h 0 min billed, about 3.03 USD\n  {typed('logs')}\n  {CONSOLE}")
    assert f"FailureReason: {' '.join(reason.split())}" in stage.said
    assert stage.account.left() == []


def test_the_last_lines_of_the_rank_that_failed_are_shown_and_no_others(stage: Stage) -> None:
    sentence = "Exception: exit code 5: the loss is not finite"
    lines = [f"[1,mpirank:{rank},algo-1]<stderr>:step {step} of {rank}" for step in range(30) for rank in range(3)]
    lines += [f"[1,mpirank:2,algo-1]<stderr>:{sentence}", "[1,mpirank:0,algo-1]<stderr>:Terminated"]
    stage.events = iter([train(stage), stage.log(*lines), lambda: fail(stage.job(), FAILED.format(sentence))])
    assert ended(stage).code == 5
    place = stage.said.index("the last lines of the rank that failed:")
    assert stage.said[place + 1 :] == [
        *(f"  rank 2: step {step} of 2" for step in range(16, 30)),
        f"  rank 2: {sentence}",
    ]


# ---- it is refused


def refusal(stage: Stage) -> AwsError:
    with pytest.raises(AwsError) as error:
        stage.launch()
    return error.value


def left_running(stage: Stage) -> LeftRunning:
    """What the launcher ends with; no program takes the job for one that failed."""
    with pytest.raises(LeftRunning) as error:
        stage.launch()
    assert error.value.outcome is not None
    assert (error.value.outcome.state, error.value.outcome.exit_code) == ("interrupted", error.value.code)
    return error.value


def no_trust(stage: Stage) -> None:
    stage.account.make_role("other", {"Version": "2012-10-17", "Statement": []})
    stage.settings = {"role": "other"}


def no_quota(stage: Stage) -> None:
    stage.account.quota["ml.g5.2xlarge for training job usage"] = 1
    stage.settings = {"nodes": 2}


def no_data(stage: Stage) -> None:
    stage.account.rules.refuses_missing_data = True
    stage.settings = {"data": f"s3://{BUCKET}/no-such"}


@pytest.mark.parametrize(
    ("lacking", "code", "words"),
    [
        (no_trust, "ValidationException", "SageMaker cannot assume role arn:aws:iam::123456789012:role/other: "),
        (no_quota, "ResourceLimitExceeded", "the account's quota 'ml.g5.2xlarge for training job usage' is 1; "),
        (no_data, "ValidationException", f"there is nothing under s3://{BUCKET}/no-such/; check --data"),
    ],
    ids=["role", "quota", "data"],
)
def test_what_sagemaker_refuses_is_an_error_and_nothing_is_left(
    stage: Stage, lacking: Callable[[Stage], None], code: str, words: str
) -> None:
    lacking(stage)
    error = refusal(stage)
    assert (error.code, error.aws_code) == (4, code)
    assert str(error).startswith(words)
    assert stage.account.jobs == {}


def test_a_plan_with_problems_makes_no_request(stage: Stage) -> None:
    stage.settings = {"bucket": "none-such"}
    assert "there is no bucket none-such" in str(refusal(stage))
    assert not {"PutObject", "CreateTrainingJob"} & set(stage.account.operations)


# ---- an answer is lost


def test_a_lost_answer_leads_to_one_job_which_is_followed(stage: Stage, faults: Faults) -> None:
    faults.on("CreateTrainingJob", lost(None))
    stage.events = iter([train(stage), stage.complete()])
    assert stage.launch() == 0
    assert list(stage.account.jobs) == [NAME]
    assert (stage.results / NAME / "model.pt").exists()


def test_a_job_of_that_name_that_is_somebody_elses_is_not_taken_for_ours(stage: Stage) -> None:
    made = stage.plan()
    request = {**made.steps[-1].params, "Tags": []}  # type: ignore[union-attr]
    stage.aws.call("sagemaker", "CreateTrainingJob", request)
    with pytest.raises(AwsError) as error:
        start_module.launch(made, stage.runtime())
    assert error.value.aws_code == "ResourceInUse"
    assert stage.job().status == "InProgress"
    assert not stage.account.asked("StopTrainingJob")


# ---- it is started again


def test_the_same_launch_while_the_job_runs_follows_it_and_starts_none(stage: Stage) -> None:
    stage.started()
    stage.account.requests.clear()
    stage.events = iter([stage.complete()])
    assert f"already running as {NAME}; nothing to start" in stage.plan().title
    assert stage.launch() == 0
    assert stage.account.asked("CreateTrainingJob") == []
    assert [params["Key"] for params in stage.account.asked("PutObject")] == [f"jobs/{NAME}/outcome.json"]
    assert stage.said.count(f"{NAME} is already running") == 1
    assert list(stage.account.jobs) == [NAME]


def test_a_job_that_has_ended_is_started_again_under_the_next_name_with_its_checkpoints(stage: Stage) -> None:
    stage.settings = {"detach": True}
    for _ in range(3):
        assert stage.launch() == 0
        complete(next(reversed(stage.account.jobs.values())))
    assert list(stage.account.jobs) == [NAME, f"{NAME}--2", f"{NAME}--3"]
    runs = [job.request["CheckpointConfig"]["S3Uri"] for job in stage.account.jobs.values()]
    assert runs == [f"s3://{BUCKET}/jobs/{NAME}/run"] * 3
    tags = [{tag["Key"]: tag["Value"] for tag in job.tags} for job in stage.account.jobs.values()]
    assert [tag["aws-ddp-toolkit:job"] for tag in tags] == [NAME] * 3


def test_somebody_elses_job_of_a_name_that_ours_may_have_is_neither_followed_nor_touched(stage: Stage) -> None:
    theirs, ours = NAME, f"{NAME}--2"
    stage.started_by_others(theirs)
    stage.events = iter([lambda: advance(stage.job(ours)), stage.complete(ours)])
    assert stage.launch() == 0
    assert (stage.results / ours / "model.pt").exists()
    assert stage.account.left() == [f"training job {theirs} (InProgress)"]
    complete(stage.job(theirs))
    stage.settings = {"detach": True}
    assert stage.launch() == 0
    assert list(stage.account.jobs) == [theirs, ours, f"{NAME}--{int(ours[-1]) + 1}"]


# ---- the launcher ends before the job


@pytest.mark.parametrize("settings", [{}, {"warm_pool_s": 600}], ids=["", "kept machines"])
def test_ctrl_c_stops_the_job_and_releases_kept_machines(stage: Stage, settings: dict[str, int]) -> None:
    stage.settings = dict(settings)
    stage.events = iter([train(stage), *idle(2), ctrl_c])
    assert ended(stage).code == 130
    assert stage.account.left() == []
    assert stage.job().status == "Stopped"


def test_ctrl_c_detaches_if_the_user_says_so_and_attach_follows_again(stage: Stage) -> None:
    stage.may_detach = True
    stage.events = iter([train(stage), ctrl_c])
    assert stage.launch() == 0
    assert stage.account.left() == [f"training job {NAME} (InProgress)"]
    assert stage.said[-1] == f"  {typed('stop')}"
    stage.events = iter([stage.complete()])
    assert stage.attach() == 0
    assert (stage.results / NAME / "model.pt").exists()


def test_a_second_ctrl_c_ends_the_waiting_and_says_how_to_make_sure(stage: Stage) -> None:
    stage.account.rules.answers_stopping = None
    stage.events = iter([train(stage), ctrl_c, ctrl_c])
    with pytest.raises(KeyboardInterrupt):
        stage.launch()
    assert stage.said[-1].endswith(f"\n  {typed('stop')}")
    assert stage.account.asked("StopTrainingJob") == [{"TrainingJobName": NAME}]


def test_a_kill_while_the_job_is_stopped_changes_nothing(stage: Stage) -> None:
    stage.account.rules.answers_stopping = 3
    stage.events = iter([train(stage), ctrl_c, lambda: os.kill(os.getpid(), signal.SIGTERM)])
    error = ended(stage)
    assert (error.code, str(error).partition(";")[0]) == (130, "stopped as requested")
    assert stage.account.left() == []


def test_a_job_that_cannot_be_stopped_is_an_error_with_the_stop_command(stage: Stage, faults: Faults) -> None:
    faults.on("StopTrainingJob", refused("AccessDeniedException", 403))
    stage.events = iter([train(stage), ctrl_c])
    error = refusal(stage)
    assert error.code == 4
    assert str(error).endswith(f"Try again:\n  {typed('stop')}")


def test_a_closed_terminal_leaves_the_job_running(stage: Stage) -> None:
    def hang_up() -> None:
        raise Hangup("SIGHUP")

    stage.events = iter([train(stage), hang_up])
    error = left_running(stage)
    assert error.code == 130
    assert str(error).endswith(typed("attach"))
    assert stage.account.left() == [f"training job {NAME} (InProgress)"]


@pytest.mark.parametrize("fault", [died_before, died_after])
def test_who_leaves_while_the_job_is_being_made_leaves_none(stage: Stage, faults: Faults, fault: object) -> None:
    send = sdk.send

    def sent(*args: object) -> None:
        try:
            send(*args)  # type: ignore[arg-type]
        except Died as died:
            raise KeyboardInterrupt from died

    faults.on("CreateTrainingJob", fault())  # type: ignore[operator]
    with sending(sent):
        error = ended(stage)
    assert error.code == 130
    assert (f"{NAME} was started" in str(error)) == (fault is died_after)
    assert stage.account.left() == []


def test_aws_out_of_reach_for_long_leaves_the_job_running_and_says_so(stage: Stage, faults: Faults) -> None:
    stage.events = iter([train(stage), lambda: faults.on("DescribeTrainingJob", unreachable(), nth=None)])
    error = left_running(stage)
    assert str(error).endswith(typed("attach"))
    assert 540 < stage.slept_s < 700
    assert stage.account.left() == [f"training job {NAME} (InProgress)"]


def test_credentials_that_end_before_the_job_leave_it_running(stage: Stage, faults: Faults) -> None:
    expired = refused("ExpiredTokenException", 400)
    stage.events = iter([train(stage), lambda: faults.on("DescribeTrainingJob", expired, nth=None)])
    error = left_running(stage)
    assert error.code == 4
    assert "aws sso login" in str(error)
    assert str(error).endswith(typed("attach"))
    assert stage.account.left() == [f"training job {NAME} (InProgress)"]


def test_logs_out_of_reach_are_a_warning_and_no_end(stage: Stage, faults: Faults) -> None:
    faults.on("FilterLogEvents", refused("AccessDeniedException", 403), nth=None)
    stage.events = iter([train(stage), *idle(5), stage.complete()])
    assert stage.launch() == 0
    assert stage.text.count("warning: these credentials may not logs:FilterLogEvents") == 1


def test_a_result_whose_download_breaks_off_is_fetched_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training was done, and ended with the code of AWS's failures: a sweep took it for one that failed."""
    read, broke = StreamingBody.read, list[bool]()

    def breaks_off_once(body: StreamingBody, size: int | None = None) -> bytes:
        if size == 2**20 and not broke:  # as fetch_result reads
            broke.append(True)
            raise ReadTimeoutError(endpoint_url="s3")
        return bytes(read(body, size))

    monkeypatch.setattr(StreamingBody, "read", breaks_off_once)
    stage.events = iter([train(stage), stage.complete()])
    assert stage.launch() == 0
    assert broke
    assert (stage.results / NAME / "model.pt").exists()
    assert "warning: no answer to s3:GetObject" in stage.text


def test_a_result_that_cannot_be_written_here_is_a_warning_and_no_failed_job(stage: Stage) -> None:
    (stage.results / NAME).write_text("a file in the way")
    stage.events = iter([train(stage), stage.complete()])
    assert stage.launch() == 0
    assert f"warning: the results are not all here: cannot write to {stage.results / NAME}" in stage.text
    assert f"to fetch them again:\n  {typed('fetch')}" in stage.text


# ---- doubts


def test_a_plan_starts_one_job(stage: Stage) -> None:
    stage.settings = {"detach": True}
    made = stage.plan()
    assert [start_module.launch(made, stage.runtime()) for _ in range(2)] == [None, None]  # it runs
    complete(stage.job())
    with pytest.raises(SettingsError, match=NAME):
        start_module.launch(made, stage.runtime())
    assert list(stage.account.jobs) == [NAME]
    assert stage.account.asked("CreateTrainingJob")[0] == made.steps[-1].params  # type: ignore[union-attr]


OUT_OF_SIGHT = pytest.mark.parametrize(
    ("look", "created"),
    [("DescribeTrainingJob", None), ("DescribeTrainingJob", lost)],
    ids=["no status", "answer lost"],
)


def out_of_sight(faults: Faults, look: str, created: Any) -> None:
    """CreateTrainingJob succeeds, whether its answer gets lost or not, and then the job cannot be looked at."""
    if created:
        faults.on("CreateTrainingJob", created())
    faults.on(look, unreachable(), nth=None)


@OUT_OF_SIGHT
def test_a_job_that_cannot_be_looked_at_for_a_while_after_its_start_is_followed(
    stage: Stage, faults: Faults, look: str, created: Any
) -> None:
    made = stage.plan()
    out_of_sight(faults, look, created)
    stage.events = iter([*idle(5), faults.clear, train(stage), stage.complete()])
    outcome = start_module.launch(made, stage.runtime())
    assert outcome is not None
    assert outcome.exit_code == 0
    assert list(stage.account.jobs) == [NAME]


@OUT_OF_SIGHT
def test_where_it_cannot_be_found_out_whether_the_job_was_started_the_user_learns_how_to_end_it(
    stage: Stage, faults: Faults, look: str, created: Any
) -> None:
    made = stage.plan()
    out_of_sight(faults, look, created)
    with pytest.raises(LeftRunning) as error:
        start_module.launch(made, stage.runtime())
    assert error.value.code == 4
    assert stage.account.left() == [f"training job {NAME} (InProgress)"]
    _, stop_it = str(error.value).split("python -m launch.sagemaker ")
    faults.clear()
    assert stage.type(*stop_it.split()) == 0
    assert stage.account.left() == []


def test_a_job_whose_tags_are_not_there_yet_is_ours_a_little_later(stage: Stage, faults: Faults) -> None:
    faults.on("ListTags", Fault(lambda *_: (200, {}, '{"Tags": []}'), takes_effect=False))
    stage.events = iter([train(stage), stage.complete()])
    assert stage.launch() == 0
    assert list(stage.account.jobs) == [NAME]


def leaving(leaves: type[BaseException]) -> Any:
    """The user leaves when the job has just been made."""
    send = sdk.send

    def sent(*args: Any) -> None:
        send(*args)
        raise leaves("SIGHUP")

    return sending(sent)


def test_who_leaves_while_the_job_is_being_made_and_cannot_be_looked_at_leaves_none(
    stage: Stage, faults: Faults
) -> None:
    made = stage.plan()
    faults.on("DescribeTrainingJob", unreachable(), nth=None)
    stage.events = iter([*idle(3), faults.clear])
    with leaving(Hangup), pytest.raises(Ended, match=f"{NAME} was started, and is stopped as requested"):
        start_module.launch(made, stage.runtime())
    assert stage.account.left() == []


def test_who_leaves_before_the_job_can_be_seen_leaves_none(stage: Stage) -> None:
    """SageMaker has the request and answers a moment later: the job was not there yet, and ran on to its limit."""
    send = sdk.send

    def sent(*args: Any) -> None:
        stage.events = iter([*idle(2), lambda: send(*args)])
        raise KeyboardInterrupt

    with sending(sent):
        error = ended(stage)
    assert str(error) == f"{NAME} was started, and is stopped as requested"
    assert stage.account.left() == []


def test_a_job_that_appears_a_moment_after_a_lost_answer_is_followed(stage: Stage) -> None:
    send = sdk.send

    def sent(*args: Any) -> None:
        stage.events = iter([*idle(2), lambda: send(*args), *idle(2), stage.complete()])
        raise NoAnswer("no answer to sagemaker:CreateTrainingJob.")

    with sending(sent):
        assert stage.launch() == 0
    assert list(stage.account.jobs) == [NAME]


def test_a_terminal_that_is_closed_instead_of_an_answer_leaves_the_job_running(stage: Stage) -> None:
    def closed() -> bool:
        raise Hangup("SIGHUP")

    stage.events = iter([train(stage), ctrl_c])
    made = stage.plan()
    runtime = dataclasses.replace(stage.runtime(), may_detach=closed)
    assert start_module.launch(made, runtime) is None
    assert stage.account.left() == [f"training job {NAME} (InProgress)"]


# ---- the source of a script


Scripted = Callable[..., SageMakerPlan]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "train.py").write_text("print(1)")
    return find(Path("train.py"), None, None, tmp_path)


@pytest.fixture
def scripted(stage: Stage, source: Source) -> Scripted:
    """Plans a job with a script."""

    def plan(name: str = NAME, **where: Any) -> SageMakerPlan:
        script = Script(("train.py",), source=source, digest=source.digest)
        options = known.job(job_name=name, through="boto3", **where).where
        return start_module.prepare(Job(script, options), stage.runtime())

    return plan


def test_a_second_job_of_the_same_script_sends_no_source_and_says_so(
    stage: Stage, source: Source, scripted: Scripted
) -> None:
    start_module.begin(scripted("first"), stage.runtime())
    second = scripted("second")
    start_module.begin(second, stage.runtime())

    (sent,) = [params["Key"] for params in stage.account.asked("PutObject") if "scripts/" in params["Key"]]
    assert sent == f"scripts/{stage.clock().utc():%Y-%m}/{source.digest}/source.tar.gz"
    assert "already there, nothing is sent" in as_text(second)
    channels = [request["InputDataConfig"][0] for request in stage.account.asked("CreateTrainingJob")]
    folder = f"s3://{stage.account.bucket}/{sent.removesuffix('source.tar.gz')}"
    assert [(one["ChannelName"], one["DataSource"]["S3DataSource"]["S3Uri"]) for one in channels] == [
        ("script", folder), ("script", folder),
    ]  # fmt: skip


def test_a_stack_whose_role_cannot_read_the_source_is_refused_before_any_request(
    stage: Stage, scripted: Scripted
) -> None:
    """SageMaker would refuse the job, and say that there is no object."""
    iam = iam_backends[stage.account.id]["aws"]
    stage.account.make_role(SCHEDULER_ROLE)

    def problem(version: int, **where: Any) -> str:
        tags = {STACK_TAG: "eu-west-1", ROLES_TAG: str(version)}
        iam.tag_role(SCHEDULER_ROLE, [{"Key": k, "Value": v} for k, v in tags.items()])
        return str(scripted(**where).problem or "")

    assert problem(SHARED_SINCE) == ""
    assert "python -m launch.infra up --region eu-west-1" in problem(SHARED_SINCE - 1)
    stage.account.make_role("mine")
    assert problem(SHARED_SINCE - 1, role="mine") == ""
    assert stage.plan().problem is None  # our trainer has no such source
