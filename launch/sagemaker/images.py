"""The container of a job: AWS's newest PyTorch image with kernels for the GPU, or the user's own.  Pure.

infra/sagemaker/images.yaml is the table, with its sources.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from typing import Any

from launch.aws.names import TOOLKIT
from launch.core.catalog import Instance
from launch.sagemaker.options import SageMakerOptions
from trainer.errors import SettingsError

OLDEST_TORCH, OLDEST_PYTHON = (2, 6), (3, 11)

# AWS's tags, such as 2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker or, from 2.11 on, 2.11.0-cu130-amzn2023-sagemaker.
_TAG = re.compile(
    r":(?P<torch>\d+\.\d+)(\.\d+)?-((?P<device>gpu|cpu)-)?(py(?P<python>\d{2,3})-)?(cu(?P<cuda>\d{3})-)?.*$"
)
# launch.image's own repository and tags: latest, sagemaker, jupyter, TARGET-DIGEST.
_OURS = re.compile(rf"/(?P<name>{TOOLKIT}):(?P<tag>[^/]+)$")


@dataclass(frozen=True)
class Image:
    """A container image."""

    uri: str
    torch: str = ""
    cuda: str = ""
    architectures: tuple[str, ...] = ()
    mpi4py: bool = False
    lacks: tuple[str, ...] = ()  # the trainer's dependencies that it does not contain
    patched_until: date | None = None  # None if unknown
    known: bool = True  # in the toolkit's table of AWS's images, so the other fields are reliable


def choose(options: SageMakerOptions, instances: Sequence[Instance], region: str) -> Image:
    """The image of a job on any of these types.  Raises SettingsError if the table has none for the GPUs."""
    images = [(row, _image(row, region)) for row in _table()["images"]]
    if options.image is not None:
        known = _same(options.image, [image for _, image in images])
        # The content of other images is unknown, so pip installs everything that may be missing.
        return known or Image(options.image, lacks=_lacking(images), known=False)
    for row, image in images:
        if not row.get("on_request") and all(_runs_on(image, instance) for instance in instances):
            return image
    gpus = " and ".join(f"{instance.gpu_model} ({instance.architecture})" for instance in instances)
    raise SettingsError(f"no known image has kernels for {gpus}; give an --image.")


def _lacking(images: list[tuple[Mapping[str, Any], Image]]) -> tuple[str, ...]:
    """The dependencies that at least one of AWS's images lacks."""
    return tuple(sorted({name for _, image in images for name in image.lacks}))


def _runs_on(image: Image, instance: Instance) -> bool:
    if instance.architecture is None:  # it has no GPU, or is not in the catalog
        return bool(image.architectures) == instance.is_gpu
    return instance.architecture in image.architectures


def _same(uri: str, images: list[Image]) -> Image | None:
    """The AWS image of `uri`, which may have a patch number or be in another region."""
    if not _is_of_aws(uri):
        return None
    path = uri.partition("/")[2]
    matches = [image for image in images if path.startswith(image.uri.partition("/")[2])]
    return replace(matches[0], uri=uri) if matches else None


def _is_of_aws(uri: str) -> bool:
    """Whether the image is in one of AWS's registries."""
    registries = _table()["registries"]
    return uri.partition(".dkr.ecr.")[0] in {registries["default"], *registries["exceptions"].values()}


def _image(row: Mapping[str, Any], region: str) -> Image:
    repository = row.get("repository", "pytorch-training")
    return Image(
        f"{registry(region)}/{repository}:{row['tag']}",
        row["torch"],
        row.get("cuda", ""),
        tuple(row.get("architectures", ())),
        row["mpi4py"],
        tuple(row["lacks"]),
        row["patched_until"],
    )


def registry(region: str) -> str:
    """The host name of AWS's images in `region`."""
    registries = _table()["registries"]
    account = registries["exceptions"].get(region, registries["default"])
    suffixes = registries["dns_suffix"]
    return f"{account}.dkr.ecr.{region}.{suffixes.get(region.partition('-')[0], suffixes['default'])}"


def check_image(uri: str, instance: Instance) -> None:
    """Raise SettingsError if the image's name shows that it cannot work on `instance`."""
    if uri.startswith("public.ecr.aws/"):
        raise SettingsError(f"--image {uri}: SageMaker pulls images from ECR in your region, not from public.ecr.aws.")
    _check_target(uri)
    tag = _TAG.search(uri)
    if tag is None or not _is_of_aws(uri):
        return  # the user's own image, with any tag
    _check_age(uri, tag)
    # Images without either ending are for SageMaker, such as those that its SDK retrieves, or Hugging Face's.
    if re.search(r"-ec2(-|$)", uri):
        raise SettingsError(f"--image {uri} is AWS's image for EC2; SageMaker needs the one that ends in -sagemaker.")
    if tag["device"] == "cpu" and instance.is_gpu:
        raise SettingsError(f"--image {uri} is for machines without a GPU; take the -gpu- one, or leave --image out.")
    if tag["device"] == "gpu" and not instance.is_gpu:
        raise SettingsError(f"--image {uri} is for GPUs, and ml.{instance.name} has none; leave --image out.")
    _check_kernels(uri, tag["torch"], instance)


def _check_target(uri: str) -> None:
    """Raise SettingsError for a target of launch.image that is not root, which owns /opt/ml."""
    ours = _OURS.search(uri)
    if ours is not None and ours["tag"].partition("-")[0] in ("latest", "trainer", "jupyter"):
        target = "jupyter" if ours["tag"].startswith("jupyter") else "trainer"
        raise SettingsError(
            f"--image {uri} is the target {target} of launch.image, which is not root and so cannot write to "
            "SageMaker's folders; python -m launch.image push --target sagemaker, and give "
            f"...{ours['name']}:sagemaker."
        )


def _check_age(uri: str, tag: re.Match[str]) -> None:
    torch = tuple(map(int, tag["torch"].split(".")))
    python = tag["python"]
    if torch < OLDEST_TORCH or (python and (int(python[0]), int(python[1:])) < OLDEST_PYTHON):
        raise SettingsError(
            f"--image {uri} is too old: the trainer needs PyTorch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} and Python "
            f"{OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer; leave --image out for one that fits the GPU."
        )


def _check_kernels(uri: str, torch: str, instance: Instance) -> None:
    rows = [row for row in _table()["images"] if row["torch"].startswith(f"{torch}.") and "cuda" in row]
    built_for = {architecture for row in rows for architecture in row["architectures"]}
    if instance.architecture is not None and built_for and instance.architecture not in built_for:
        raise SettingsError(
            f"--image {uri}: its PyTorch has no kernels for {instance.gpu_model} ({instance.architecture}) of "
            f"ml.{instance.name}; leave --image out for one that has."
        )


def warnings_about(options: SageMakerOptions, image: Image, today: date) -> list[str]:
    """Warnings about `image` for the user."""
    sentences = []
    tag, needs_mpi = image.uri.rpartition(":")[2], options.distribution == "pytorchddp"
    if image.patched_until is not None and image.patched_until < today:
        sentences.append(f"{tag} has had no security patches from AWS since {image.patched_until}.")
    if not image.known:
        sentences.append(
            "this image is unknown: it must come from launch.image, or contain AWS's sagemaker-training toolkit"
            + (", mpirun and mpi4py." if needs_mpi else ".")
        )
    elif needs_mpi and not image.mpi4py:
        sentences.append(f"{tag} is not made for mpirun; give --distribution torch_distributed.")
    return sentences


def inference_image(region: str) -> str:
    """AWS's newest image for serving PyTorch models on a CPU: the models are small, and every endpoint has one."""
    return f"{registry(region)}/{_table()['inference']}"


@cache
def _table() -> Mapping[str, Any]:
    # Imported here to keep --help fast.
    from importlib.resources import files

    import yaml

    content: Mapping[str, Any] = yaml.safe_load(files("infra").joinpath("sagemaker", "images.yaml").read_bytes())
    return content
