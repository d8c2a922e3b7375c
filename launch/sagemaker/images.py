"""Which container a job runs in: AWS's newest PyTorch image with kernels for the GPU, or the user's own.  Pure.

infra/sagemaker/images.yaml is the table, with its sources.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from typing import Any

from launch.core.catalog import Instance
from launch.sagemaker.options import SageMakerOptions
from trainer.config import TrainConfig
from trainer.errors import SettingsError

OLDEST_TORCH, OLDEST_PYTHON = (2, 6), (3, 11)

# AWS's tags, such as 2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker or, from 2.11 on, 2.11.0-cu130-amzn2023-sagemaker.
_TAG = re.compile(
    r":(?P<torch>\d+\.\d+)(\.\d+)?-((?P<device>gpu|cpu)-)?(py(?P<python>\d{2,3})-)?(cu(?P<cuda>\d{3})-)?.*$"
)
# What the trainer needs for these settings, beyond its own dependencies.
_TRACKERS = {
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow-skinny", "sqlalchemy", "alembic"),
}


@dataclass(frozen=True)
class Image:
    """uri: as SageMaker wants it; lacks: of the trainer's dependencies; patched_until: None where we do not know.

    known: whether it is of AWS's table, so that the other fields are sure.
    """

    uri: str
    torch: str = ""
    cuda: str = ""
    architectures: tuple[str, ...] = ()
    mpi4py: bool = False
    lacks: tuple[str, ...] = ()
    patched_until: date | None = None
    known: bool = True


def choose(options: SageMakerOptions, instance: Instance, region: str) -> Image:
    """The image of a job.  Raises SettingsError where the table has none for the GPU."""
    images = [(row, _image(row, region)) for row in _table()["images"]]
    if options.image is not None:
        own = _same(options.image, [image for _, image in images])
        # Nobody knows what is in it, so pip is asked for all of them.
        return own or Image(options.image, lacks=_lacking(images), known=False)
    for row, image in images:
        if not row.get("on_request") and _runs_on(image, instance):
            return image
    raise SettingsError(
        f"the toolkit knows no image with kernels for {instance.gpu_model} ({instance.architecture}); give an --image."
    )


def _lacking(images: list[tuple[Mapping[str, Any], Image]]) -> tuple[str, ...]:
    """What some image of AWS's does not have."""
    return tuple(sorted({name for _, image in images for name in image.lacks}))


def _runs_on(image: Image, instance: Instance) -> bool:
    return instance.architecture in image.architectures if instance.is_gpu else not image.architectures


def _same(uri: str, images: list[Image]) -> Image | None:
    """AWS's image that `uri` names, also with a patch number or in another region."""
    if not _is_of_aws(uri):
        return None
    found = [image for image in images if uri.partition("/")[2].startswith(image.uri.partition("/")[2])]
    return replace(found[0], uri=uri) if found else None


def _is_of_aws(uri: str) -> bool:
    """Whether it lies in one of AWS's registries for these images."""
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


def requirements_of(options: SageMakerOptions, image: Image, train: TrainConfig) -> str:
    """The text of requirements.txt: what `image` lacks of what this training needs, pinned."""
    pins = _table()["requirements"]
    wanted = set(image.lacks)
    if options.distribution == "pytorchddp" and not image.mpi4py:
        wanted.add("mpi4py")
    wanted |= {package for setting, packages in _TRACKERS.items() if getattr(train, setting) for package in packages}
    return "".join(f"{name}=={pins[name]}\n" for name in sorted(wanted))


def check_image(uri: str, instance: Instance) -> None:
    """Raises SettingsError if the name of an image tells that it cannot work on `instance`."""
    if uri.startswith("public.ecr.aws/"):
        raise SettingsError(f"--image {uri}: SageMaker takes images from ECR in your region, not from public.ecr.aws.")
    found = _TAG.search(uri)
    if found is None or not _is_of_aws(uri):
        return  # somebody's own, whatever its tag
    _check_age(uri, found)
    if "-sagemaker" not in uri:
        raise SettingsError(f"--image {uri} is AWS's image for EC2, which SageMaker cannot start; take ...-sagemaker.")
    if found["device"] == "cpu" and instance.is_gpu:
        raise SettingsError(f"--image {uri} is for machines without a GPU; take the -gpu- one, or leave --image out.")
    if found["device"] == "gpu" and not instance.is_gpu:
        raise SettingsError(f"--image {uri} is for GPUs, and ml.{instance.name} has none; leave --image out.")
    _check_kernels(uri, found["torch"], instance)


def _check_age(uri: str, found: re.Match[str]) -> None:
    torch = tuple(map(int, found["torch"].split(".")))
    python = found["python"]
    if torch < OLDEST_TORCH or (python and (int(python[0]), int(python[1:])) < OLDEST_PYTHON):
        raise SettingsError(
            f"--image {uri} is too old: the trainer needs PyTorch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} and Python "
            f"{OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer; leave --image out for one that fits the GPU."
        )


def _check_kernels(uri: str, torch: str, instance: Instance) -> None:
    rows = [row for row in _table()["images"] if row["torch"].startswith(f"{torch}.") and "cuda" in row]
    built_for = {architecture for row in rows for architecture in row["architectures"]}
    if instance.is_gpu and built_for and instance.architecture not in built_for:
        raise SettingsError(
            f"--image {uri}: its PyTorch has no kernels for {instance.gpu_model} ({instance.architecture}) of "
            f"ml.{instance.name}; leave --image out for one that has."
        )


def warnings_about(options: SageMakerOptions, image: Image, today: date) -> list[str]:
    """Sentences for who runs in `image`."""
    found = []
    if image.patched_until is not None and image.patched_until < today:
        found.append(f"AWS patches {image.uri.rpartition(':')[2]} no more since {image.patched_until}.")
    if not image.known:
        found.append(
            "the toolkit does not know this image; it must be launch.image's, or needs AWS's sagemaker-training toolkit"
            + (", mpirun and mpi4py." if options.distribution == "pytorchddp" else ".")
        )
    elif options.distribution == "pytorchddp" and not image.mpi4py:
        found.append(f"{image.uri.rpartition(':')[2]} is not made for mpirun; take --distribution torch_distributed.")
    return found


@cache
def _table() -> Mapping[str, Any]:
    # --help needs neither.
    from importlib.resources import files

    import yaml

    content: Mapping[str, Any] = yaml.safe_load(files("infra").joinpath("sagemaker", "images.yaml").read_bytes())
    return content
