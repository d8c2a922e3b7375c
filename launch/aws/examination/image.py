"""The container: whether it exists, for which processor it was built, and whether its CUDA fits the GPU."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from launch.aws.client import Aws
from launch.aws.examination.case import POLICY, Case, Verdict, missing, ok, unknown
from launch.aws.lookup import NOT_FOUND, PLACE, image_at
from launch.core.catalog import Instance
from launch.core.errors import AwsError
from trainer.errors import one_line

PLATFORM = "linux/amd64"  # of every instance type in the catalog
PUSH = "python -m launch.image push"
# What a damaged description raises: ECR does not check it.
_DAMAGE = (ValueError, TypeError, AttributeError, RecursionError)
# A GPU's architecture -> the first CUDA version with kernels for it, and the first later one without.
# NVIDIA's release notes: https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ (13.0 drops Maxwell to Volta).
_CUDA_FOR: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "sm_70": ((9, 0), (13, 0)),
    "sm_75": ((10, 0), (99, 0)),
    "sm_80": ((11, 0), (99, 0)),
    "sm_86": ((11, 1), (99, 0)),
    "sm_89": ((11, 8), (99, 0)),
    "sm_90": ((11, 8), (99, 0)),
    "sm_100": ((12, 8), (99, 0)),
    "sm_120": ((12, 8), (99, 0)),
}
# CUDA's major version -> the oldest driver that runs it, by minor-version compatibility:
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_DRIVER = {11: 450, 12: 525, 13: 580}


@dataclass(frozen=True)
class Content:
    """What an image's configuration states."""

    platform: str  # such as linux/amd64
    cuda: tuple[int, int] | None  # None if the image names no version


def examined(case: Case[Any], uri: str, instance: Instance, remedy: str) -> Iterator[Verdict]:
    """Whether the image at `uri` can run on the type.  remedy: how to push one that can."""
    place = PLACE.fullmatch(uri)
    if place is None:
        yield unknown(f"{uri} is not in an AWS registry, so its contents are not checked")
        return
    content = _content(case, place)
    if content is None:
        yield missing(f"{uri} has no image for {PLATFORM}, which the instance types need", remedy)
        return
    problem = _misfit(content, instance)
    if content.platform != PLATFORM:
        fix = f"{remedy} on an x86 machine, or --builder codebuild"
        yield missing(f"{uri} is for {content.platform}; the instance types are {PLATFORM}", fix)
    elif problem:
        yield missing(
            problem, "build the image on another BASE_IMAGE (infra/container.md), or use another --instance-type"
        )
    else:
        yield ok(f"{_short(uri)}: {content.platform}{_cuda(content)}")


def _short(uri: str) -> str:
    """aws-ddp-toolkit@sha256:0123456789ab."""
    return re.sub(r"(@sha256:\w{12})\w+", r"\1", uri.rpartition("/")[2])


def _cuda(content: Content) -> str:
    if content.cuda is None:
        return ", CUDA version not stated"
    major, minor = content.cuda
    return f", CUDA {major}.{minor}, which needs driver {_DRIVER.get(major, '?')} or newer"


def _misfit(content: Content, instance: Instance) -> str:
    """Why the image's CUDA cannot use the type's GPU; empty if it can, or if that is not known."""
    if content.cuda is None or instance.architecture is None or instance.architecture not in _CUDA_FOR:
        return ""
    first, gone = _CUDA_FOR[instance.architecture]
    if first <= content.cuda < gone:
        return ""
    major, minor = content.cuda
    return f"the image's CUDA {major}.{minor} has no kernels for {instance.gpu_model} ({instance.architecture})"


def _content(case: Case[Any], place: re.Match[str]) -> Content | None:
    """The content in the image's configuration; None if a list has no image for linux/amd64."""
    aws = case.aws if place["region"] == case.region else Aws(place["region"], policy=POLICY)
    manifest = _manifest(aws, place)
    if "manifests" in manifest:
        rows = [row for row in manifest["manifests"] if _platform(row.get("platform", {})) == PLATFORM]
        if not rows:
            return None
        manifest = _manifest(aws, place, {"imageDigest": rows[0]["digest"]})
    where = {"registryId": place["account"], "repositoryName": place["name"]}
    layer = {**where, "layerDigest": manifest["config"]["digest"]}
    url = aws.call("ecr", "GetDownloadUrlForLayer", layer)["downloadUrl"]
    try:
        return content_of(json.loads(case.read(url)))
    except _DAMAGE as error:
        words = f"the image's description is damaged: {one_line(error, 100)}"
        raise AwsError(words, "NotJson", "GetDownloadUrlForLayer") from error


def _manifest(aws: Aws, place: re.Match[str], image_id: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Raises AwsError if there is none."""
    image = image_at(aws, place, image_id)
    if not image:
        name = place["digest"] or place["tag"] or "latest"
        raise AwsError(f"{place['name']} has no image {name}", NOT_FOUND[0], "BatchGetImage")
    manifest: dict[str, Any] = json.loads(image["imageManifest"])
    return manifest


def content_of(config: Mapping[str, Any]) -> Content:
    """Reads an image's configuration.  config: as in https://github.com/opencontainers/image-spec, config.md."""
    details = config.get("config") or {}
    env = dict(line.partition("=")[::2] for line in details.get("Env") or ())
    labels = details.get("Labels") or {}
    named = env.get("CUDA_VERSION") or _of_tag(labels.get("org.opencontainers.image.base.name", ""))
    version = re.match(r"(\d+)\.(\d+)", named)
    return Content(_platform(config), (int(version[1]), int(version[2])) if version else None)


def _of_tag(base: str) -> str:
    """13.0 for a base such as pytorch-training:2.10.0-gpu-py313-cu130-ubuntu22.04, or pytorch:2.9.0-cuda13.0."""
    short = re.search(r"-cu(\d{2})(\d)\b", base)
    if short:
        return f"{short[1]}.{short[2]}"
    long = re.search(r"-cuda(\d+\.\d+)", base)
    return long[1] if long else ""


def _platform(row: Mapping[str, Any]) -> str:
    return f"{row.get('os', 'linux')}/{row.get('architecture', '?')}"
