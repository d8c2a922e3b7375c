"""What an image is made of, and that the Dockerfile says the same."""

import re
import shutil
import subprocess
from datetime import date
from pathlib import Path
from typing import get_args

import pytest

from launch.core.catalog import find
from launch.image import engines
from launch.image.options import Target
from launch.image.source import read_source
from launch.sagemaker.images import choose
from launch.sagemaker.options import SageMakerOptions
from tests.conftest import ROOT
from trainer.errors import SettingsError


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what an image is made of, and more."""
    for name in ("Dockerfile", ".dockerignore", "LICENSE", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("trainer", "launch", "infra", "notebooks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_same_content_has_the_same_tag(checkout: Path) -> None:
    (checkout / "trainer/__pycache__").mkdir(exist_ok=True)
    (checkout / "trainer/__pycache__/loop.pyc").write_text("compiled")
    (checkout / "README.md").write_text("other words")

    assert read_source(checkout, "trainer", None).tag == read_source(ROOT, "trainer", None).tag
    assert re.fullmatch(r"trainer-[0-9a-f]{16}", read_source(ROOT, "trainer", None).tag)


@pytest.mark.parametrize("name", ["Dockerfile", "infra/container/entry.sh"])
def test_other_content_has_another_tag(name: str, checkout: Path) -> None:
    before = {target: read_source(checkout, target, None).tag for target in get_args(Target)}

    with (checkout / name).open("a") as file:
        file.write("\n# more\n")

    assert all(read_source(checkout, target, None).tag != tag for target, tag in before.items())
    assert read_source(checkout, "trainer", "python:3.12-slim").tag != read_source(checkout, "trainer", None).tag


def test_the_launcher_has_a_base_of_its_own_and_changes_with_what_launches(checkout: Path) -> None:
    before = read_source(checkout, "launcher", None)
    assert (before.base, before.alias) == ("public.ecr.aws/docker/library/python:3.12-slim", "launcher")
    own = read_source(checkout, "launcher", "python:3.13-slim")
    assert "LAUNCHER_BASE=python:3.13-slim" in engines.build("docker", own, "name")

    (checkout / "launch/core/plan.py").write_text("")

    assert read_source(checkout, "launcher", None).tag != before.tag


def test_the_base_is_of_the_regions_own_registry_and_the_tag_of_all() -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg-ecr-paths/sagemaker-algo-docker-registry-paths.html"""
    here, there = (read_source(ROOT, "trainer", None, region) for region in ("us-east-1", "ap-east-1"))
    assert here.base.startswith("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:")
    assert there.base == here.base.replace("763104351884.dkr.ecr.us-east-1", "871362719292.dkr.ecr.ap-east-1")
    assert (there.tag, here.own_base, there.own_base) == (here.tag, False, True)
    assert f"BASE_IMAGE={there.base}" in engines.build("docker", there, "name")
    assert read_source(ROOT, "trainer", here.base, "ap-east-1").base == here.base  # as it was given


def test_what_only_launches_is_part_of_the_lab_alone(checkout: Path) -> None:
    trainer, lab = (read_source(checkout, target, None).tag for target in ("trainer", "jupyter"))

    (checkout / "launch/core/plan.py").write_text("")

    assert read_source(checkout, "trainer", None).tag == trainer
    assert read_source(checkout, "jupyter", None).tag != lab


@pytest.mark.parametrize("name", ["trainer/.env", "infra/container/push.json"])
def test_no_key_that_lies_about_in_the_checkout_is_sent(name: str, checkout: Path) -> None:
    (checkout / name).write_text(f'{{"token": "ghp_{"a1B2" * 9}"}}')

    with pytest.raises(SettingsError, match=rf"{Path(name).name} looks like a key"):
        read_source(checkout, "trainer", None)


@pytest.mark.parametrize("name", ["Source", '"Source Code"'])
def test_where_the_source_is_the_checkout_says_itself(name: str, checkout: Path) -> None:
    project = (checkout / "pyproject.toml").read_text().split("[project.urls]")[0]
    (checkout / "pyproject.toml").write_text(f"{project}\n[project.urls]\nHomepage = 'https://example.com'\n")
    assert read_source(checkout, "trainer", None).url == ""

    with (checkout / "pyproject.toml").open("a") as file:
        file.write(f"{name} = 'https://example.com/toolkit'\n")

    assert read_source(checkout, "trainer", None).url == "https://example.com/toolkit"


def test_all_that_the_dockerfile_copies_is_counted_and_let_in() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    counted = {name for target in get_args(Target) for name in read_source(ROOT, target, None).names}

    for name in (word for word in copied if not word.startswith(("--", "/build/"))):
        assert any(name == place or name.startswith(f"{place}/") for place in let_in), name
        assert any(one == name or one.startswith(f"{name.rstrip('/')}/") for one in counted), name


def _stages(text: str) -> dict[str, tuple[str, str]]:
    """Of each stage of the Dockerfile: what it begins with, and its lines."""
    parts = re.split(r"^FROM (\S+) AS (\S+)$", text, flags=re.MULTILINE)[1:]
    return {name: (base, lines) for base, name, lines in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


# What is in no address of an index, and may be read by everybody who has the image.
HARMLESS = {"PIP_DISABLE_PIP_VERSION_CHECK", "PIP_BREAK_SYSTEM_PACKAGES", "SOURCE_DATE_EPOCH", "REVISION", "VERSION",
            "BASE_IMAGE", "LAUNCHER_BASE"}  # fmt: skip


@pytest.mark.parametrize("target", get_args(Target))
def test_no_stage_of_an_image_gets_an_index_that_may_have_a_password(target: str) -> None:
    """docker history shows everybody who has the image each ARG of the stages that it consists of with its value.

    https://docs.docker.com/reference/build-checks/secrets-used-in-arg-or-env/
    """
    stages, place = _stages((ROOT / "Dockerfile").read_text()), target
    while place in stages:
        place, lines = stages[place]
        assert set(re.findall(r"^ARG (\w+)", lines, re.MULTILINE)) <= HARMLESS
        for command in re.findall(r"pip install.*", lines.replace("\\\n", " ")):
            assert all("--no-index" in part for part in command.split("&&")), command


def test_the_base_is_the_image_that_launch_sagemaker_takes() -> None:
    options = SageMakerOptions(instance_type="ml.g5.2xlarge")

    chosen = choose(options, [find("g5.2xlarge")], "us-east-1", date(2026, 11, 28))

    assert read_source(ROOT, "trainer", None).base == chosen.uri


@pytest.mark.parametrize(
    ("base", "started"),
    [
        ((), "python -m trainer.container"),  # without AWS's toolkit
        (("train",), "train"),  # with it, in an image of the user's own
        (("train", "start_with_right_hostname.sh"), "python -m trainer.container"),  # AWS's from 2.11 on
        (("train", "start_with_right_hostname.sh", "jq"), "bash -m start_with_right_hostname.sh train"),
    ],
)
def test_sagemakers_command_starts_what_the_base_can_run(base: tuple[str, ...], started: str, tmp_path: Path) -> None:
    """AWS's newer images lack jq, docker/pytorch/Dockerfile.cuda: https://github.com/aws/deep-learning-containers"""
    for program in (*base, "python", "bash"):
        (tmp_path / program).write_text('#!/bin/sh\necho "${0##*/}" "$@"\n')
        (tmp_path / program).chmod(0o755)
    command = ["/bin/sh", ROOT / "infra/container/entry.sh", "train"]
    ran = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == started
