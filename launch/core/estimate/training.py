"""A job on machines of a type, and its time from the first epoch to the last.  Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf
from typing import Literal

from launch.core.catalog import Instance
from launch.core.estimate.formulas import FORWARD, Layout, Side, Speeds, Step, Work, figure, step
from launch.core.estimate.rates import Cost, DataSet, Kind, cost, data_set, table
from launch.core.estimate.volume import Initialization, NewVolume
from trainer.config import TrainConfig, batches_at, side_at
from trainer.errors import SettingsError

GRADIENT_BYTES = 4
FIRST_BF16 = 80  # the first compute capability with bf16
# Of the synthetic set: evaluation images as a share of training images, and the image size; the same of a folder.
SYNTHETIC_EVALUATION, SYNTHETIC_PX, FOLDER_PX = 0.1, 32, 224
# The mean size of ImageNet's images as trainer.prepare makes them, measured on a sample (tests/bench).
PREPARED_BYTES = 30_000.0
SMALL_PX = 400
# The share of a gradient that PowerSGD sends per rank of its approximation: rows and columns, not their product.
POWERSGD_SHARE = 0.01


@dataclass(frozen=True)
class Images:
    """A user's own data set.  is_small: prepared, with the shorter side limited to SMALL_PX or less."""

    train: int
    image_bytes: float = 110_000.0
    evaluation: int | None = None
    is_small: bool = False


@dataclass(frozen=True)
class Training:
    """A job on machines of a type.  notes: caveats for a reader; volume: the new volume it reads from, if any."""

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
        """Whether images begin smaller, by --image-size-start; those that are kept on the device do not."""
        return self.config.image_size_start is not None and self.data.format == "jpeg"

    def share_of_pixels(self, epoch: int) -> float:
        """Pixels of an image in that epoch as a share of the full size."""
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
    """A user's folder of images: like ImageNet, or decoded once if its images are small."""
    small = config.image_size is not None and config.image_size <= 64
    kind: Literal["jpeg", "resident"] = "resident" if small else "jpeg"
    return DataSet(0, 0, 0.0, FOLDER_PX, kind)


def _is_half(config: TrainConfig, instance: Instance) -> bool:
    """Whether it computes in 16 bits, as `auto` does on every GPU of the catalog and on CPUs with AMX."""
    if config.amp is False or config.precision == "fp32":
        return False
    return config.precision != "auto" or instance.is_gpu or instance.amx


def is_emulated(config: TrainConfig, instance: Instance) -> bool:
    """Whether the hardware lacks the precision: bf16 below sm_80, and 16 bits on a CPU without AMX."""
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


def evaluation_s(data: DataSet, speeds: Speeds, layout: Layout) -> float:
    """Seconds to evaluate each image once, divided among the replicas: forward only."""
    share = data.evaluation / layout.nodes
    image_bytes = data.image_bytes if data.format == "jpeg" else 0.0
    computed_s = share / layout.gpus * speeds.image_s * FORWARD
    return max(computed_s, share / speeds.decoded_per_s, share * image_bytes / speeds.read_per_s)


@dataclass(frozen=True)
class Timeline:
    """A job from its first epoch to its last, at one side of the figures."""

    training: Training
    speeds: Speeds
    side: Side
    caches: bool

    def step(self, epoch: int, uncached: float) -> Step:
        work = self.training.work(epoch)
        return step(work, self.speeds, self.training.layout, uncached=uncached, side=self.side)

    def paced(self, epoch: int, uncached: float) -> float:
        """Seconds of an update of that epoch: compute, but not reading, shrinks with the pixels of an image.

        Decoding is assumed to take as long, although smaller crops often decode at half the size.
        """
        smaller = replace(self.speeds, image_s=self.speeds.image_s * self.training.share_of_pixels(epoch))
        work = self.training.work(epoch)
        return step(work, smaller, self.training.layout, uncached=uncached, side=self.side).step_s

    def training_s(self, epoch: int, uncached: float) -> float:
        return self.training.updates(epoch) * self.step(epoch, uncached).step_s

    def evaluation_s(self) -> float:
        data = replace(self.training.data, image_bytes=0.0) if self.caches else self.training.data
        return evaluation_s(data, self.speeds, self.training.layout)

    def epoch_s(self) -> float:
        """Training and its share of evaluation at the first batch, with a warm cache."""
        return self.training_s(0, 0.0 if self.caches else 1.0) + self.training.evaluating * self.evaluation_s()

    def job_s(self) -> float:
        """All epochs, or the updates of --max-steps, and what volume initialization adds."""
        volume_init = self.volume_init()
        return self.settled_s() + (volume_init.lost_s if volume_init else 0.0)

    def volume_init(self) -> Initialization | None:
        """The initialization of the data volumes; None without new volumes."""
        volume, data = self.training.volume, self.training.data
        if volume is None or not data.image_bytes:
            return None
        per_s = volume.bytes_per_s.at(self.side)
        full_s = volume.full_after_s(data.gib_in_all, per_s, figure(table("rates")["boot_hours"]).at(self.side) * 3600)
        volumes = 1 if volume.is_shared else self.training.layout.nodes
        images_per_s = per_s / data.image_bytes * volumes
        return Initialization(images_per_s, full_s, self._lost_s(images_per_s, full_s), volume)

    def _lost_s(self, images_per_s: float, full_s: float) -> float:
        """Seconds that the job loses while volume initialization limits it to that many images/s."""
        work, config = self.training.work(), self.training.config
        slow_s = work.batch * work.accumulate * self.training.layout.replicas / images_per_s
        usual_s = self.paced(0, self.uncached(0))
        updates = min(config.epochs * self.training.updates(), inf if config.max_steps is None else config.max_steps)
        return max(0.0, slow_s - usual_s) * min(updates, full_s / slow_s)

    def settled_s(self) -> float:
        """All epochs, or the updates of --max-steps, from initialized volumes."""
        config, total = self.training.config, 0.0
        left = inf if config.max_steps is None else float(config.max_steps)
        for begin, end in pairwise([*self._begins(), config.epochs]):
            updates = self.training.updates(begin)
            for epochs, step_s in self._paces(begin, end):
                done = min(left, epochs * updates)
                evaluations = min(epochs, ceil(done / updates)) * self.training.evaluating
                total += done * step_s + evaluations * self.evaluation_s()
                left -= done
        return total

    def _begins(self) -> list[int]:
        """The epochs at which the global batch or the image size changes, starting with 0."""
        config, share = self.training.config, self.training.share_of_pixels
        ramp = {epoch for epoch in config.batch_ramp or {} if 0 < epoch < config.epochs}
        grown = range(1, config.epochs if self.training.grows else 1)
        return [0, *sorted(ramp | {epoch for epoch in grown if share(epoch) != share(epoch - 1)})]

    def _paces(self, begin: int, end: int) -> Iterator[tuple[int, float]]:
        """Numbers of epochs and their seconds per update, from `begin` to before `end`, of equal batch and size.

        One by one while disks are the bottleneck, as caches then fill from epoch to epoch; the rest at once.
        """
        settled_s = self.paced(begin, 0.0 if self.caches else 1.0)
        while begin < end and (step_s := self.paced(begin, self.uncached(begin))) > settled_s:
            yield 1, step_s
            begin += 1
        if begin < end:
            yield end - begin, settled_s

    def uncached(self, epoch: int) -> float:
        """Share of an epoch's images that this node has not read yet, as every epoch shuffles them among the nodes."""
        if not self.caches:
            return 1.0
        return float((1 - 1 / self.training.layout.nodes) ** epoch)
