"""launcher-queue.json and the controller's roles: who may put a launcher into a queue, and what it may do there."""

import json
from typing import Any

import pytest

from launch.aws.names import CONTROLLER, CONTROLLER_LOGS, FOR_EC2, queue_name, vcpus_name
from launch.rehearse.aws.iam.needs import AccountView, needs
from launch.rehearse.aws.iam.policies import LAUNCHER, Need, allows, policy
from tests.conftest import ROOT
from tests.launch.faults import Request

TAGS = {"ours": {"aws-ddp-toolkit:job": "j"}}
VIEW = AccountView("123456789012", "us-east-1", lambda name: TAGS.get(name, {}), lambda _profile: [])
SUBMIT = {
    "jobName": "j",
    "jobQueue": queue_name("demo", FOR_EC2),
    "jobDefinition": CONTROLLER,
    "shareIdentifier": "default",
    "tags": {"aws-ddp-toolkit:job": "j"},
}


def granted(policies: tuple[str, ...], operation: str, **params: Any) -> bool:
    service = {"P": "s3", "F": "logs"}.get(operation[0], "batch")
    asked = [json.loads((ROOT / f"infra/iam/{name}.json").read_text()) for name in policies]
    return all(allows(asked, need) for need in needs(Request(service, operation, params), VIEW))


@pytest.mark.parametrize("more", [{}, {"jobDefinition": f"{CONTROLLER}:3"}])
def test_launchers_submit_the_controller_to_a_queue_of_launch_ec2(more: dict[str, str]) -> None:
    assert granted(LAUNCHER, "SubmitJob", **{**SUBMIT, **more})
    assert not granted(tuple(name for name in LAUNCHER if name != "launcher-queue"), "SubmitJob", **SUBMIT)


@pytest.mark.parametrize(
    "more",
    [
        {"jobQueue": "production"},
        {"jobDefinition": "their-own"},
        {"jobDefinition": f"{CONTROLLER}-of-theirs"},
        {"tags": {}},
        {"tags": {"team": "x"}},
    ],
)
def test_and_nothing_else_to_nowhere_else(more: dict[str, Any]) -> None:
    assert not granted(LAUNCHER, "SubmitJob", **{**SUBMIT, **more})


def test_they_see_the_queue_and_end_jobs_of_the_toolkit_only() -> None:
    assert granted(LAUNCHER, "TerminateJob", jobId="ours", reason="-")
    assert not granted(LAUNCHER, "TerminateJob", jobId="theirs", reason="-")
    for policies in (LAUNCHER, ("launcher", "reader")):
        assert granted(policies, "GetJobQueueSnapshot", jobQueue=queue_name("demo", FOR_EC2))
        assert granted(policies, "DescribeConsumableResource", consumableResource=vcpus_name("demo", "graphics"))
        assert granted(policies, "ListJobs", jobQueue=queue_name("demo", FOR_EC2))
    assert granted(LAUNCHER, "FilterLogEvents", logGroupName=CONTROLLER_LOGS)


@pytest.mark.parametrize("name", ["queued.json", "lease.json", "outcome.json"])
def test_a_controller_leads_a_job_as_a_launcher_does_and_submits_none(name: str) -> None:
    bucket = "aws-ddp-toolkit-123456789012-us-east-1"
    assert granted(("launcher", "reader"), "PutObject", Bucket=bucket, Key=f"jobs/j/{name}", IfNoneMatch="*")
    assert not granted(("launcher", "reader"), "PutObject", Bucket=bucket, Key=f"data/{name}")
    assert not granted(("launcher", "reader"), "SubmitJob", **SUBMIT)


def test_what_starts_a_controller_pulls_our_image_and_writes_its_log() -> None:
    role = ("controller-execution",)
    image = "arn:aws:ecr:us-east-1:123456789012:repository/"
    stream = "arn:aws:logs:us-east-1:123456789012:log-group:{}:log-stream:controller/default/1"

    def allowed(action: str, arn: str = "*") -> bool:
        return allows([policy(*role)], Need(action, arn))

    assert allowed("ecr:GetAuthorizationToken")
    assert allowed("ecr:BatchGetImage", image + "aws-ddp-toolkit")
    assert not allowed("ecr:BatchGetImage", image + "theirs")
    assert allowed("logs:PutLogEvents", stream.format(CONTROLLER_LOGS))
    assert not allowed("logs:PutLogEvents", stream.format("/aws-ddp-toolkit/ec2"))
