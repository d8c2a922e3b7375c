"""How a job ended, in a sentence and an exit code; and what its logs say, without mpirun's marks."""

import pytest

from launch.core.errors import AwsError, NoAnswer
from launch.sagemaker.failure import console, last_words, readable, refused, verdict
from tests.launch.sagemaker.known import NAME, run
from trainer.contract import SAGEMAKER_FAILURE, Exit

# As DescribeTrainingJob has it, and as the ranks' standard error arrives under mpirun.
REASON = 'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "{}"\nCommand "mpirun --host algo-1 -np 4"'
TAG = "[1,mpirank:{},algo-1]<{}>:"


# ---- verdict


@pytest.mark.parametrize("code", [code for code in Exit if code != Exit.DONE])
@pytest.mark.parametrize("rest", ["", "\n\n--------\nmpirun has exited due to process rank 3", '"\nCommand "x"'])
def test_what_a_rank_says_why_it_ends_is_the_verdict(code: Exit, rest: str) -> None:
    line = SAGEMAKER_FAILURE.format(code=int(code), sentence="the loss is not finite at update 7; lower --lr.")
    over = verdict(run(status="Failed", failure=REASON.format(line + rest)))
    assert (over.code, over.sentence) == (code, "the loss is not finite at update 7; lower --lr")


def test_a_sentence_that_sagemaker_cut_off_is_still_one() -> None:
    line = SAGEMAKER_FAILURE.format(code=3, sentence="x" * 2000)
    over = verdict(run(status="Failed", failure=REASON.format(line)[:1024]))
    assert over.code == 3
    assert set(over.sentence) == {"x"}


def test_the_first_rank_that_says_why_counts() -> None:
    first = SAGEMAKER_FAILURE.format(code=5, sentence="the loss is not finite")
    second = SAGEMAKER_FAILURE.format(code=6, sentence="rank 2 was lost")
    assert verdict(run(status="Failed", failure=REASON.format(f"{first}\n{second}"))).code == 5


@pytest.mark.parametrize(
    ("reason", "code", "sentence"),
    [
        ("", 1, "SageMaker gives no reason"),
        ("AlgorithmError: , exit code: 137", 6, "killed by SIGKILL, for which the usual reason is too little"),
        ("AlgorithmError: ExecuteUserScriptError:\nExitCode 143\n, exit code: 1", 6, "killed by SIGTERM; start again"),
        ("AlgorithmError: , exit code: 3", 3, "AlgorithmError: , exit code: 3"),
        ("AlgorithmError: ExecuteUserScriptError:\nExitCode 0\nErrorMessage", 1, "AlgorithmError: ExecuteUser"),
        ("InternalServerError: We encountered an internal error.", 6, "SageMaker itself failed: the same"),
        ("CapacityError: Unable to provision requested ML compute capacity.", 4, "try later, another --instance-type"),
        ("ClientError: Data download failed:NoSuchKey", 3, "look at --data"),
    ],
)  # fmt: skip
def test_without_a_ranks_word_sagemakers_own_counts(reason: str, code: int, sentence: str) -> None:
    over = verdict(run(status="Failed", failure=reason))
    assert over.code == code
    assert sentence in over.sentence
    assert "\n" not in over.sentence


@pytest.mark.parametrize(
    ("status", "detail", "code", "word"),
    [
        ("Completed", "Completed", 0, "done"),
        ("Stopped", "Stopped", 130, "stopped"),
        ("Stopped", "MaxRuntimeExceeded", 75, "--max-hours"),
        ("Stopped", "MaxWaitTimeExceeded", 75, "--max-wait-hours"),
    ],
)
def test_other_ends_have_their_codes(status: str, detail: str, code: int, word: str) -> None:
    over = verdict(run(status=status, detail=detail))
    assert over.code == code
    assert word in over.sentence


@pytest.mark.parametrize(
    ("region", "host"),
    [("eu-west-1", "eu-west-1.console.aws.amazon.com"), ("cn-north-1", "cn-north-1.console.amazonaws.cn")],
)
def test_the_console_is_the_regions_own(region: str, host: str) -> None:
    assert console(run(region=region)) == f"https://{host}/sagemaker/home?region={region}#/jobs/{NAME}"


# ---- refusals


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("Could not assume role arn:aws:iam::1:role/x. Please ensure that the role exists and allows principal",
         "SageMaker cannot assume role arn:aws:iam::1:role/x: its trust policy must name sagemaker.amazonaws.com"),
        ("The account-level service limit 'ml.p3.8xlarge for training job usage' is 0 Instances, with current",
         "the account's quota 'ml.p3.8xlarge for training job usage' is 0; ask for more"),
        ('No S3 objects found under S3 URL "s3://b/x" given in input data source.',
         "there is nothing under s3://b/x; look at --data."),
        ("The instance type ml.p5.48xlarge is not supported in this region.", "ml.p5.48xlarge is not to be had"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [AwsError, NoAnswer])
def test_a_refusal_gets_a_remedy_and_stays_what_it_was(message: str, sentence: str, kind: type[AwsError]) -> None:
    told = refused(kind(f"AWS refused sagemaker:CreateTrainingJob: {message} (X).", "X", "CreateTrainingJob"))
    assert str(told).startswith(sentence)
    assert (type(told), told.aws_code, told.operation) == (kind, "X", "CreateTrainingJob")


def test_an_unknown_refusal_stays_as_it_is() -> None:
    error = AwsError("AWS refused it: who knows (X).", "X")
    assert refused(error) is error


# ---- lines


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (TAG.format(0, "stdout") + "[METRIC] epoch=1 train_loss=2.0", "[METRIC] epoch=1 train_loss=2.0"),
        (TAG.format(0, "stderr") + " warning: slow", "warning: slow"),
        (TAG.format(13, "stderr") + "Exception: exit code 5: x", "rank 13: Exception: exit code 5: x"),
        ("[1,mpirank:1,algo-12]<stdout>:", "rank 1: "),
        ("[2,mpirank:1,algo-2]<stdout>:a [1,mpirank:0,algo-1]<stdout>:b", "rank 1: a [1,mpirank:0,algo-1]<stdout>:b"),
        ("14:00:00,123 sagemaker-training-toolkit INFO", "14:00:00,123 sagemaker-training-toolkit INFO"),
        ("[1] a", "[1] a"),
        ("", ""),
    ],
)  # fmt: skip
def test_mpiruns_mark_becomes_the_rank(line: str, shown: str) -> None:
    assert readable(line) == shown


def test_the_last_words_are_those_of_the_rank_that_says_why() -> None:
    why = SAGEMAKER_FAILURE.format(code=5, sentence="the loss is not finite")
    lines = [f"{mark}step {step}" for step in range(40) for mark in ("[1] ", "[1] rank 3: ", "[2] rank 4: ")]
    lines += [f"[1] rank 3: {why}", "[1] rank 3: after", f"[2] rank 4: {why}"]
    words = last_words(lines)
    assert words == [*(f"[1] rank 3: step {step}" for step in range(26, 40)), f"[1] rank 3: {why}"]


def test_rank_0_has_no_mark_of_its_own_and_is_still_told_from_others() -> None:
    why = SAGEMAKER_FAILURE.format(code=3, sentence="no such folder")
    assert last_words(["rank 1: a", "b", "rank 1: c", why, "rank 1: d"]) == ["b", why]


def test_where_no_rank_says_why_the_last_lines_of_all_are_the_last_words() -> None:
    lines = [f"line {number}" for number in range(30)]
    assert last_words(lines) == lines[-15:]
    assert last_words(lines, most=2) == lines[-2:]
    assert last_words([]) == []
