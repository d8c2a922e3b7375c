"""Options of `python -m launch.image`; flags and help follow from them."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from launch.aws.names import TOOLKIT
from launch.core.options import DRY_RUN, DryRun, RegionOptions

Target = Literal["trainer", "sagemaker", "launcher", "jupyter"]
Program = Literal["docker", "podman", "buildah"]
Builder = Literal["docker", "podman", "buildah", "codebuild"]


def _check_repository(value: Any) -> Any:
    """https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_CreateRepository.html"""
    part = r"[a-z0-9]+(?:[._-][a-z0-9]+)*"
    if not re.fullmatch(rf"(?=.{{2,256}}$)(?:{part}/)*{part}", str(value)):
        raise ValueError("2 to 256 lower-case letters and digits, with single . _ - or / between them")
    return value


Repository = Annotated[str, BeforeValidator(_check_repository)]


class BuildOptions(RegionOptions):
    target: Target = Field(
        "trainer",
        description="trainer: for EC2, Slurm and this machine; sagemaker: the same as root; launcher: for launch.ec2 "
        "--queue; jupyter: with JupyterLab",
    )
    base: str | None = Field(None, description="base image, best with @sha256:... (default: as in the Dockerfile)")
    builder: Builder | None = Field(
        None,
        description="what builds (default: docker, podman or buildah; codebuild if none is installed, or the upload "
        "from here would take longer)",
    )
    dry_run: DryRun = DRY_RUN


class PushOptions(BuildOptions):
    repository: Repository = Field(TOOLKIT, description="ECR repository; launch.infra creates the default one")
    upload_mbit_s: float = Field(100.0, gt=0, description="this machine's rate to AWS, for the plan's times")
    again: bool = Field(False, description="rebuild on today's base and push, even if the repository has this content")


class ShowOptions(RegionOptions):
    repository: Repository = Field(TOOLKIT, description="ECR repository")
