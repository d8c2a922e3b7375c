"""How a job ended, as data and in its folder; refusals with their remedies; log lines without mpirun's prefix."""

from datetime import timedelta
from pathlib import Path

import pytest

from launch.core.errors import AwsError, Ended, NoAnswer
from launch.rehearse.aws.sagemaker.changes import complete, fail
from launch.sagemaker.follow import readable
from launch.sagemaker.outcome import last_lines, outcome_of
from launch.sagemaker.start import with_remedy
from launch.sagemaker.training_job import read_training_job
from tests.launch.faults import Faults, injected, refused
from tests.launch.sagemaker.known import NAME, NOW, training_job
from tests.launch.sagemaker.world import Stage, interrupt
from trainer.contract import RESUME, SAGEMAKER_CHECKPOINTS, SAGEMAKER_FAILURE, Exit
from trainer.outcome import Outcome, parse, read

# As DescribeTrainingJob has it, and as the ranks' standard error arrives under mpirun.
REASON = 'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "{}"\nCommand "mpirun --host algo-1 -np 4"'
TAG = "[1,mpirank:{},algo-1]<{}>:"


OUTCOME_KEY = f"jobs/{NAME}/outcome.json"


def ended(**changes: object) -> Outcome:
    """The outcome of a training job that has these values."""
    return outcome_of(training_job(**changes), NOW)


# ---- exit code and reason


@pytest.mark.parametrize("rest", ["", "\n\n--------\nmpirun has exited due to process rank 3", '"\nCommand "x"'])
def test_what_a_rank_says_why_it_ends_is_the_verdict(rest: str) -> None:
    for code in [code for code in Exit if code != Exit.DONE]:
        line = SAGEMAKER_FAILURE.format(code=int(code), sentence="the loss is not finite at update 7; lower --lr.")
        outcome = ended(status="Failed", failure=REASON.format(line + rest))
        assert (outcome.exit_code, outcome.reason) == (code, "the loss is not finite at update 7; lower --lr")


@pytest.mark.parametrize("code", ["0", "256"])
def test_no_line_of_a_trainings_makes_a_job_that_failed_look_done(code: str) -> None:
    """A launcher that ends with 0 has its model registered, and with 256 a shell takes it for one that did well."""
    line = SAGEMAKER_FAILURE.format(code=code, sentence="all is well")
    for outcome in (outcome_of(training_job(status="Failed"), NOW, [line]), ended(status="Failed", failure=line)):
        assert (outcome.state, outcome.exit_code) == ("failed", Exit.BUG)


def test_a_token_in_the_failure_that_awss_toolkit_reports_is_not_repeated() -> None:
    """It takes the last lines of standard error, which are a script's own where nothing of ours spoke after it."""
    described = {"TrainingJobName": "j", "TrainingJobStatus": "Failed", "CreationTime": NOW,
                 "FailureReason": "AlgorithmError: cannot reach postgres://me:pa55word@db"}  # fmt: skip
    failed = read_training_job(described, {}, "us-east-1")
    assert failed.failure == "AlgorithmError: cannot reach postgres://***@db"


def test_a_sentence_that_sagemaker_cut_off_is_still_one() -> None:
    line = SAGEMAKER_FAILURE.format(code=3, sentence="x" * 2000)
    outcome = ended(status="Failed", failure=REASON.format(line)[:1024])
    assert outcome.exit_code == 3
    assert set(outcome.reason) == {"x"}


def test_the_first_rank_that_says_why_counts() -> None:
    first = SAGEMAKER_FAILURE.format(code=5, sentence="the loss is not finite")
    second = SAGEMAKER_FAILURE.format(code=6, sentence="rank 2 was lost")
    assert ended(status="Failed", failure=REASON.format(f"{first}\n{second}")).exit_code == 5


def test_without_a_ranks_word_sagemakers_own_counts() -> None:
    cases = [
        ("", 1, ""),
        (REASON.format("KeyError: 'x'"), 1, "AlgorithmError: ExecuteUserScriptError: ExitCode 1 ErrorMessage"),
        ("AlgorithmError: , exit code: 137", 6, "SIGKILL, usually for lack of memory"),
        ("AlgorithmError: ExecuteUserScriptError:\nExitCode 143\n, exit code: 1", 6, "SIGTERM"),
        ("AlgorithmError: , exit code: 3", 3, "AlgorithmError: , exit code: 3"),
        ("AlgorithmError: ExecuteUserScriptError:\nExitCode 0\nErrorMessage", 1, "AlgorithmError: ExecuteUser"),
        ("InternalServerError: We encountered an internal error.", 6, f"--job-name {NAME} "),
        ("CapacityError: Unable to provision requested ML compute capacity.", 4, "another --instance-type"),
        ("InsufficientCapacityError: no p5", 4, "several of them"),
        ("ClientError: Data download failed:NoSuchKey", 3, "--data"),
        ("ClientError: Cannot pull algorithm container. Either the image does not exist", 4, "--image"),
        ("ClientError: Artifact upload failed:AccessDenied", 4, "bucket"),
    ]
    for reason, code, sentence in cases:
        outcome = ended(status="Failed", failure=reason)
        assert outcome.exit_code == code
        assert sentence in outcome.reason
        assert "\n" not in outcome.reason


@pytest.mark.parametrize(
    ("status", "detail", "state", "code", "word"),
    [
        ("Completed", "Completed", "done", 0, ""),
        ("Stopped", "Stopped", "stopped", 130, "stopped"),
        ("Stopped", "MaxRuntimeExceeded", "interrupted", 75, "--max-hours"),
        ("Stopped", "MaxWaitTimeExceeded", "interrupted", 75, "--max-wait-hours"),
    ],
)
def test_other_ends_have_their_states_and_codes(status: str, detail: str, state: str, code: int, word: str) -> None:
    outcome = ended(status=status, detail=detail)
    assert (outcome.state, outcome.exit_code) == (state, code)
    assert word in outcome.reason


def test_a_job_that_is_being_deleted_is_over() -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DeleteTrainingJob.html: only one that has ended."""
    deleted = training_job(status="Deleting", detail="Completed", ended=NOW)
    assert deleted.is_over
    assert outcome_of(deleted, NOW).state == "stopped"


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "Stopped", "detail": "MaxRuntimeExceeded"},
        {"status": "Failed", "failure": "AlgorithmError: , exit code: 137"},
        {"status": "Failed", "failure": REASON.format(SAGEMAKER_FAILURE.format(
            code=75, sentence=f"stopped on request.  To resume, {RESUME.format(folder=SAGEMAKER_CHECKPOINTS)}."
        ))},
    ],
)  # fmt: skip
def test_every_remedy_that_resumes_names_the_job(changes: dict[str, str]) -> None:
    """The default name of a job has the time in it: without --job-name the same command starts another."""
    reason = ended(**changes).reason
    assert f"same command with --job-name {NAME}" in reason
    assert "--run-dir" not in reason


NO_REASON = 'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage ""\n, exit code: 1'


def test_what_sagemaker_itself_says_comes_before_the_log() -> None:
    why = SAGEMAKER_FAILURE.format(code=75, sentence="stopped on request")
    failed = training_job(status="Failed", failure="InternalServerError: We encountered an internal error.")
    assert outcome_of(failed, NOW, [why]).exit_code == Exit.MACHINE


def test_a_launch_reads_the_reason_in_the_log_of_the_other_host(stage: Stage) -> None:
    why = SAGEMAKER_FAILURE.format(code=3, sentence="no images in train/")
    stage.events = iter([stage.log(why, host="algo-2"), lambda: fail(stage.job(), NO_REASON)])
    with pytest.raises(Ended, match="no images in train/") as error:
        stage.launch()
    assert error.value.code == 3


def test_an_outcome_has_the_time_from_creation_to_end_and_the_billed_price() -> None:
    outcome = ended(status="Completed", ended=NOW - timedelta(minutes=20), billed_s=1800)
    assert (outcome.job, outcome.seconds) == (NAME, 2400.0)
    assert outcome.ended == "2026-11-21T13:40:00Z"
    assert outcome.usd == pytest.approx(2 * 7.09 / 2, abs=0.01)


# ---- in the job's folder


def recorded(stage: Stage) -> Outcome | None:
    """The outcome in the job's folder in S3; None if there is none."""
    if OUTCOME_KEY not in stage.account.s3_keys():
        return None
    return parse(stage.aws.call("s3", "GetObject", {"Bucket": stage.account.bucket, "Key": OUTCOME_KEY})["Body"].read())


def test_a_launch_that_ends_records_its_outcome_with_the_price_in_s3_and_in_the_fetched_folder(stage: Stage) -> None:
    stage.events = iter([stage.complete(seconds=3600)])
    assert stage.launch() == 0
    outcome = recorded(stage)
    assert outcome is not None
    assert (outcome.state, outcome.exit_code, outcome.job) == ("done", 0, NAME)
    assert outcome.usd == pytest.approx(1.51, abs=0.01)
    assert read(stage.results / NAME) == outcome


def test_stop_and_attach_record_outcomes_too(stage: Stage) -> None:
    stage.started()
    assert stage.type("stop", NAME) == 0
    stopped = recorded(stage)
    assert stopped is not None
    assert (stopped.state, stopped.exit_code) == ("stopped", 130)
    stage.started()
    complete(stage.job(f"{NAME}--2"), 60)
    assert stage.type("attach", NAME, "--no-fetch") == 0
    done = recorded(stage)
    assert done is not None
    assert done.state == "done"


def test_ctrl_c_records_that_the_job_was_stopped(stage: Stage) -> None:
    stage.events = iter([interrupt])
    assert stage.type("--job-name", NAME) == 130
    outcome = recorded(stage)
    assert outcome is not None
    assert outcome.state == "stopped"


def test_an_outcome_that_cannot_be_written_is_a_warning_and_changes_no_exit_code(stage: Stage) -> None:
    stage.started()
    stage.complete()()
    with injected(Faults()) as faults:
        faults.on("PutObject", refused("AccessDenied", 403), nth=None)
        assert stage.type("attach", NAME) == 0
    assert recorded(stage) is None
    assert sum(line.startswith("warning: ") and "outcome.json" in line for line in stage.said) == 1


def test_status_shows_the_recorded_outcome_of_this_start_only(stage: Stage) -> None:
    complete(stage.started())
    soon = stage.clock().utc() + timedelta(seconds=1)
    outcome = Outcome("failed", 5, "the loss is not finite", job=NAME, ended=f"{soon:%Y-%m-%dT%H:%M:%SZ}")
    stage.account.write(OUTCOME_KEY, outcome.as_json())
    assert stage.type("status", NAME) == 0
    assert "the loss is not finite" in stage.said[-1]
    stage.slept_s += 60
    stage.account.rules.now = stage.clock().utc
    complete(stage.started())
    assert stage.type("status", NAME) == 0
    assert "the loss is not finite" not in stage.said[-1]


def test_a_damaged_outcome_is_passed_over(stage: Stage) -> None:
    complete(stage.started())
    stage.account.write(OUTCOME_KEY, '{"state": ')
    assert stage.type("status", NAME) == 0
    assert "the training is done" in stage.said[-1]


def test_the_outcome_option_writes_the_same_for_the_sweep(stage: Stage, tmp_path: Path) -> None:
    failure = REASON.format(SAGEMAKER_FAILURE.format(code=5, sentence="the loss is not finite"))
    stage.events = iter([lambda: fail(stage.job(), failure, seconds=3600)])
    assert stage.type("--job-name", NAME, "--outcome", str(tmp_path)) == 5
    outcome = recorded(stage)
    assert outcome is not None
    assert (outcome.state, outcome.exit_code, outcome.reason) == ("failed", 5, "the loss is not finite")
    assert read(tmp_path) == outcome


@pytest.mark.parametrize(
    ("region", "host"),
    [("eu-west-1", "eu-west-1.console.aws.amazon.com"), ("cn-north-1", "cn-north-1.console.amazonaws.cn")],
)
def test_the_console_is_the_regions_own(region: str, host: str) -> None:
    assert training_job(region=region).console == f"https://{host}/sagemaker/home?region={region}#/jobs/{NAME}"


# ---- refusals


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        # As AWS says it: https://github.com/aws/amazon-sagemaker-examples/issues/2489
        ('No S3 objects found under S3 URL "s3://b/scripts/2026-11/0a/" given in input data source. Please ensure that '
         'objects exist under that S3 prefix, and that the role "arn:x" has "s3:ListBucket" permissions',
         "the job's role may not list s3://b/scripts/2026-11/0a/"),
        ("The instance type ml.p5.48xlarge is not supported in this region.", "ml.p5.48xlarge is not available"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [AwsError, NoAnswer])
def test_a_refusal_gets_a_remedy_and_stays_what_it_was(message: str, sentence: str, kind: type[AwsError]) -> None:
    refusal = kind(f"AWS refused sagemaker:CreateTrainingJob: {message} (X).", "X", "CreateTrainingJob")
    error = with_remedy(refusal, "us-east-1")
    assert str(error).startswith(sentence)
    assert (type(error), error.aws_code, error.operation) == (kind, "X", "CreateTrainingJob")


def test_an_unknown_refusal_stays_as_it_is() -> None:
    error = AwsError("AWS refused it: who knows (X).", "X")
    assert with_remedy(error, "us-east-1") is error


def test_a_quota_that_is_too_low_comes_with_the_command_that_raises_it() -> None:
    """As AWS says it: https://github.com/zenml-io/zenml/issues/847"""
    message = (
        "AWS refused sagemaker:CreateTrainingJob: The account-level service limit 'ml.p2.xlarge for training job "
        "usage' is 1 Instances, with current utilization of 1 Instances and a request delta of 2 Instances. Please "
        "contact AWS support to request an increase for this limit (ResourceLimitExceeded)."
    )
    error = with_remedy(AwsError(message, "ResourceLimitExceeded"), "eu-west-1")
    listed = (
        "aws service-quotas list-aws-default-service-quotas --service-code sagemaker --region eu-west-1 --query "
        "\"Quotas[?QuotaName=='ml.p2.xlarge for training job usage'].QuotaCode\" --output text"
    )
    assert str(error).splitlines()[-1].strip() == (
        "aws service-quotas request-service-quota-increase --service-code sagemaker "
        f"--quota-code $({listed}) --desired-value 3 --region eu-west-1"
    )


# ---- lines


def test_mpiruns_mark_becomes_the_rank() -> None:
    cases = [
        (TAG.format(0, "stdout") + "[METRIC] epoch=1 train_loss=2.0", "[METRIC] epoch=1 train_loss=2.0"),
        (TAG.format(0, "stderr") + " warning: slow", "warning: slow"),
        (TAG.format(13, "stderr") + "Exception: exit code 5: x", "rank 13: Exception: exit code 5: x"),
        ("[1,mpirank:1,algo-12]<stdout>:", "rank 1: "),
        ("[1,0]<stdout>:epoch 1/2  loss 1.2", "epoch 1/2  loss 1.2"),  # SDK 3's MPI driver leaves Open MPI's own
        ("[1,3]<stderr>:error: x", "rank 3: error: x"),
        ("[2,mpirank:1,algo-2]<stdout>:a [1,mpirank:0,algo-1]<stdout>:b", "rank 1: a [1,mpirank:0,algo-1]<stdout>:b"),
        ("14:00:00,123 sagemaker-training-toolkit INFO", "14:00:00,123 sagemaker-training-toolkit INFO"),
        ("[1] a", "[1] a"),
        ("", ""),
    ]
    for line, shown in cases:
        assert readable(line) == shown


def test_where_no_rank_says_why_the_last_lines_of_all_are_the_last_words() -> None:
    lines = [f"line {number}" for number in range(30)]
    assert last_lines(lines, most=2) == lines[-2:]
