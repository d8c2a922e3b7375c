"""A name that a job of another backend has is neither taken over nor mistaken."""

import pytest

from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal

SPEC = {"job": "shared", "backend": "sagemaker", "where": {"nodes": 1}, "train": []}


@pytest.fixture(autouse=True)
def on_sagemaker(account: Account) -> None:
    """There is a job on SageMaker that is called so."""
    account.put_json("jobs/shared/job.json", SPEC)


@pytest.mark.parametrize("verb", ["--job-name", "status", "logs", "stop", "ssh", "attach"])
def test_every_command_says_where_the_job_is(account: Account, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert Terminal(account).type(verb, "shared") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "python -m launch.sagemaker status shared" in err
    assert account.left() == []
    assert account.s3("jobs/shared/job.json") == SPEC
