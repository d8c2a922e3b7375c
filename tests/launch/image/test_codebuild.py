"""python -m launch.image push on a machine without a builder: by CodeBuild, on moto."""

from __future__ import annotations

import json
import signal
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from launch.aws.client import Aws
from launch.core.plan import FromAnswer
from launch.image import planner
from launch.image.lookup import Facts, transfers_of
from launch.image.options import PushOptions
from launch.image.source import pack, read_source
from tests.conftest import ROOT
from tests.launch.faults import Faults, injected, lost, refused
from tests.launch.image.builds import BUCKET, PROJECT, Builds
from tests.launch.image.machine import AWSS, HOST, PASSWORD, TAG, Machine, digests

SOURCE = read_source(ROOT, "trainer", None)


def started(machine: Machine) -> list[dict[str, Any]]:
    return [call.params for call in machine.requests if call.operation == "StartBuild"]


def variables(machine: Machine) -> dict[str, str]:
    return {row["name"]: row["value"] for row in started(machine)[0]["environmentVariablesOverride"]}


# ---- it builds


def test_without_a_program_codebuild_builds_and_pushes(machine: Machine, builds: Builds) -> None:
    machine.happens = iter([builds.reach("BUILD"), builds.say("#7 [installed 2/5] RUN", "chatter"), builds.end()])

    assert machine.type("push") == 0

    (asked,) = started(machine)
    (key,) = builds.uploaded
    assert (asked["projectName"], asked["sourceLocationOverride"]) == (PROJECT, f"{BUCKET}/{key}")
    assert machine.ran == []
    assert digests()["latest"] == digests()[TAG]
    progress = (f"started {builds.row['id']}", "  BUILD\n", "          #7 [installed 2/5] RUN\n", "  COMPLETED\n")
    places = [machine.out.index(line) for line in progress]
    assert places == sorted(places)  # each as it happens
    assert "chatter" not in machine.out
    assert f"pushed: {digests()[TAG]}\n" in machine.out
    assert PASSWORD not in str(machine.requests) + machine.out
    assert "ecr:GetAuthorizationToken" not in machine.calls  # the build's own role gets it


def test_it_runs_the_very_commands_of_docker(machine: Machine, builds: Builds) -> None:
    machine.happens = iter([builds.end()])
    machine.type("push")
    there = variables(machine)
    machine.has("docker")

    assert machine.type("push", "--again") == 0

    build, push = (f"docker {' '.join(line.partition('|')[0].split()[1:])}" for line in machine.ran[2:4])
    assert there["BUILD"] == build.replace(str(ROOT), ".")
    assert there["PUSH"] == push
    assert (there["DOCKER_BUILDKIT"], there["BUILDX_NO_DEFAULT_ATTESTATIONS"]) == ("1", "1")
    assert there["LOG_IN"] == " && ".join(
        f"aws ecr get-login-password --region us-east-1 | docker login --username AWS --password-stdin {host}"
        for host in (HOST, AWSS)
    )


# ---- where docker's upload would take longer


@pytest.mark.parametrize(
    ("words", "builder"),
    [
        ([], "docker"),  # at 100 Mbit/s 13 minutes, and CodeBuild's 20
        (["--upload-mbit-s", "20"], "codebuild"),
    ],
)
def test_docker_is_not_preferred_where_its_upload_takes_longer(
    words: list[str], builder: str, machine: Machine, builds: Builds
) -> None:
    machine.has("docker")
    assert machine.type("push", "--dry-run=json", *words) == 0

    facts = json.loads(machine.out)["facts"]
    assert facts["builder"] == builder
    if "--base" in words:
        assert "here" not in facts
    else:
        minutes = 10.023 * 8000 / (20 if words else 100) / 60
        assert facts["here"] == {"pull_gb": 10, "push_gb": 10.023, "upload_min": round(minutes, 1)}
        assert facts["codebuild"] == {"min": 20}


def test_a_later_push_on_the_same_base_sends_the_trainer_alone() -> None:
    first, later = (transfers_of(SOURCE, 20, has_base=has_base) for has_base in (False, True))
    assert first
    assert later
    assert (first.is_far, later.is_far) == (True, False)
    assert later.push_gb == pytest.approx(0.023)


def test_where_aws_has_no_codebuild_it_is_docker_or_nothing(machine: Machine) -> None:
    Aws("ca-west-1").call("ecr", "CreateRepository", {"repositoryName": "aws-ddp-toolkit"})
    words = ("push", "--region", "ca-west-1", "--upload-mbit-s", "1", "--dry-run=json")
    machine.type(*words)
    assert json.loads(machine.out)["facts"]["builder"] == "docker"

    machine.has()
    machine.type(*words)
    (problem,) = json.loads(machine.out)["problems"]
    assert "AWS has no CodeBuild in ca-west-1" in problem["sentence"]
    assert not [call for call in machine.calls if call.startswith("codebuild:")]


# ---- what is uploaded


def test_the_context_is_exactly_the_source_and_always_the_same_bytes() -> None:
    context = pack(SOURCE)
    with zipfile.ZipFile(BytesIO(context.content)) as file:
        assert tuple(file.namelist()) == SOURCE.names
        assert all(file.read(name) == (ROOT / name).read_bytes() for name in SOURCE.names)
        assert {info.date_time for info in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}

    assert "Dockerfile" in SOURCE.names
    assert "infra/container/buildspec.yaml" in SOURCE.names  # where the project looks for it
    assert pack(SOURCE) == context


def test_the_same_context_is_uploaded_once(machine: Machine, builds: Builds) -> None:
    machine.happens = iter([builds.end()])
    machine.type("push")
    builds.rows.clear()
    machine.happens = iter([builds.end()])

    assert machine.type("push", "--again") == 0

    assert machine.calls.count("s3:PutObject") == 1
    first, second = started(machine)
    assert first["idempotencyToken"] != second["idempotencyToken"]


# ---- dry run


def test_a_dry_run_shows_every_request_and_what_it_costs_and_makes_none(machine: Machine, builds: Builds) -> None:
    assert machine.type("push", "--dry-run=full") == 0

    assert machine.calls == ["sts:GetCallerIdentity", "ecr:DescribeImages", "ecr:DescribeImages",
                             "ecr:BatchGetImage", "s3:ListObjectsV2", "codebuild:BatchGetProjects",
                             "service-quotas:ListServiceQuotas"]  # fmt: skip
    assert "  builder        codebuild, because docker, podman and buildah are not installed\n" in machine.out
    for call in ("s3:PutObject", "codebuild:StartBuild", "codebuild:BatchGetBuilds", "codebuild:StopBuild",
                 "logs:FilterLogEvents", "ecr:PutImage"):  # fmt: skip
        assert f" {call}  " in machine.out
    assert "0.005 USD per minute, at most 0.30 USD in 60 minutes" in machine.out


def plain(value: Any) -> Any:
    """With a text for what only an earlier answer gives."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, FromAnswer) else value


def test_aws_own_service_model_accepts_every_request() -> None:
    facts = Facts("codebuild", "us-east-1", "123456789012", context=pack(SOURCE))
    plan = planner.plan_push(PushOptions(), SOURCE, facts, datetime(2026, 11, 21, tzinfo=UTC))
    session, validator = botocore.session.Session(), ParamValidator()
    requests = [*plan.requests, *(request for _, group in plan.later for request in group)]

    assert len(requests) == 7
    for request in requests:
        shape = session.get_service_model(request.service).operation_model(request.operation).input_shape
        report = validator.validate(plain(dict(request.params)), shape)
        assert not report.has_errors(), f"{request.operation}: {report.generate_report()}"


# ---- what goes wrong


@pytest.mark.parametrize(
    ("status", "phase", "message", "remedy"),
    [
        ("FAILED", "BUILD", "Reason: exit status 1.", "aws logs tail /aws-ddp-toolkit/images "),
        ("FAILED", "DOWNLOAD_SOURCE", "AccessDenied", "python -m launch.infra up"),
        ("TIMED_OUT", "BUILD", "", "--base"),
        ("FAULT", "PROVISIONING", "no hosts", "run the same command again"),
        ("STOPPED", "BUILD", "", "run the same command again"),
    ],
)
def test_a_failed_build_says_why_with_its_last_lines(
    status: str, phase: str, message: str, remedy: str, machine: Machine, builds: Builds
) -> None:
    machine.happens = iter([builds.say("RUN python", "no matching distribution"), builds.end(status, phase, message)])

    assert machine.type("push") == 4

    assert "  RUN python\n  no matching distribution\n" in machine.out
    assert message.rstrip(".") in machine.err
    assert remedy in machine.err
    assert "latest" not in digests()


@pytest.mark.parametrize(
    ("operation", "code", "named"),
    [
        ("BatchGetProjects", "AccessDeniedException", "infra/iam/builder.json"),
        ("PutObject", "AccessDenied", "infra/iam/builder.json"),
        ("StartBuild", "ThrottlingException", "codebuild:StartBuild"),
        ("StartBuild", "AccountLimitExceededException", "request-service-quota-increase --service-code codebuild"),
    ],
)
def test_a_refusal_by_aws_names_the_remedy(
    operation: str, code: str, named: str, machine: Machine, builds: Builds
) -> None:
    with injected(Faults().on(operation, refused(code, 400), nth=None)):
        assert machine.type("push") == 4
    assert named in machine.err
    assert builds.rows == {}


def test_an_account_without_builds_learns_in_the_plan_how_to_get_some(machine: Machine, builds: Builds) -> None:
    builds.quota = 0.0
    assert machine.type("push", "--dry-run") == 4
    assert "request-service-quota-increase --service-code codebuild" in machine.out


def test_without_the_account_set_up_it_says_what_to_run(machine: Machine) -> None:
    machine.has()

    assert machine.type("push") == 4
    assert BUCKET in machine.err
    assert "python -m launch.infra up" in machine.err


def test_it_pushes_to_the_stacks_repository_only(machine: Machine, builds: Builds) -> None:
    Aws("us-east-1").call("ecr", "CreateRepository", {"repositoryName": "aws-ddp-toolkit-mine"})

    assert machine.type("push", "--repository", "aws-ddp-toolkit-mine") == 2
    assert "leave --repository out" in machine.err
    assert builds.rows == {}


# ---- interrupted


def interrupt(how: signal.Signals) -> Callable[[], None]:
    return lambda: signal.raise_signal(how)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_the_build(how: signal.Signals, machine: Machine, builds: Builds) -> None:
    machine.happens = iter([builds.reach("BUILD"), interrupt(how)])

    assert machine.type("push") == 130

    assert builds.row["buildStatus"] == "STOPPED"
    assert machine.err == f"error: stopped {builds.row['id']}\n"


def test_interrupted_before_the_id_is_heard_the_build_is_found_by_its_token(
    machine: Machine, builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, interrupted = Aws.call, list[str]()

    def interrupting(aws: Aws, service: str, operation: str, params: Any = None, /) -> Any:
        answer = call(aws, service, operation, params)
        if operation == "StartBuild" and not interrupted:
            interrupted.append(operation)
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(Aws, "call", interrupting)

    assert machine.type("push") == 130

    assert builds.row["buildStatus"] == "STOPPED"  # and there is one only


def test_an_answer_lost_once_starts_one_build_and_trouble_with_the_log_ends_none(
    machine: Machine, builds: Builds
) -> None:
    machine.happens = iter([builds.reach("BUILD"), builds.end()])
    log = refused("AccessDeniedException", 400)
    with injected(Faults().on("StartBuild", lost(attempts=1)).on("FilterLogEvents", log, nth=None)):
        assert machine.type("push") == 0
    assert len(builds.rows) == 1
    assert machine.out.count("logs:FilterLogEvents") == 1


@pytest.mark.parametrize("operation", ["BatchGetBuilds", "StopBuild"])
def test_a_build_that_cannot_be_watched_or_stopped_is_an_error_with_the_command_that_does(
    operation: str, machine: Machine, builds: Builds
) -> None:
    machine.happens = iter([interrupt(signal.SIGINT)] if operation == "StopBuild" else [])
    with injected(Faults().on(operation, refused("AccessDeniedException", 400), nth=None)):
        assert machine.type("push") == 4
    assert f"aws codebuild stop-build --id {builds.row['id']} --region us-east-1" in machine.err
