"""AWS's own PyTorch containers, and the trainer for those that lack it.  Pure.

infra/images.yaml has the containers, with sources.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache
from importlib.abc import Traversable
from importlib.resources import files
from typing import Any

from launch.core.catalog import Instance
from launch.core.source.archive import Archive, Member, pack
from launch.core.training.base import Training
from trainer.errors import SettingsError

WARN_BEFORE = timedelta(days=90)  # the end of AWS's patches
# AWS's PyTorch images for GPUs, compressed: 9 to 10, by github.com/aws/deep-learning-containers, issue 3165.
COMPRESSED_GB = 10.0


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

    @property
    def tag(self) -> str:
        return self.uri.rpartition(":")[2]


def newest(instances: Sequence[Instance], region: str, today: date, *, needs_mpi: bool = False) -> Image:
    """The newest image with kernels for all of these types that AWS patches today, or else the newest.

    Images to use on request only come after the others, and not at all where mpirun is needed.
    Raises SettingsError if none has the kernels.
    """
    rows = [row for row in _table()["images"] if not (needs_mpi and row.get("on_request"))]
    rows.sort(key=lambda row: (row["patched_until"] < today, row.get("on_request", False)))
    for image in (_image(row, region) for row in rows):
        if all(_runs_on(image, instance) for instance in instances):
            return image
    gpus = " and ".join(f"{instance.gpu_model} ({instance.architecture})" for instance in instances)
    raise SettingsError(f"no known image has kernels for {gpus}; give an --image.")


def known(uri: str, region: str) -> Image | None:
    """AWS's image of that URI, perhaps with a patch number or in another region; None if it is not in the table."""
    if not is_of_aws(uri):
        return None
    path = uri.partition("/")[2]
    images = (_image(row, region) for row in _table()["images"])
    return next((replace(one, uri=uri) for one in images if path.startswith(one.uri.partition("/")[2])), None)


def ending(image: Image, today: date) -> str:
    """A warning of the end of AWS's patches; empty until 90 days before it."""
    until = image.patched_until
    if until is None or today < until - WARN_BEFORE:
        return ""
    if until < today:
        return f"{image.tag} has had no security patches from AWS since {until}."
    return f"{image.tag} gets security patches from AWS until {until} only."


def successor(image: Image) -> str:
    """The URI of AWS's newest image for the same GPUs; empty if there is none newer."""
    host, _, path = image.uri.partition("/")
    for row in _table()["images"]:
        if image.architectures and set(image.architectures) <= set(row.get("architectures", ())):
            newer = f"{row.get('repository', 'pytorch-training')}:{row['tag']}"
            return "" if path.startswith(newer) else f"{host}/{newer}"
    return ""


def lacking() -> tuple[str, ...]:
    """The trainer's dependencies that at least one of AWS's images lacks."""
    return tuple(sorted({name for row in _table()["images"] for name in row["lacks"]}))


def built_for(torch: str) -> set[str]:
    """The architectures that AWS's GPU images of that version of torch, such as 2.8, have kernels for."""
    rows = [row for row in _table()["images"] if row["torch"].startswith(f"{torch}.") and "cuda" in row]
    return {architecture for row in rows for architecture in row["architectures"]}


def is_of_aws(uri: str) -> bool:
    """Whether the image is in one of AWS's registries."""
    registries = _table()["registries"]
    return uri.partition(".dkr.ecr.")[0] in {registries["default"], *registries["exceptions"].values()}


def registry(region: str) -> str:
    """The host name of AWS's images in `region`."""
    registries = _table()["registries"]
    account = registries["exceptions"].get(region, registries["default"])
    suffixes = registries["dns_suffix"]
    return f"{account}.dkr.ecr.{region}.{suffixes.get(region.partition('-')[0], suffixes['default'])}"


def in_region(uri: str, region: str) -> str:
    """The image of AWS's in the region's own registry; any other URI as it is."""
    return f"{registry(region)}/{uri.partition('/')[2]}" if is_of_aws(uri) else uri


def inference_image(region: str) -> str:
    """AWS's newest image for serving PyTorch models on a CPU: the models are small, and every endpoint has one."""
    return f"{registry(region)}/{_table()['inference']}"


def _runs_on(image: Image, instance: Instance) -> bool:
    if instance.architecture is None:  # it has no GPU, or is not in the catalog
        return bool(image.architectures) == instance.is_gpu
    return instance.architecture in image.architectures


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


@cache
def _table() -> Mapping[str, Any]:
    # Imported here to keep --help fast.
    from importlib.resources import files

    import yaml

    content: Mapping[str, Any] = yaml.safe_load(files("infra").joinpath("images.yaml").read_bytes())
    return content


LACKING = "sagemaker"  # the lock with what AWS's images may lack
PACKAGES = "packages.txt"  # the name of that list in the archive


def package_files(package: str, suffixes: tuple[str, ...] = (".py",)) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of a package with one of these suffixes."""
    yield from _files_in(files(package), package, suffixes)


def _files_in(folder: Traversable, name: str, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        inside = f"{name}/{item.name}"
        if item.is_dir():
            yield from _files_in(item, inside, suffixes)
        elif item.name.endswith(suffixes):
            yield inside, item.read_bytes()


def toolkit(train: Training, lacks: Collection[str]) -> Archive:
    """The trainer with the list of packages that a container lacks for this training: `lacks`, and its trackers'."""
    names = {*lacks, *(["obstore"] if train.data_url else [])}
    text = requirements(names) + tracking(train.trackers)
    return pack(
        [Member(PACKAGES, text.encode()), *(Member(name, content) for name, content in package_files("trainer"))]
    )


def requirements(names: Collection[str]) -> str:
    """The pinned requirements of these packages without their dependencies, with hashes."""
    pinned = lock(LACKING)
    return "".join(pinned[_canonical(name)] for name in sorted(names))


def tracking(trackers: Collection[str]) -> str:
    """As requirements(), for trackers with their dependencies."""
    pinned = {name: line for tracker in trackers for name, line in lock(f"tracker-{tracker}").items()}
    return "".join(line for _, line in sorted(pinned.items()))


@cache
def lock(name: str) -> dict[str, str]:
    """{package: its requirement, with its lines of hashes} of infra/locks/NAME.txt."""
    text = files("infra").joinpath("locks", f"{name}.txt").read_text()
    rows = re.findall(r"^(([\w.-]+)==.*(?:\n[ \t]+--hash=.*)*\n)", text, re.MULTILINE)
    return {_canonical(name): requirement for requirement, name in rows}


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
