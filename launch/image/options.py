"""What `python -m launch.image` can be asked for; flags and help follow from it."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from launch.core.names import TOOLKIT
from launch.core.options import RegionOptions

Target = Literal["trainer", "sagemaker", "jupyter"]
Program = Literal["docker", "podman", "buildah"]
Builder = Literal["docker", "podman", "buildah", "codebuild"]


def _named(value: Any) -> Any:
    """As ECR wants it: https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_CreateRepository.html"""
    part = r"[a-z0-9]+(?:[._-][a-z0-9]+)*"
    if not re.fullmatch(rf"(?=.{{2,256}}$)(?:{part}/)*{part}", str(value)):
        raise ValueError("two small letters or digits at least; between them . _ - and /")
    return value


Repository = Annotated[str, BeforeValidator(_named)]


class BuildOptions(RegionOptions):
    target: Target = Field("trainer", description="trainer: EC2, Slurm, here; sagemaker: that as root; jupyter: a lab")
    base: str | None = Field(None, description="image to build on, best with @sha256:...; none: as the Dockerfile says")
    builder: Builder | None = Field(
        None, description="what builds; none: the first of these that is here, CodeBuild else"
    )
    dry_run: bool | Literal["json"] = Field(
        False, description="print what would be done and do nothing; --dry-run=json for programs"
    )


class PushOptions(BuildOptions):
    repository: Repository = Field(TOOLKIT, description="of the account's registry; launch.infra makes the default one")
    again: bool = Field(False, description="build and push also if the same content is there: its base was patched")


class ShowOptions(RegionOptions):
    repository: Repository = Field(TOOLKIT, description="of the account's registry")
