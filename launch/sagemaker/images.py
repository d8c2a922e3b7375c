"""The container of a job: AWS's newest PyTorch image with kernels for the GPU, or the user's own.  Pure."""

import re
from collections.abc import Sequence
from datetime import date

from launch.aws import containers
from launch.aws.containers import Image, is_of_aws
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
_TOOLKIT_IMAGE = re.compile(rf"/(?P<name>{TOOLKIT}):(?P<tag>[^/]+)$")


def choose(options: SageMakerOptions, instances: Sequence[Instance], region: str, today: date) -> Image:
    """The image of a job on any of these types.  Raises SettingsError if the table has none for the GPUs."""
    if options.image is None:
        needs_mpi = options.distribution == "pytorchddp"
        return containers.newest(instances, region, today, needs_mpi=needs_mpi)
    # The content of other images is unknown, so pip installs everything that may be missing.
    unknown = Image(options.image, lacks=containers.lacking(), known=False)
    return containers.known(options.image, region) or unknown


def check_image(uri: str, instance: Instance) -> None:
    """Raise SettingsError if the image's name shows that it cannot work on `instance`."""
    if uri.startswith("public.ecr.aws/"):
        raise SettingsError(f"--image {uri}: SageMaker pulls images from ECR in your region, not from public.ecr.aws.")
    _check_target(uri)
    tag = _TAG.search(uri)
    if tag is None or not is_of_aws(uri):
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
    ours = _TOOLKIT_IMAGE.search(uri)
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
    built_for = containers.built_for(torch)
    if instance.architecture is not None and built_for and instance.architecture not in built_for:
        raise SettingsError(
            f"--image {uri}: its PyTorch has no kernels for {instance.gpu_model} ({instance.architecture}) of "
            f"ml.{instance.name}; leave --image out for one that has."
        )


# Our image has a `train` of its own where AWS's lacks what mpirun needs: infra/container/entry.sh.
_NEWER = (
    "  For a newer PyTorch give --distribution torch_distributed, or build on AWS's newest image: "
    "python -m launch.image push --target sagemaker --base {base}"
)


def warnings_about(options: SageMakerOptions, image: Image, today: date) -> list[str]:
    """Warnings about `image` for the user."""
    sentences = []
    needs_mpi = options.distribution == "pytorchddp"
    if text := containers.ending(image, today):
        newer = containers.successor(image) if needs_mpi else ""
        sentences.append(text + (_NEWER.format(base=newer) if newer else ""))
    if not image.known:
        sentences.append(
            "this image is unknown: it must come from launch.image, or contain AWS's sagemaker-training toolkit"
            + (", mpirun and mpi4py." if needs_mpi else ".")
        )
    elif needs_mpi and not image.mpi4py:
        sentences.append(f"{image.tag} is not made for mpirun; give --distribution torch_distributed.")
    return sentences
