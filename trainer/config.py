"""All settings of a training: one frozen TrainConfig, from which flags, YAML keys and help are generated.

To add a setting, add a field.  Torch-free, so that a launcher can check settings before it spends money.
pydantic was chosen over tyro and jsonargparse: it validates most strictly, lets us word the errors,
and its field list is all that `--help` needs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ModelWrapValidatorHandler, model_validator

from trainer import datasets, models, optimizers
from trainer.datasets import SMALL_PX, is_folder
from trainer.errors import SettingsError, one_of
from trainer.models import largest_alone


def _pairs(value: Any) -> Any:
    """'0:512,2:2048' -> {0: 512, 2: 2048}; other values are returned unchanged for pydantic to validate."""
    if not isinstance(value, str):
        return value
    # SageMaker's toolkit writes a dictionary as 0=512,2=2048.
    pairs = [item.replace("=", ":").split(":", 1) for item in value.split(",") if item]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("write it as epoch:images,epoch:images, for example 0:512,2:2048")
    if len({epoch for epoch, _ in pairs}) < len(pairs):
        raise ValueError("an epoch is given twice; remove one of them")
    return dict(pairs)


def _numbers(value: Any) -> Any:
    """'30,60' -> ['30', '60'], 3 -> [3]; other values are returned unchanged for pydantic to validate."""
    if isinstance(value, str):
        # SageMaker's toolkit writes a list as [30, 60].
        return [item for item in value.strip("[]").split(",") if item]
    return [value] if isinstance(value, (int, float)) else value


def _of_each(setting: str) -> str:
    """The default of `setting` for each optimizer, for help texts: 'sgd 0.1, adamw 0.001'."""
    return ", ".join(f"{name} {getattr(info, setting):g}" for name, info in optimizers.TABLE.items())


Ramp = Annotated[dict[int, int], BeforeValidator(_pairs)]
Epochs = Annotated[tuple[float, ...], BeforeValidator(_numbers)]

# The first field under each heading of --help.
SECTIONS = {
    "model": "model",
    "dataset": "data",
    "epochs": "length and batches",
    "optimizer": "optimization",
    "strategy": "ranks and communication",
    "precision": "speed",
    "run_dir": "run folder and checkpoints",
    "progress": "output and logging",
}


class TrainConfig(BaseModel):
    """The settings of one training run.  Units are in the names."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    model: str = Field(
        datasets.DEFAULT_MODEL,
        description=f"{', '.join(models.OWN)} or any torchvision classifier; if it is not given, digits use cnn",
    )
    image_size: int | None = Field(None, ge=8, le=1024, description="pixels a side (default: the data set's own size)")
    image_size_start: int | None = Field(
        None, ge=8, le=1024, description="pixels a side in the first epoch, growing to --image-size (default: the same)"
    )
    init_from: Path | None = Field(
        None, description="start from these weights: the model.pt or a checkpoint of an earlier run"
    )

    dataset: str = Field("digits", description=one_of(datasets.NAMES))
    data_dir: Path = Field(Path("data"), description="folder of the data set, or to download it to")
    data_url: str | None = Field(
        None, description="s3://BUCKET/FOLDER of prepared shards, read while training (default: --data-dir is read)"
    )
    data_cache_gb: float = Field(
        50.0, gt=0, le=1e6, description="GB of shards from --data-url in --cache-dir; kept if all of them fit"
    )
    shuffle_shards: int = Field(16, ge=1, le=1_000_000, description="shards from --data-url to shuffle together")
    cache_dir: Path = Field(
        Path("~/.cache/aws-ddp-toolkit"),
        description="folder for decoded images of small data sets, and for shards from --data-url",
    )
    download: bool = Field(True, description="download cifar10 when it is missing")
    augment: bool = Field(True, description="random crops, and mirroring where the classes allow it")
    workers: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="threads or processes per rank that decode images (default: its share of the cores)",
    )
    worker_kind: Literal["auto", "threads", "processes"] = Field(
        "auto",
        description="whether --workers are threads or processes, for images read on demand; auto: processes with a GPU",
    )
    decode: Literal["cpu", "gpu"] = Field(
        "cpu", description="where large JPEGs are decoded; gpu needs torchvision with nvJPEG, and uses GPU time"
    )
    max_bad_images: int = Field(0, ge=0, description="unreadable images to skip before the run fails")
    synthetic_images: int = Field(
        50_000, ge=1, le=100_000_000, description="images per epoch of the synthetic data set"
    )
    synthetic_classes: int = Field(10, ge=2, le=1_000_000, description="classes of the synthetic data set")

    epochs: int = Field(5, ge=1, description="passes over the training set")
    batch_size: int = Field(128, ge=1, description="images per GPU (or CPU rank) in one forward pass")
    global_batch_size: int | None = Field(
        None, ge=1, description="images per update over all GPUs, instead of --batch-size"
    )
    accumulate: int = Field(1, ge=1, description="forward passes per update (gradient accumulation)")
    batch_ramp: Ramp | None = Field(
        None,
        description="global batch size by epoch, such as 0:512,2:2048",
        json_schema_extra={"metavar": "EPOCH:BATCH,..."},
    )
    eval_batch_size: int | None = Field(
        None, ge=1, description="images per GPU in evaluation (default: twice the batch size)"
    )
    eval_every: int = Field(1, ge=1, description="evaluate every N epochs, and after the last")
    max_steps: int | None = Field(None, ge=1, description="stop after N updates")
    seed: int = Field(
        0, ge=0, le=2**32 - 1, description="seed of the initial weights, the order of images and augmentation"
    )

    optimizer: str = Field("sgd", description=one_of(optimizers.NAMES))
    lr: float | None = Field(
        None,
        gt=0,
        le=1e30,
        description=f"peak learning rate (default: {_of_each('peak_lr')}; a tenth for some models)",
    )
    lr_scaling: Literal["none", "linear", "sqrt"] = Field(
        "none", description="scale --lr with global batch / --lr-base-batch"
    )
    lr_base_batch: int = Field(256, ge=1, description="global batch that --lr is meant for when it is scaled")
    schedule: Literal["constant", "cosine", "multistep", "onecycle"] = Field(
        "cosine", description="learning rate schedule"
    )
    warmup_epochs: float | None = Field(
        None, ge=0, description="epochs of linear warm-up (default: a fifth of --epochs, at most 5)"
    )
    milestones: Epochs = Field(
        (),
        description="epochs at which --schedule multistep lowers the rate, such as 30,60,80",
        json_schema_extra={"metavar": "EPOCH,..."},
    )
    lr_gamma: float = Field(0.1, gt=0, lt=1, description="factor of the rate at each milestone")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd, lars and muon")
    nesterov: bool = Field(True, description="Nesterov momentum for sgd, lars and muon")
    weight_decay: float | None = Field(
        None,
        ge=0,
        le=1e30,
        description=f"weight decay, except of norms and biases (default: {_of_each('weight_decay')})",
    )
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of the target that is spread over all classes")
    clip_norm: float | None = Field(None, gt=0, description="clip the gradient to this norm (default: no clipping)")
    ema_decay: float | None = Field(
        None, gt=0, lt=1, description="evaluate a moving average of the weights with this decay (default: off)"
    )

    strategy: Literal["auto", "single", "dp", "ddp", "fsdp"] = Field(
        "auto", description="auto is ddp with several ranks, else single"
    )
    device: Literal["auto", "cuda", "cpu"] = Field("auto", description="auto is a GPU if there is one")
    comm_hook: Literal["none", "fp16", "bf16", "powersgd"] = Field("none", description="gradient compression of ddp")
    powersgd_rank: int = Field(2, ge=1, description="rank of PowerSGD's approximation")
    bucket_cap_mb: float = Field(25.0, gt=0, le=1e6, description="MiB of gradients per all-reduce of ddp")
    gradient_as_bucket_view: bool = Field(True, description="keep ddp's gradients in its buckets, which saves memory")
    static_graph: bool = Field(False, description="promise ddp that the graph never changes")
    timeout_s: float = Field(
        600.0, gt=0, le=86_400, description="seconds to wait for a rank that does not answer before failing"
    )
    stall_s: float = Field(
        30.0,
        ge=0,
        le=86_400,
        description="after N seconds, and 20 times the usual wait, without a batch, show each rank's stack; 0: never",
    )
    health_check: bool = Field(
        False, description="check GPUs, a matrix product and the network between nodes before the training"
    )

    precision: Literal["auto", "fp32", "fp16", "bf16"] = Field(
        "auto", description="auto is the fastest that is safe on this device"
    )
    amp: bool | None = Field(
        None, description="--no-amp forces fp32, --amp requires fp16 or bf16 (default: as --precision)"
    )
    channels_last: bool | None = Field(None, description="NHWC memory format (default: on, except with fsdp)")
    compile: bool = Field(False, description="torch.compile the model")
    compile_mode: Literal["default", "reduce-overhead", "max-autotune"] = Field(
        "default", description="mode of torch.compile"
    )
    fused: bool | None = Field(
        None, description="fused optimizer kernels (default: where the optimizer has them, except with fsdp)"
    )
    cudnn_benchmark: bool = Field(True, description="let cuDNN benchmark its convolutions at the start")
    deterministic: bool = Field(False, description="bit-identical reruns on a GPU, slower")
    threads: int | None = Field(
        None, ge=1, le=1024, description="CPU threads per rank (default: OMP_NUM_THREADS, or its share of the cores)"
    )

    run_dir: Path | None = Field(None, description="folder for the results (default: a new one in runs/)")
    checkpoint_dir: Path | None = Field(
        None, description="folder to save to and resume from (default: checkpoints/ in the run folder)"
    )
    checkpoint_every_s: float = Field(600.0, gt=0, description="seconds between checkpoints within an epoch")
    keep_checkpoints: int = Field(3, ge=1, description="number of newest checkpoints to keep, besides the best")
    resume: bool = Field(True, description="resume from the newest checkpoint, if there is one")

    progress: bool | None = Field(None, description="progress bar (default: on a terminal)")
    log_every: int = Field(50, ge=1, description="check the loss every N updates, and at least every second")
    probe_steps: int = Field(
        5, ge=0, le=1000, description="steps to run once without communication, to measure its share; 0 to skip"
    )
    plot: bool = Field(True, description="draw curves.png")
    tensorboard: bool = Field(False, description="write TensorBoard events to the run folder")
    wandb: str | None = Field(
        None,
        description="log to this Weights & Biases project; offline without a key",
        json_schema_extra={"metavar": "PROJECT"},
    )
    mlflow: str | None = Field(
        None,
        description="log to this MLflow experiment; in the run folder without a server",
        json_schema_extra={"metavar": "EXPERIMENT"},
    )

    @model_validator(mode="wrap")
    @classmethod
    def _name_model(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Pick the data set's usual model if none is given."""
        if not isinstance(values, Mapping) or values.get("model"):
            return validate(values)
        dataset = values.get("dataset") or cls.model_fields["dataset"].default
        config = validate({**values, "model": datasets.default_model(dataset)})
        config.__pydantic_fields_set__.discard("model")
        return config

    @property
    def changed(self) -> dict[str, Any]:
        """The settings that differ from their defaults, which is all that another process needs to be passed."""
        usual = {name: field.default for name, field in type(self).model_fields.items()}
        if "model" not in self.model_fields_set or self.model == usual["model"]:
            usual["model"] = datasets.default_model(self.dataset)
        return {name: getattr(self, name) for name in usual if getattr(self, name) != usual[name]}


GROWING = 0.8  # share of the epochs; the last ones use the image size of evaluation
STEPS = 4  # few, because each new size is compiled and benchmarked by cuDNN again
MULTIPLE = 8  # of pixels, for tensor cores


@dataclass(frozen=True)
class Batches:
    """Batch sizes of an epoch.  per_replica: images in one pass; replicas: GPUs or CPU ranks that share one update."""

    per_replica: int
    accumulate: int
    replicas: int

    @property
    def per_update(self) -> int:
        """The global batch."""
        return self.per_replica * self.accumulate * self.replicas


def batches_at(config: TrainConfig, epoch: int, replicas: int) -> Batches:
    """The batch sizes of one epoch.  Raises SettingsError if the global batch cannot be divided evenly."""
    global_batch = _ramped(config, epoch) or config.global_batch_size
    if global_batch is None:
        return Batches(config.batch_size, config.accumulate, replicas)
    share = replicas * config.accumulate
    if global_batch % share:
        nearest = max(share, round(global_batch / share) * share)
        raise SettingsError(
            f"a global batch of {global_batch} does not divide among {replicas} replicas x {config.accumulate} "
            f"accumulated passes; the nearest that does is {nearest}."
        )
    return Batches(global_batch // share, config.accumulate, replicas)


def check_batches(config: TrainConfig, replicas: int) -> None:
    """Raise SettingsError if the global batch of any epoch does not divide among `replicas`, or is too small."""
    px = config.image_size or (None if is_folder(config.dataset) else SMALL_PX)
    first = config.image_size_start or px  # the smallest images
    if smallest_batch(config, replicas) == 1 and first is not None and first <= largest_alone(config.model):
        raise single_images(config.model, first)


def smallest_batch(config: TrainConfig, replicas: int) -> int:
    """The smallest batch of a replica in any epoch.  Raises SettingsError like batches_at()."""
    return min(batches_at(config, epoch, replicas).per_replica for epoch in {0, *(config.batch_ramp or {})})


def single_images(model: str, px: int) -> SettingsError:
    """The error for batches of one small image, in which batch norm gets only one value per channel."""
    return SettingsError(
        f"{model} normalises over its batch, and one image of {px} px at a time leaves it a single value; "
        "give each replica two images or more (--batch-size 2), larger images, or --model cnn."
    )


def _ramped(config: TrainConfig, epoch: int) -> int | None:
    begun = [start for start in config.batch_ramp or {} if start <= epoch]
    return config.batch_ramp[max(begun)] if config.batch_ramp and begun else None


def side_at(epoch: int, epochs: int, first: int | None, full: int) -> int:
    """Pixels a side in `epoch`, counted from 0: grows from `first` to `full` in STEPS steps."""
    if first is None:
        return full
    last_of_growth = max(1, math.ceil(GROWING * (epochs - 1)))
    step = STEPS * min(epoch, last_of_growth) // last_of_growth
    if step == STEPS:
        return full
    grown = first + (full - first) * step / STEPS
    return max(first, int(grown) // MULTIPLE * MULTIPLE)


def sides(epochs: int, first: int | None, full: int) -> list[int]:
    """The distinct image sizes of a training in pixels a side, smallest first."""
    return sorted({side_at(epoch, epochs, first, full) for epoch in range(epochs)})
