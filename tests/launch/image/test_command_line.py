"""python -m launch.image, typed against moto: what each verb runs, asks for, says and refuses.

docker is a stand-in that records its arguments and input.  The registry itself is not there: what a push would
bring is put into moto when docker pushes.  tests/container builds and pushes for real.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from launch.aws.client import Aws
from launch.aws.lookup import MANIFESTS
from launch.image import engines
from launch.image.source import read_source
from tests.conftest import ROOT
from tests.launch.image.machine import AWSS, HOST, PASSWORD, REPOSITORY, TAG, URI, Machine, digests, put

# ---- push


def test_push_builds_uploads_and_lets_latest_name_it(machine: Machine) -> None:
    assert machine.type("push") == 0

    arguments = f"--build-arg REVISION={TAG[8:]} --build-arg VERSION=0.1.0"
    build = f"docker build --platform linux/amd64 --target trainer {arguments} --tag {URI}:{TAG} "
    assert machine.ran == [
        f"docker login --username AWS --password-stdin {HOST}|{PASSWORD}",
        f"docker login --username AWS --password-stdin {AWSS}|{PASSWORD}",
        f"{build}{ROOT}|",
        f"docker push {URI}:{TAG}|",
        f"docker logout {AWSS}|",
        f"docker logout {HOST}|",
    ]
    there = digests()
    assert there["latest"] == there[TAG]
    assert f"pushed: {there[TAG]}\n" in machine.out
    assert f"use it: python -m launch.ec2 --image {URI}@{there[TAG]}\n" in machine.out


def test_what_is_there_already_is_not_built_again(machine: Machine) -> None:
    machine.type("push")
    machine.log.unlink()
    machine.has()  # not even docker is needed

    assert machine.type("push") == 0

    assert machine.ran == []
    assert machine.out.startswith(f"already pushed: {digests()[TAG]}\n")


def test_latest_goes_back_to_an_earlier_content_without_an_upload(machine: Machine) -> None:
    earlier = put()
    put(content="other layers", tag="latest")

    assert machine.type("push") == 0

    assert (machine.ran, digests()["latest"]) == ([], earlier)


def test_what_is_for_sagemaker_has_tags_of_its_own(machine: Machine) -> None:
    assert machine.type("push", "--target", "sagemaker") == 0

    there = digests()
    assert set(there) == {"sagemaker", read_source(ROOT, "sagemaker", None).tag}
    assert f"use it: python -m launch.sagemaker --image {URI}@{there['sagemaker']}\n" in machine.out


@pytest.mark.parametrize("builder", ["podman", "buildah"])
def test_the_others_build_in_dockers_format_and_without_todays_time(builder: str, machine: Machine) -> None:
    machine.has(builder)
    machine.type("push")  # which fails in the end, for nothing arrives in moto

    assert f"{builder} build --platform linux/amd64 --format docker --timestamp 315532800 --target" in machine.ran[2]
    assert machine.ran[3] == f"{builder} push {URI}:{TAG} docker://{URI}:{TAG}|"
    assert f"{URI} has no {TAG}; run the same command again." in machine.err


# ---- a base that was patched


def patch(content: str) -> str:
    """AWS's own registry has another base of the same name from now on; returns its digest."""
    aws, name = Aws("us-east-1"), read_source(ROOT, "trainer", None).base.partition("/")[2]
    repository, _, tag = name.partition(":")
    if not content:
        aws.call("ecr", "CreateRepository", {"repositoryName": repository})
    manifest = {"schemaVersion": 2, "mediaType": MANIFESTS[0], "layers": [{"digest": f"base {content}"}]}
    image = {"repositoryName": repository, "imageTag": tag, "imageManifest": json.dumps(manifest)}
    return str(aws.call("ecr", "PutImage", image)["image"]["imageId"]["imageDigest"])


def test_a_patched_base_is_noticed_and_again_builds_on_it(machine: Machine) -> None:
    before = patch("")
    machine.type("push")
    assert "--pull " in machine.ran[2]  # or docker would take the one that it has
    assert f"{TAG}-on-{before[7:19]}" in digests()
    machine.type("push", "--again", "--dry-run=json")
    assert json.loads(machine.out)["facts"]["here"]["push_gb"] == 0.023  # the repository has this base
    asked = [call.params for call in machine.requests if call.operation == "BatchGetImage"]
    assert (asked[0]["registryId"], asked[0]["repositoryName"]) == ("763104351884", "pytorch-training")

    machine.type("push")
    assert machine.out.startswith(f"already pushed: {digests()[TAG]}\n")
    after = patch("patched")
    for words in (("push", "--dry-run=full"), ("push",)):
        machine.type(*words)
        assert f"{digests()[TAG]}, but its base has been updated since; --again" in machine.out

    assert machine.type("push", "--again") == 0
    assert f"{TAG}-on-{after[7:19]}" in digests()


@pytest.mark.parametrize("base", ["pytorch/pytorch:1", f"{AWSS}/pytorch-training@sha256:{'0' * 64}"])
def test_a_base_elsewhere_or_by_digest_is_not_looked_up(base: str, machine: Machine) -> None:
    machine.type("push", "--base", base)

    assert "ecr:BatchGetImage" not in machine.calls
    assert [host in line for line in machine.ran for host in (AWSS,) if "login" in line].count(True) == (AWSS in base)
    assert any(f"--build-arg BASE_IMAGE={base} " in line for line in machine.ran)


@pytest.mark.parametrize("tag", [":latest", ""])
def test_a_base_is_built_on_by_its_digest_whether_it_names_a_tag_or_not(tag: str, machine: Machine) -> None:
    aws, manifest = Aws("us-east-1"), {"schemaVersion": 2, "mediaType": MANIFESTS[0], "layers": [{"digest": "mine"}]}
    aws.call("ecr", "CreateRepository", {"repositoryName": "own"})
    image = {"repositoryName": "own", "imageTag": "latest", "imageManifest": json.dumps(manifest)}
    digest = aws.call("ecr", "PutImage", image)["image"]["imageId"]["imageDigest"]

    machine.type("push", "--base", f"{HOST}/own{tag}")

    assert any(f"--build-arg BASE_IMAGE={HOST}/own@{digest} " in line for line in machine.ran)
    assert any(f"--label org.opencontainers.image.base.digest={digest} " in line for line in machine.ran)


def test_an_image_names_the_digest_of_its_base_and_where_its_source_is_if_they_are_known() -> None:
    digest = f"sha256:{'0' * 64}"
    source = read_source(ROOT, "trainer", f"python@{digest}")
    unknown = replace(read_source(ROOT, "trainer", "python:3.12-slim"), url="")

    def labels(words: list[str]) -> list[str]:
        return [label for flag, label in pairwise(words) if flag == "--label"]

    for builder in engines.PROGRAMS:
        assert labels(engines.build(builder, unknown, "name")) == []
        assert labels(engines.build(builder, replace(source, url="https://example.com/toolkit"), "name")) == [
            "org.opencontainers.image.source=https://example.com/toolkit",
            f"org.opencontainers.image.base.digest={digest}",
        ]


# ---- nothing leaks


def test_the_password_is_in_no_command_line_no_plan_and_no_message(machine: Machine) -> None:
    machine.type("push", "--dry-run=json")
    plan = machine.out
    machine.type("push")

    assert PASSWORD not in plan + machine.out + machine.err
    assert [line.partition("|")[0] for line in machine.ran if PASSWORD in line.partition("|")[0]] == []


@pytest.mark.parametrize("refuses", ["login", "build", "push"])
def test_what_the_builder_refuses_ends_with_a_sentence_and_no_login_stays(refuses: str, machine: Machine) -> None:
    machine.has("docker", refuses=refuses)

    assert machine.type("push") == 6

    words = [line.split()[1] for line in machine.ran]
    assert words.count("logout") == (0 if refuses == "login" else 2)
    said = "docker failed: denied: not today" if refuses == "login" else f"docker {refuses} ended with exit code 1"
    assert machine.err.startswith("error: ") or "denied" in machine.err
    assert said in machine.err
    assert "latest" not in digests()


# ---- dry run


def test_a_dry_run_changes_nothing_and_shows_all(machine: Machine) -> None:
    assert machine.type("push", "--dry-run=full") == 0

    assert machine.ran == []
    assert machine.calls == ["sts:GetCallerIdentity", "ecr:DescribeImages", "ecr:DescribeImages", "ecr:BatchGetImage"]
    assert "  in repository  no\n" in machine.out
    assert f"       4: docker push {URI}:{TAG}\n" in machine.out
    assert "     ecr:PutImage  tag it latest\n" in machine.out


def test_a_dry_run_works_without_an_account(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)

    assert machine.type("push", "--dry-run=full") == 0

    assert "account        not looked up; 123456789012 stands in for it\n" in machine.out
    assert machine.out.splitlines()[-1].startswith("problem: no AWS credentials;")


# ---- build and show


def test_build_makes_an_image_here_and_asks_aws_only_for_its_base(machine: Machine) -> None:
    assert machine.type("build", "--base", "python:3.12-slim") == 0

    (built,) = machine.ran
    tag = read_source(ROOT, "trainer", "python:3.12-slim").tag
    assert f"--tag aws-ddp-toolkit:{tag} " in built
    assert machine.calls == []
    assert machine.out.endswith(
        f"try it: docker run --rm aws-ddp-toolkit:{tag} --model cnn --dataset digits --epochs 1\n"
    )


def test_show_lists_what_the_repository_has(machine: Machine) -> None:
    machine.type("show")
    assert machine.out == f"{REPOSITORY} in us-east-1 is empty; fill it: python -m launch.image push\n"

    machine.type("push")
    machine.type("show")

    assert re.search(rf"^  latest, {TAG}  \d{{4}}-\d\d-\d\d \d\d:\d\d  +[\d,]+ +sha256:", machine.out, re.MULTILINE)


# ---- refusals


@pytest.mark.parametrize(
    ("words", "programs", "code", "remedy"),
    [
        (["build"], [], 2, "python -m launch.image push"),
        (["build", "--builder", "codebuild"], ["docker"], 2, "a builder on this machine"),
        (["build", "--builder", "podman"], ["docker"], 2, "leave --builder out"),
        (["push", "--repository", "other"], ["docker"], 4, "aws ecr create-repository --repository-name other"),
        (["show", "--repository", "a//b"], [], 2, "--repository a//b"),
        (["show", "--repository", "Mine"], [], 2, "--repository Mine"),
    ],
)
def test_an_error_names_the_remedy(
    words: list[str], programs: list[str], code: int, remedy: str, machine: Machine
) -> None:
    machine.has(*programs)

    assert machine.type(*words) == code
    assert machine.err.startswith("error: ")
    assert remedy in machine.err
    assert machine.ran == []


def test_without_a_checkout_there_is_nothing_to_build(machine: Machine, tmp_path: Path) -> None:
    machine.checkout = tmp_path

    assert machine.type("build") == 2

    assert machine.err.startswith(f"error: no Dockerfile in {tmp_path}: ")
    assert "clone it, and run this command there" in machine.err
