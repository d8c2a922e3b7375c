"""Least privilege of launch.image: a user with infra/iam/builder.json only pushes with docker and with CodeBuild, on a
moto that evaluates policies for every call; and the permissions of CodeBuild's own role.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.image.__main__ import main
from launch.image.commands import Runtime
from launch.rehearse.aws.iam.needs import AccountView
from launch.rehearse.aws.iam.policies import Need, actions, allows, policy
from launch.rehearse.nodes.ec2.node import write_program
from tests.conftest import ROOT
from tests.launch.ec2.account import Account
from tests.launch.image import builds as on_codebuild
from tests.launch.image.builds import BUCKET, LOG_GROUP, Builds
from tests.launch.image.machine import STAND_IN
from tests.launch.privilege.enforced import Watch, enforced, idle

VIEW = AccountView("123456789012", "us-east-1", lambda _name: {}, lambda _profile: [])

# Grants that no call of launch.image needs, and why they are there.
BY_DOCKER = {
    "ecr:BatchCheckLayerAvailability": "docker push and pull, as AWS documents them: there is no registry in the tests",
    "ecr:CompleteLayerUpload": "the same",
    "ecr:GetDownloadUrlForLayer": "the same",
    "ecr:InitiateLayerUpload": "the same",
    "ecr:UploadLayerPart": "the same",
}
ARGUED_OF_ROLE = {
    **BY_DOCKER,
    "ecr:BatchGetImage": "the same",
    "ecr:GetAuthorizationToken": "aws ecr get-login-password",
    "ecr:PutImage": "docker push",
    "logs:CreateLogStream": "CodeBuild, in the role's name",
    "logs:PutLogEvents": "the same",
    "s3:GetBucketAcl": "CodeBuild looks whose the bucket is, as AWS documents it",
    "s3:GetBucketLocation": "and where",
    "s3:GetObject": "the context",
    "s3:GetObjectVersion": "the same: the bucket keeps versions",
}


@contextmanager
def opened() -> Iterator[tuple[Builds, Watch]]:
    """An account that is set up, and a user with infra/iam/builder.json in it."""
    with Account.opened() as account, on_codebuild.patched() as builds:
        builds.set_up()
        with enforced(account, "builder") as watch:
            yield builds, watch


@cache
def all_commands() -> Watch:
    """The calls of all commands; fails where a command does."""
    with TemporaryDirectory() as folder, opened() as (builds, watch):
        events = iter([builds.say("#7 [installed 2/5] RUN"), builds.end(), lambda: None, lambda: None, interrupt])
        runtime = Runtime(
            make_aws=partial(Aws, policy="builder"),
            checkout=ROOT,
            which=partial(shutil.which, path=folder),
            env={"PATH": folder},
            say=print,
            clock=Clock(sleep=lambda _seconds: next(events)()),
        )
        assert main(["push"], runtime) == 0
        builds.rows.clear()
        assert main(["push", "--again"], runtime) == 130
        write_program(Path(folder) / "docker", STAND_IN.format(log="/dev/null", refuses=""))
        assert main(["push", "--again"], runtime) == 0
        assert main(["show"], runtime) == 0
        return watch


def interrupt() -> None:
    raise KeyboardInterrupt


def test_every_command_works_with_the_builders_policy_alone() -> None:
    assert all_commands().refused == []
    assert len(all_commands().calls) > 20


def test_every_grant_is_needed_by_a_command_or_argued() -> None:
    needed = {need.action for need in all_commands().granted}
    assert actions("builder") - needed == BY_DOCKER.keys()


def test_every_statement_is_needed() -> None:
    assert idle("builder", all_commands().granted) == set()


# ---- CodeBuild's own role


def of_role(action: str, resource: str) -> bool:
    mine = {"s3:ResourceAccount": VIEW.account, "aws:PrincipalAccount": VIEW.account}
    return allows([policy("image-builder")], Need(action, resource, mine))


def test_every_grant_of_the_role_is_argued() -> None:
    assert actions("image-builder") == ARGUED_OF_ROLE.keys()


def test_the_role_reads_contexts_pushes_one_image_and_writes_one_log() -> None:
    ecr = "arn:aws:ecr:us-east-1:{}:repository/{}"
    assert of_role("s3:GetObject", f"arn:aws:s3:::{BUCKET}/aws-ddp-toolkit-builds/0.zip")
    assert of_role("ecr:PutImage", ecr.format(VIEW.account, "aws-ddp-toolkit"))
    assert of_role("ecr:GetDownloadUrlForLayer", ecr.format("763104351884", "pytorch-training"))
    assert of_role("logs:PutLogEvents", VIEW.arn("logs", f"log-group:{LOG_GROUP}:log-stream:1"))


def test_only_codebuild_takes_the_role_on() -> None:
    (statement,) = policy("image-builder-trust")["Statement"]
    assert (statement["Principal"], statement["Action"]) == ({"Service": "codebuild.amazonaws.com"}, "sts:AssumeRole")
