"""Following CloudFormation: each event once, patience with AWS, one sentence for a failure; change sets; drift."""

from collections.abc import Iterator
from typing import Any

import pytest

from launch.core.clock import Clock
from launch.core.errors import AwsError, NoAnswer
from launch.core.plan import Request
from launch.infra.changes import Change, _change, detect_drift, drifted, failure, follow, preview
from launch.infra.lookup import Stack

ARN = "arn:aws:cloudformation:us-east-1:1:stack/aws-ddp-toolkit/1"
STACK_TYPE = "AWS::CloudFormation::Stack"
POINTER = "Validation failed with 1 error(s). Call DescribeEvents to retrieve the full list of issues"


def event(status: str, name: str = "aws-ddp-toolkit", kind: str = STACK_TYPE, why: str = "") -> dict[str, str]:
    physical = ARN if kind == STACK_TYPE else name
    return {"EventId": f"{name} {status}", "ResourceStatus": status, "LogicalResourceId": name, "ResourceType": kind,
            "PhysicalResourceId": physical, "ResourceStatusReason": why}  # fmt: skip


class Scripted:
    """An AWS whose stack is in one state after the other; an error in its place is raised."""

    def __init__(self, *states: tuple[str, list[dict[str, str]]] | Exception) -> None:
        self.states, self.events, self.status = list(states), list[dict[str, str]](), ""
        self.invalid: list[dict[str, str]] | AwsError = []

    def call(self, _service: str, operation: str, _params: Any) -> dict[str, Any]:
        if operation == "DescribeStacks":
            state = self.states.pop(0)
            if isinstance(state, Exception):
                raise state
            self.status, self.events = state[0], state[1][::-1] + self.events
            return {"Stacks": [{"StackStatus": self.status}]}
        if operation == "DescribeChangeSet":
            return {"Status": "FAILED", "StatusReason": POINTER, "ChangeSetId": "arn:change-set"}
        return {"StackEvents": self.events}

    def pages(self, _service: str, operation: str, key: str, params: Any) -> Iterator[dict[str, str]]:
        assert (operation, key, params["Filters"]) == ("DescribeEvents", "OperationEvents", {"FailedEvents": True})
        if isinstance(self.invalid, AwsError):
            raise self.invalid
        yield from self.invalid


def watch(aws: Scripted, known: set[str] | None = None) -> list[str]:
    lines, now = list[str](), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    follow(aws, ARN, set() if known is None else known, Clock(lambda: now[0], sleep), lines.append)  # type: ignore[arg-type]
    return lines


def test_each_event_is_printed_once_and_in_order() -> None:
    begun, made, done = event("CREATE_IN_PROGRESS"), event("CREATE_COMPLETE", "NodeRole", "AWS::IAM::Role"), event(
        "CREATE_COMPLETE"
    )  # fmt: skip
    old = event("DELETE_COMPLETE", "Old")
    aws = Scripted(("CREATE_IN_PROGRESS", [old, begun]), ("CREATE_IN_PROGRESS", [made]), ("CREATE_COMPLETE", [done]))
    assert watch(aws, {old["EventId"]}) == [
        "  CREATE_IN_PROGRESS   aws-ddp-toolkit",
        "  CREATE_COMPLETE      NodeRole",
        "  CREATE_COMPLETE      aws-ddp-toolkit",
    ]


def test_the_earlier_state_is_not_taken_for_the_end() -> None:
    before, begun = ("UPDATE_COMPLETE", []), event("UPDATE_IN_PROGRESS")
    done = event("UPDATE_COMPLETE")
    aws = Scripted(before, before, ("UPDATE_IN_PROGRESS", [begun]), ("UPDATE_COMPLETE", [done]))
    assert watch(aws) == ["  UPDATE_IN_PROGRESS   aws-ddp-toolkit", "  UPDATE_COMPLETE      aws-ddp-toolkit"]
    assert watch(Scripted(*[before] * 8)) == []  # it had ended before anybody looked


def test_two_minutes_without_an_answer_are_tolerated_and_no_more() -> None:
    away = NoAnswer("no answer", "", "DescribeStacks")
    done = ("CREATE_COMPLETE", [event("CREATE_COMPLETE")])
    assert len(watch(Scripted(away, away, done))) == 1
    with pytest.raises(NoAnswer):
        watch(Scripted(*[away] * 30))
    with pytest.raises(AwsError, match="may not"):
        watch(Scripted(AwsError("you may not", "AccessDenied"), done))


def test_a_new_stack_that_was_rolled_back_is_a_failure_although_it_is_deleted() -> None:
    events = [
        event("CREATE_FAILED", "Repository", "AWS::ECR::Repository", "aws-ddp-toolkit already exists"),
        event("ROLLBACK_IN_PROGRESS"),
        event("DELETE_COMPLETE"),
    ]
    with pytest.raises(AwsError, match=r"^Repository \(ECR Repository\) failed: aws-ddp-toolkit already exists"):
        watch(Scripted(("DELETE_COMPLETE", events)))


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("User: u is not authorized to perform: iam:CreateRole", "infra/iam/administrator-stack.json"),
        ("The maximum limit of 10 budgets", "Service Quotas"),
        ("The bucket you tried to delete is not empty", "empty it"),
        ("Cannot delete a policy attached to entities", "python -m launch.infra down"),
        ("Invalid request", "fix that"),
    ],
)
def test_the_first_reason_has_a_remedy(reason: str, remedy: str) -> None:
    events = [
        event("CREATE_FAILED", "A", "AWS::IAM::Role", f"{reason} (Service: X, Status Code: 400)"),
        event("CREATE_FAILED", "B", "AWS::IAM::Role", "Resource creation cancelled"),
    ]
    sentence = str(failure(events, "UPDATE_ROLLBACK_COMPLETE"))
    assert sentence.startswith(f"A (IAM Role) failed: {reason};")
    assert remedy in sentence
    assert failure([], "UPDATE_ROLLBACK_FAILED").aws_code == "UPDATE_ROLLBACK_FAILED"


# https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_OperationEvent.html
WARNS = {"EventType": "VALIDATION_ERROR", "ValidationFailureMode": "WARN", "LogicalResourceId": "Repository",
         "ResourceType": "AWS::ECR::Repository", "ValidationStatusReason": "not empty"}  # fmt: skip
FAILS = {"EventType": "VALIDATION_ERROR", "ValidationFailureMode": "FAIL", "LogicalResourceId": "JobBucket",
         "ResourceType": "AWS::S3::Bucket", "ValidationStatusReason": "b already exists."}  # fmt: skip


def test_what_aws_found_before_it_began_is_looked_up_where_its_events_point() -> None:
    stack = event("CREATE_FAILED", why=POINTER)
    aws = Scripted(("DELETE_COMPLETE", [stack, event("DELETE_COMPLETE")]))
    aws.invalid = [WARNS, FAILS]
    with pytest.raises(AwsError, match=r"^JobBucket \(S3 Bucket\) failed: b already exists; .* delete it, or rename"):
        watch(aws)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ([WARNS, FAILS], r"^AWS refused the change set: JobBucket \(S3 Bucket\) failed: b already exists\.$"),
        (AwsError("you may not", "AccessDenied"), "change set: Validation failed"),
    ],
)
def test_so_it_is_for_a_change_set(answer: Any, sentence: str) -> None:
    aws = Scripted()
    aws.invalid = answer
    create = Request("cloudformation", "CreateChangeSet", {"StackName": "s", "ChangeSetName": "c"}, "c")
    with pytest.raises(AwsError, match=sentence):
        preview(aws, create, Clock(lambda: 0.0, lambda _: None))  # type: ignore[arg-type]


# ---- change sets in words


DETAILS = [{"Target": {"Attribute": "Properties", "Name": "RetentionInDays"}}] * 2 + [{"Target": {"Attribute": "Tags"}}]


@pytest.mark.parametrize(
    ("row", "action", "what"),
    [
        ({"Action": "Add"}, "create", ""),
        ({"Action": "Import", "PhysicalResourceId": "b"}, "adopt", "b"),
        ({"Action": "Remove"}, "delete", ""),
        ({"Action": "Remove", "PolicyAction": "Retain"}, "keep", ""),
        ({"Action": "Modify", "Replacement": "True"}, "replace", ""),
        ({"Action": "Modify", "Replacement": "Conditional"}, "replace?", ""),
        ({"Action": "Modify", "Replacement": "False", "Details": DETAILS}, "change", "RetentionInDays, Tags"),
    ],
)
def test_a_change_is_shown_in_our_words(row: dict[str, Any], action: str, what: str) -> None:
    named = {"LogicalResourceId": "Thing", "ResourceType": "AWS::IAM::Role"}
    assert _change({**named, **row}) == Change(action, "Thing", "IAM Role", what)


# ---- drift, which moto does not know


class Drifting:
    """An AWS that looks for drift, and finds a bucket that is no longer encrypted."""

    def __init__(self) -> None:
        self.looks = ["DETECTION_IN_PROGRESS", "DETECTION_COMPLETE"]

    def call(self, _service: str, operation: str, _params: Any) -> dict[str, Any]:
        if operation == "DetectStackDrift":
            return {"StackDriftDetectionId": "d"}
        return {"DetectionStatus": self.looks.pop(0), "StackDriftStatus": "DRIFTED"}

    def pages(self, *_: Any) -> list[dict[str, Any]]:
        return [
            {
                "LogicalResourceId": "JobBucket",
                "StackResourceDriftStatus": "MODIFIED",
                "PropertyDifferences": [{"PropertyPath": "/BucketEncryption"}],
            },
            {"LogicalResourceId": "Sweeper", "StackResourceDriftStatus": "DELETED"},
        ]


def test_drift_is_shown_by_resource() -> None:
    aws: Any = Drifting()
    stack = detect_drift(aws, Stack(ARN, "CREATE_COMPLETE"), Clock(lambda: 0.0, lambda _: None))
    assert stack.drift == "DRIFTED"
    assert drifted(aws, stack) == [("JobBucket", "/BucketEncryption"), ("Sweeper", "deleted")]
