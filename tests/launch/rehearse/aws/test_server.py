"""The embedded AWS answers only callers with their session tokens: its instances run code as this user."""

import json
import os
from typing import Any

import pytest

from launch.rehearse.aws.server import RecordingApp, RequestLog
from launch.rehearse.environment import cleaned
from launch.rehearse.nodes.ec2 import node
from launch.rehearse.nodes.sagemaker import container

TOKENS = {"rehearsal": "0123", "ASIANODE": "4567"}
SIGNED = "AWS4-HMAC-SHA256 Credential={}/20261123/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0"


def asked(tokens: dict[str, str] | None, **environ: Any) -> tuple[int, list[str]]:
    """The status of a request to run an instance, and what reached AWS."""
    reached, statuses = list[str](), list[int]()
    log = RequestLog(before=lambda _launcher, service, operation: reached.append(f"{service}:{operation}"))  # type: ignore[func-returns-value]

    def app(_environ: dict[str, Any], start: Any) -> list[bytes]:
        start("200 OK", [])
        return []

    body = {"HTTP_X_AMZ_TARGET": "AmazonEC2.RunInstances", "QUERY_STRING": ""}
    RecordingApp(app, log, tokens)(
        {**body, **environ}, lambda status, _headers: statuses.append(int(status.split()[0]))
    )
    return statuses[0], reached


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"HTTP_AUTHORIZATION": SIGNED.format("ME")},
        {"HTTP_AUTHORIZATION": SIGNED.format("rehearsal")},
        {"HTTP_AUTHORIZATION": SIGNED.format("rehearsal"), "HTTP_X_AMZ_SECURITY_TOKEN": "4567"},  # a node's own
        {"HTTP_AUTHORIZATION": SIGNED.format(""), "HTTP_X_AMZ_SECURITY_TOKEN": ""},
        {"QUERY_STRING": "X-Amz-Credential=rehearsal/20261123/us-east-1/ec2/aws4_request"},
        {"QUERY_STRING": "X-Amz-Credential=ME/a&X-Amz-Security-Token=0123"},
    ],
)
def test_requests_without_the_session_token_are_refused(environ: dict[str, str]) -> None:
    """Other users of this machine reach the port, and so does a page in a browser; access keys are no secret."""
    assert asked(TOKENS, **environ) == (403, [])


@pytest.mark.parametrize(
    "environ",
    [
        {"HTTP_AUTHORIZATION": SIGNED.format("rehearsal"), "HTTP_X_AMZ_SECURITY_TOKEN": "0123"},
        {"QUERY_STRING": "X-Amz-Credential=ASIANODE%2F20261123%2Fus-east-1&X-Amz-Security-Token=4567"},
    ],
)
def test_a_caller_with_its_own_token_is_answered(environ: dict[str, str]) -> None:
    assert asked(TOKENS, **environ)[0] == 200


def test_launcher_node_and_container_have_random_tokens() -> None:
    of_launcher = cleaned({"AWS_SESSION_TOKEN": "the user's own"})["AWS_SESSION_TOKEN"]
    of_node = json.loads(json.dumps(node._credentials()))["Token"]
    found = {of_launcher, of_node, container.TOKEN}
    assert len(found) == 3
    assert all(len(token) > 40 for token in found)
    assert of_launcher not in os.environ.values()
