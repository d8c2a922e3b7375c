"""The stand-in for docker: how the output of a container comes into CloudWatch."""

import tempfile
from typing import Any

import pytest

from launch.rehearse.nodes.ec2.docker import CHUNK, LONGEST_EVENT, AwsLogs, embedded_aws


class Logs:
    """In place of CloudWatch.  sent: the messages of each request."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []

    def put_log_events(self, **request: Any) -> None:
        self.sent.append([event["message"] for event in request["logEvents"]])


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    client = Logs()
    monkeypatch.setattr("boto3.client", lambda *args, **settings: client)
    return client


def follow(printed: bytes) -> None:
    """Sends the output of a container."""
    with tempfile.TemporaryFile() as output:
        output.write(printed)
        output.seek(0)
        AwsLogs({"awslogs-region": "r", "awslogs-group": "g", "awslogs-stream": "s"}).follow(output)


def test_lines_that_come_at_once_are_sent_at_once(logs: Logs, capfd: pytest.CaptureFixture[str]) -> None:
    """A request for each of 60,000 steps would take minutes."""
    lines = [f"[METRIC] step={step} loss=0.5" for step in range(2_000)]

    follow(("\n\n".join(lines) + "\nno end").encode())

    assert [message for messages in logs.sent for message in messages] == [*lines, "no end"]
    assert len(logs.sent) < 20
    assert capfd.readouterr().out == "\n\n".join(lines) + "\nno end"


def test_no_request_has_more_than_cloudwatch_takes(logs: Logs) -> None:
    follow((CHUNK + 1) * 10 * b"\nx" + 2 * LONGEST_EVENT * b"y")

    assert max(map(len, logs.sent)) < 10_000
    assert max(len(message) for messages in logs.sent for message in messages) < 2**18
    assert sum(len(message) for messages in logs.sent for message in messages) == (CHUNK + 1) * 10 + 2 * LONGEST_EVENT


def test_a_training_that_reads_s3_itself_finds_the_embedded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://172.31.255.254:5000")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:4000")
    monkeypatch.setenv("AWS_PROFILE", "mine")

    assert embedded_aws() == {
        "AWS_ENDPOINT_URL": "http://172.31.255.254:5000",
        "AWS_METADATA_ENDPOINT": "http://127.0.0.1:4000",
    }
