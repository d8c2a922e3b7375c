"""launch.core.perform: which requests are made, in which order, and what happens when it refuses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pytest

from launch.aws.instances.requests import NOT_YET
from launch.core.errors import AwsError, Forbidden, NoAnswer, NotYetAllowed
from launch.core.perform import perform
from launch.core.plan import Choice, FromAnswer, Request, Step, Try, put_once


@dataclass
class Cloud:
    """Answers every operation with its own name, or with the error that is kept for it."""

    errors: dict[str, AwsError] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def call(self, service: str, operation: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((f"{service}:{operation}", params))
        if operation in self.errors:
            raise self.errors[operation]
        return {"Id": f"id of {operation}", "Items": [{"Id": 1}, {"Id": 2}]}

    def perform(self, *steps: Step) -> dict[str, Mapping[str, Any]]:
        return perform(steps, self.call, self.said.append)

    @property
    def operations(self) -> list[str]:
        return [operation for operation, _ in self.asked]


def zones(*names: str) -> Choice:
    """Tries that are called as in 'g5 a': a type, and a zone."""
    tries = tuple(
        Try(Request("ec2", name, {}, f"start {name}"), (name.split()[0], name.split()[1]), name.split()[0])
        for name in names
    )
    return Choice(
        tries, "start nodes", ("type", "zone", "answer"),
        next_after={"Full": "no capacity"}, next_kind_after={"Quota": "quota used up"}, name="nodes",
    )  # fmt: skip


def test_requests_are_made_in_order_with_their_sentences() -> None:
    cloud = Cloud()
    cloud.perform(Request("s3", "Put", {"Key": "k"}, "write it down"), Request("ec2", "Run", {}, "start"))

    assert cloud.asked == [("s3:Put", {"Key": "k"}), ("ec2:Run", {})]
    assert cloud.said == ["write it down", "start"]


def test_answers_are_kept_by_name_and_filled_into_later_requests() -> None:
    cloud = Cloud()
    answers = cloud.perform(
        Request("ec2", "Make", {}, "make", name="group"),
        Request(
            "ec2", "Use", {"GroupId": FromAnswer("group", "Id"), "All": [FromAnswer("group", "Items[*].Id")]}, "use"
        ),
    )

    assert cloud.asked[1] == ("ec2:Use", {"GroupId": "id of Make", "All": [[1, 2]]})
    assert list(answers) == ["group"]


def test_what_is_there_already_is_taken_as_done() -> None:
    cloud = Cloud({"Make": AwsError("it exists", "Duplicate")})
    answers = cloud.perform(
        Request("ec2", "Make", {}, "make", ("Duplicate",), "group"), Request("ec2", "Run", {}, "start")
    )

    assert cloud.operations == ["ec2:Make", "ec2:Run"]
    assert answers == {}


@pytest.mark.parametrize("error", [AwsError("not allowed", "Denied"), NoAnswer("no answer", "", "Make")])
def test_anything_else_ends_it_there(error: AwsError) -> None:
    cloud = Cloud({"Make": error})

    with pytest.raises(AwsError) as caught:
        cloud.perform(Request("ec2", "Make", {}, "make", ("Duplicate",)), Request("ec2", "Run", {}, "start"))

    assert caught.value is error
    assert cloud.operations == ["ec2:Make"]


def test_what_aws_does_not_know_yet_is_retried() -> None:
    """A group that was made a second ago."""
    cloud, slept = Cloud({"Use": AwsError("no such group", "InvalidGroup.NotFound")}), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            cloud.errors.clear()

    perform([Request("ec2", "Use", {}, "use it", retry_after=("InvalidGroup.NotFound",))], cloud.call, print, sleep)
    assert (len(cloud.asked), slept) == (3, [3.0, 3.0])


@pytest.mark.parametrize("service", ["ec2", "sagemaker", "scheduler", "s3", "codebuild"])
def test_a_denial_that_may_be_too_early_is_retried_on_every_service(service: str) -> None:
    cloud, slept = Cloud({"Use": NotYetAllowed("may not use it", "AccessDenied")}), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            cloud.errors.clear()

    perform([Request(service, "Use", {}, "use it")], cloud.call, cloud.said.append, sleep)
    assert (len(cloud.asked), slept) == (3, [3.0, 3.0])
    assert len(cloud.said) == 2  # the wait is explained once


@pytest.mark.parametrize("kind", [AwsError, Forbidden])
def test_an_explicit_denial_is_never_retried(kind: type[AwsError]) -> None:
    cloud = Cloud({"Use": kind("a policy denies it", "UnauthorizedOperation")})
    with pytest.raises(kind):
        cloud.perform(Request("ec2", "Use", {}, "use it", retry_after=NOT_YET))
    assert len(cloud.asked) == 1


def test_the_first_zone_with_room_is_taken() -> None:
    cloud = Cloud({"g5 a": AwsError("full", "Full")})
    answers = cloud.perform(zones("g5 a", "g5 b", "g5 c"))

    assert cloud.operations == ["ec2:g5 a", "ec2:g5 b"]
    assert answers["nodes"]["Id"] == "id of g5 b"


def test_a_quota_that_is_used_up_leaves_out_the_types_other_zones() -> None:
    cloud = Cloud({"g5 a": AwsError("over", "Quota"), "g6 a": AwsError("full", "Full")})
    cloud.perform(zones("g5 a", "g5 b", "g6 a", "g6 b"))

    assert cloud.operations == ["ec2:g5 a", "ec2:g6 a", "ec2:g6 b"]


def test_a_failure_of_another_kind_is_no_reason_to_try_elsewhere() -> None:
    cloud = Cloud({"g5 a": NoAnswer("no answer", "", "RunInstances")})

    with pytest.raises(NoAnswer):
        cloud.perform(zones("g5 a", "g5 b"))
    assert cloud.operations == ["ec2:g5 a"]


def test_who_finds_no_room_anywhere_sees_what_was_tried() -> None:
    full, over = AwsError("full", "Full"), AwsError("over", "Quota")
    cloud = Cloud({"g5 a": full, "g5 b": full, "g6 a": over})

    with pytest.raises(AwsError) as caught:
        cloud.perform(zones("g5 a", "g5 b", "g6 a", "g6 b"))

    rows = [line.split() for line in str(caught.value).splitlines()[2:5]]
    assert rows == [["g5", "a", "no", "capacity"], ["g5", "b", "no", "capacity"], ["g6", "a", "quota", "used", "up"]]
    assert (caught.value.code, caught.value.aws_code) == (4, "NothingLeftToTry")


@pytest.mark.parametrize("there", [b"code", b"codf", b"code and more", b"", None])
def test_code_that_is_there_already_must_be_the_same(there: bytes | None) -> None:
    """None: S3 refuses to read a part of nothing."""

    def call(service: str, operation: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if operation == "PutObject":
            assert params["IfNoneMatch"] == "*"
            raise AwsError("At least one of the pre-conditions you specified did not hold", "PreconditionFailed")
        if there is None:
            raise AwsError("The requested range is not satisfiable", "InvalidRange")
        first, last = map(int, params["Range"].removeprefix("bytes=").split("-"))
        return {"Body": BytesIO(there[first : last + 1])}

    steps = [put_once("b", "jobs/j/source/0123.tar.gz", b"code", "send it")]
    if there == b"code":
        assert perform(steps, call, lambda _: None) == {}
    else:
        with pytest.raises(AwsError, match=r"s3://b/jobs/j/source/0123.tar.gz has .* another --job-name"):
            perform(steps, call, lambda _: None)
