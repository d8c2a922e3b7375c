"""A job on machines of a type: how many images of which size, in which precision.  Pure."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from launch.core.catalog import Instance
from launch.core.estimate.formulas import Layout, Work
from launch.core.estimate.rates import Kind
from launch.core.estimate.tables import Cost, DataSet, cost, data_set
from launch.core.estimate.volume import NewVolume
from trainer.batches import batches_at, side_at
from trainer.config import TrainConfig
from trainer.errors import SettingsError

GRADIENT_BYTES = 4
FIRST_BF16 = 80  # the first compute capability with bf16
# The synthetic set's evaluation images as a share of its training images, and its image size; and a folder's.
SYNTHETIC_EVALUATION, SYNTHETIC_PX, FOLDER_PX = 0.1, 32, 224
# What trainer.prepare makes of ImageNet: the shorter side, and the mean size, measured on a sample (tests/bench).
PREPARED_PX, PREPARED_BYTES = 256, 30_000.0
SMALL_PX = 400
# The share of a gradient that PowerSGD sends per rank of its approximation: rows and columns, not their product.
POWERSGD_SHARE = 0.01


@dataclass(frozen=True)
class Images:
    """The user's own data set.  is_small: prepared, with the shorter side limited to SMALL_PX or less."""

    train: int
    image_bytes: float = 110_000.0
    evaluation: int | None = None
    is_small: bool = False


@dataclass(frozen=True)
class Training:
    """notes: caveats of these numbers, for a reader; volume: a node's own, if it reads from one that is new."""

    config: TrainConfig
    layout: Layout
    data: DataSet
    cost: Cost
    kind: Kind
    notes: tuple[str, ...] = ()
    volume: NewVolume | None = None

    @property
    def px(self) -> int:
        return self.config.image_size or self.data.px

    @property
    def evaluating(self) -> float:
        """Evaluations per epoch."""
        return 1 / min(self.config.eval_every, self.config.epochs)

    @property
    def grows(self) -> bool:
        """Whether images begin smaller, as --image-size-start has it; those that are kept on the device do not."""
        return self.config.image_size_start is not None and self.data.format == "jpeg"

    def share_of_pixels(self, epoch: int) -> float:
        """Pixels of an image in that epoch, as a share of those at full size."""
        first = self.config.image_size_start if self.grows else None
        return (side_at(epoch, self.config.epochs, first, self.px) / self.px) ** 2

    def work(self, epoch: int = 0) -> Work:
        """One update of that epoch.  Raises SettingsError where a global batch does not divide."""
        batches = batches_at(self.config, epoch, self.layout.replicas)
        share = _sent_share(self.config)
        sent = self.cost.parameters * GRADIENT_BYTES * share
        return Work(
            batches.per_replica,
            batches.accumulate,
            wire_bytes=sent,
            bucket_bytes=self.config.bucket_cap_mb * 2**20 * share,
            image_bytes=self.data.image_bytes if self.data.format == "jpeg" else 0.0,
            strategy=strategy_of(self.config, self.layout),
            reads_from="S3" if self.config.data_url else "EBS",
        )

    def updates(self, epoch: int = 0) -> float:
        work = self.work(epoch)
        return self.data.train / (work.batch * work.accumulate * self.layout.replicas)

    @property
    def read_gib(self) -> float:
        """The GiB that a node reads in all epochs, or in the updates of --max-steps; an image counts each time."""
        images = self.config.epochs * self.data.train
        if self.config.max_steps is not None:
            work = self.work()
            images = min(images, self.config.max_steps * work.batch * work.accumulate * self.layout.replicas)
        return images / self.layout.nodes * self.data.image_bytes / 2**30


def training(
    config: TrainConfig, instance: Instance, nodes: int, *, gpus: int | None = None, on_ebs: bool = True,
    images: Images | None = None, volume: NewVolume | None = None,
) -> Training:  # fmt: skip
    """The training of `config` on `nodes` nodes.  gpus: GPUs or CPU ranks of each; None: all GPUs, or one rank.

    Raises SettingsError for an unknown model or data set.
    """
    gpus = 1 if config.strategy == "single" else gpus or max(1, instance.gpus)
    data = _data(config, images)
    scaled = cost(config.model, config.image_size or data.px)
    kind = Kind(
        model=config.model,
        half=_is_half(config, instance),
        emulated=is_emulated(config, instance),
        decodes=data.format == "jpeg",
        is_small=data.is_small,
        reads_ebs=on_ebs and data.format == "jpeg",
        optimizer=config.optimizer,
        threads=config.threads or max(1, instance.vcpus // gpus),
    )
    notes = [*_notes(config, instance, kind, scaled.note), *_growth(config, data)]
    new = volume if kind.reads_ebs else None
    return Training(config, Layout(nodes, gpus), data, scaled.cost, kind, tuple(notes), new)


def _notes(config: TrainConfig, instance: Instance, kind: Kind, scaled: str) -> list[str]:
    """Caveats for a reader.  scaled: how the model's cost was found, where it is not in the table."""
    notes = [scaled] if scaled else []
    if kind.emulated:
        notes.append(
            f"{instance.gpu_model or 'this CPU'} does not compute in {config.precision}, so that it takes longer than "
            "fp32; take another --precision"
        )
    if config.compile:
        notes.append("the forecast leaves torch.compile out, which makes small batches faster")
    if config.comm_hook == "powersgd":
        notes.append("PowerSGD is taken to send a hundredth of the gradients per rank; its own work is not counted")
    return notes


def _growth(config: TrainConfig, data: DataSet) -> list[str]:
    if config.image_size_start is None or data.format != "jpeg":
        return []
    full = config.image_size or data.px
    return [f"an epoch is one at {full} px; while images grow from {config.image_size_start} px, epochs are shorter"]


def _data(config: TrainConfig, images: Images | None) -> DataSet:
    if config.dataset == "synthetic":
        count = config.synthetic_images
        evaluation = ceil(count * SYNTHETIC_EVALUATION)
        return DataSet(count, evaluation, 0.0, SYNTHETIC_PX, "resident", config.synthetic_classes)
    known = data_set(config.dataset)
    if images:
        whole = known or _folder(config)
        evaluation = whole.evaluation if images.evaluation is None else images.evaluation
        return replace(whole, train=images.train, image_bytes=images.image_bytes, evaluation=evaluation,
                       is_small=images.is_small)  # fmt: skip
    if known is None:
        raise SettingsError(
            f"no forecast for {config.dataset}: its number of images is unknown; `python -m launch.forecast` takes "
            "--images."
        )
    return known


def _folder(config: TrainConfig) -> DataSet:
    """The user's folder of images: like ImageNet, or decoded once if its images are small."""
    small = config.image_size is not None and config.image_size <= 64
    kind: Literal["jpeg", "resident"] = "resident" if small else "jpeg"
    return DataSet(0, 0, 0.0, FOLDER_PX, kind)


def _is_half(config: TrainConfig, instance: Instance) -> bool:
    """Whether it computes in 16 bits, as auto does on every GPU of the catalog and on CPUs with AMX."""
    if config.amp is False or config.precision == "fp32":
        return False
    return config.precision != "auto" or instance.is_gpu or instance.amx


def is_emulated(config: TrainConfig, instance: Instance) -> bool:
    """Whether the precision that is asked for is not in the hardware: bf16 below sm_80, and on a CPU all but AMX's."""
    if not _is_half(config, instance) or config.precision == "auto":
        return False
    if not instance.is_gpu:
        return not (instance.amx and config.precision == "bf16")
    return config.precision == "bf16" and int((instance.architecture or "sm_80").removeprefix("sm_")) < FIRST_BF16


def strategy_of(config: TrainConfig, layout: Layout) -> Literal["single", "dp", "ddp", "fsdp"]:
    if layout.replicas == 1 or config.strategy == "single":
        return "single"
    return "ddp" if config.strategy == "auto" else config.strategy


def _sent_share(config: TrainConfig) -> float:
    return {"fp16": 0.5, "bf16": 0.5, "powersgd": POWERSGD_SHARE * config.powersgd_rank}.get(config.comm_hook, 1.0)
