"""A name that a job of another backend has is neither taken over nor mistaken."""

import pytest

from launch.ec2.__main__ import main
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal

REMEDY = "python -m launch.sagemaker status shared, or choose another --job-name.\n"
SPEC = {"job": "shared", "backend": "sagemaker", "where": {"nodes": 1}, "train": []}


@pytest.fixture(autouse=True)
def on_sagemaker(account: Account) -> None:
    """There is a job on SageMaker that is called so."""
    account.put_json("jobs/shared/job.json", SPEC)


def test_a_launch_is_refused_and_leaves_the_job_alone(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--job-name", "shared"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(REMEDY)
    assert account.left() == []
    assert account.s3("jobs/shared/job.json") == SPEC


@pytest.mark.parametrize("verb", ["status", "logs", "stop", "ssh"])
def test_every_verb_says_where_the_job_is(account: Account, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert Terminal(account).type(verb, "shared") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(REMEDY)
    assert account.s3("jobs/shared/job.json") == SPEC


def test_there_is_nothing_to_attach_to(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "shared"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(REMEDY)
    assert account.left() == []
