"""The objects of a training: data, model, optimizer and progress, and how they are built."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from trainer import datasets, models, optimizers, strategies
from trainer.config import TrainConfig, sides, single_images, smallest_batch
from trainer.datasets.base import Data, Request
from trainer.distributed.session import Session
from trainer.errors import DataError, SettingsError, import_function, is_wrong_path, one_line
from trainer.loop import StepContext
from trainer.metrics.counters import Totals
from trainer.models.shapes import run_on_shapes
from trainer.optimizers.precision import Stepper, autocast, gradient_scaler, pick_precision
from trainer.optimizers.schedule import resolved
from trainer.process.libraries import own_folder
from trainer.process.machine import share_of_cores
from trainer.state.checkpoint import are_finite, content_of
from trainer.strategies.base import Wrapped


@dataclass
class Progress:
    """The progress of a run."""

    epoch: int = 0  # epochs finished
    images: int = 0  # of the current epoch that all ranks together have trained on: the position in its order
    epoch_updates: int = 0  # in the current epoch
    updates: int = 0  # in the whole run
    reported_at: int = -1  # value of updates when the last line of metrics was written
    learning_rate: float = 0.0  # of the last update
    best_top1: float = -1.0
    best: str = ""  # file name of the checkpoint with best_top1
    seconds: float = 0.0  # spent training in the current epoch


class WeightAverage:
    """Exponential moving average of a model's weights, which often scores better than the weights themselves.

    It is on the same device and, under FSDP, has the same shards.  Batch-norm statistics are running averages already:
    averaging them again would make them lag behind the weights.

    model: without wrappers, already placed and sharded.  decay: share of the old average kept per update.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._model = model
        self._decay = decay
        self._updates = 0
        self._own = {name: weight.detach() for name, weight in model.named_parameters()}
        self._average = {name: weight.clone() for name, weight in self._own.items()}

    def update(self) -> None:
        """Add the current weights to the average, after an update.  Does not wait for the device."""
        torch._foreach_lerp_(list(self._average.values()), list(self._own.values()), 1 - self.decay())
        self._updates += 1

    def decay(self) -> float:
        """The decay of the next update, lower at first, so that a short run does not keep its initial weights.

        As TensorFlow's ExponentialMovingAverage with num_updates: 0.1, 0.18, 0.25 ... up to the given decay.
        """
        return min(self._decay, (1 + self._updates) / (10 + self._updates))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Use the averaged weights inside the block; restore the model's own bit for bit, also after an error."""
        own = {name: weight.clone() for name, weight in self._own.items()}
        self._write(self._average)
        try:
            yield
        finally:
            self._write(own)

    def state(self) -> dict[str, Any]:
        """State for a checkpoint: {"updates": int, "weights": {name: tensor}}; tensors are not copied."""
        return {"updates": self._updates, "weights": dict(self._average)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the result of state(), for a model with the same names and shards."""
        self._updates = state["updates"]
        _copy_weights(self._average, state["weights"])

    def _write(self, weights: dict[str, Tensor]) -> None:
        # In place, so that DDP's buckets, CUDA graphs and compiled code keep using the same tensors.
        _copy_weights(self._own, weights)
        for module in self._model.modules():
            # FSDPModule has this method; importing it to check the type would slow down every start.  After a
            # forward pass the root module keeps gathered weights, which are now outdated.
            reshard: Any = getattr(module, "reshard", None)
            if reshard is not None:
                reshard()


@torch.no_grad()
def _copy_weights(into: dict[str, Tensor], weights: dict[str, Tensor]) -> None:
    for name, weight in into.items():
        weight.copy_(weights[name])


@dataclass
class Training:
    """The objects of one run."""

    config: TrainConfig
    session: Session
    data: Data
    wrapped: Wrapped
    optimizer: Optimizer
    step_context: StepContext
    precision: str
    ema: WeightAverage | None
    totals: Totals
    progress: Progress = field(default_factory=Progress)


def strategy_name(config: TrainConfig, world_size: int) -> str:
    """The name of the strategy, with `auto` resolved for this number of ranks."""
    if config.strategy != "auto":
        return config.strategy
    return "ddp" if world_size > 1 else "single"


def assemble(config: TrainConfig, session: Session, *, resumes: bool = False) -> Training:
    """Load the data, and build the model and everything else.  Collective.

    resumes: a checkpoint will be loaded afterwards, so the weights of --init-from are not needed.
    """
    strategy = strategy_name(config, session.ranks.world_size)
    channels_last = strategy != "fsdp" if config.channels_last is None else config.channels_last
    data = _load_data(config, session, channels_last)
    torch.manual_seed(config.seed)  # every rank builds the same weights
    model = _build_model(config, data)
    _check_single_images(model, config, data.image_size, session.ranks.world_size)
    if config.init_from is not None and not resumes:
        _load_weights(model, config)
    model = model.to(session.device)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    images = _some_images(data, channels_last, session)
    wrapped = import_function(strategies.TABLE[strategy])(model, images, config, session)
    config = resolved(config, data.train.size, wrapped.replicas)
    optimizer = import_function(optimizers.TABLE[config.optimizer].build)(wrapped.plain, config, session.device)
    torch.manual_seed(config.seed + 7919 * (1 + session.ranks.rank))  # but has its own dropout masks
    precision = pick_precision(config, session.device)
    stepper = Stepper(
        optimizer, wrapped.plain.parameters(), gradient_scaler(precision, session.device), config.clip_norm
    )
    step_context = StepContext(
        model=_compiled(wrapped.train, config) if config.compile else wrapped.train,
        criterion=criterion_of(config),
        stepper=stepper,
        autocast=partial(autocast, precision, session.device),
        no_sync=wrapped.no_sync,
        guard=guard_of(config, wrapped.plain),
    )
    ema = WeightAverage(wrapped.plain, config.ema_decay) if config.ema_decay else None
    totals = Totals(session.device, at_once=config.compile)
    return Training(config, session, data, wrapped, optimizer, step_context, precision, ema, totals)


def _compiled(model: nn.Module, config: TrainConfig) -> nn.Module:
    # With --image-size-start there are few sizes, and separate kernels for each are faster than dynamic ones.
    dynamic = False if config.image_size_start else None
    compiled = torch.compile(model, mode=config.compile_mode, dynamic=dynamic)
    assert isinstance(compiled, nn.Module)
    return compiled


def _some_images(data: Data, channels_last: bool, session: Session) -> Tensor:
    """Random images (2, 3, S, S) in the format of the data set's batches; two, because batch norm needs several."""
    images = torch.rand(2, 3, data.image_size, data.image_size, device=session.device)
    return images.to(memory_format=torch.channels_last) if channels_last else images


def _load_data(config: TrainConfig, session: Session, channels_last: bool) -> Data:
    request = data_request(config, session, channels_last)
    load_data = import_function(datasets.find(config.dataset).load)

    def load() -> Data:
        try:
            data: Data = load_data(request)
            return data
        except OSError as error:
            if not is_wrong_path(error):
                raise
            path = one_line(error.filename or config.data_dir, 300)
            raise DataError(f"cannot read {path} ({error.strerror}); fix that, or give another --data-dir.") from error

    return session.once_per_node(load)


def data_request(config: TrainConfig, session: Session, channels_last: bool) -> Request:
    """What this rank asks of the data set."""
    return Request(
        data_dir=config.data_dir,
        cache_dir=_cache_dir(config),
        device=session.device,
        image_size=config.image_size,
        augment=config.augment,
        channels_last=channels_last,
        workers=config.workers or share_of_cores(session.ranks.local_world_size),
        max_bad_images=config.max_bad_images,
        download=config.download,
        seed=config.seed,
        synthetic_images=config.synthetic_images,
        synthetic_classes=config.synthetic_classes,
        data_url=config.data_url,
        data_cache_gb=config.data_cache_gb,
        shuffle_shards=config.shuffle_shards,
        first_size=config.image_size_start,
        epochs=config.epochs,
        decodes_on_gpu=config.decode == "gpu",
        by_processes=_by_processes(config, session.device),
    )


def _by_processes(config: TrainConfig, device: torch.device) -> bool:
    """Whether --workers are processes: threads would compete for the GIL with the thread that launches kernels."""
    if config.decode == "gpu" or config.worker_kind == "threads":
        return False
    return config.worker_kind == "processes" or device.type == "cuda"


def _cache_dir(config: TrainConfig) -> Path:
    """config.cache_dir, or a private temporary folder if the user has no home, as in some containers.

    Raises SettingsError.
    """
    with suppress(RuntimeError):
        return config.cache_dir.expanduser()
    return own_folder("data", remedy="give --cache-dir")


def _build_model(config: TrainConfig, data: Data) -> nn.Module:
    build = import_function(models.TABLE[config.model])
    model: nn.Module = build(config.model, data.classes, data.image_size)
    for side in sides(config.epochs, config.image_size_start, data.image_size)[:-1]:
        _refuse_fixed_size(model, config, side)
    return model


def _refuse_fixed_size(model: nn.Module, config: TrainConfig, side: int) -> None:
    """Raise SettingsError if the model cannot take images of `side` px, a size that --image-size-start leads to."""
    try:
        run_on_shapes(model, side)
    except (AssertionError, DataError, RuntimeError, ValueError) as error:
        raise SettingsError(
            f"{config.model} cannot take the {side} px of --image-size-start {config.image_size_start}; "
            "drop it, or take a model for images of any size, such as resnet18."
        ) from error


def _check_single_images(model: nn.Module, config: TrainConfig, image_size: int, world_size: int) -> None:
    """Raise SettingsError if batches of one image would give batch norm only one value per channel."""
    if smallest_batch(config, torch.cuda.device_count() if config.strategy == "dp" else world_size) > 1:
        return
    for side in sides(config.epochs, config.image_size_start, image_size):
        try:
            run_on_shapes(model, side, images=1)
        except ValueError as error:
            raise single_images(config.model, side) from error


def _load_weights(model: nn.Module, config: TrainConfig) -> None:
    assert config.init_from is not None
    weights = read_weights(config.init_from)
    if not are_finite(weights):
        raise SettingsError(f"--init-from {config.init_from} has weights that are not finite; give others.")
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise SettingsError(
            f"--init-from {config.init_from} does not fit model {config.model} ({_first_misfit(error)}); "
            "take the --model, --dataset and --image-size it was trained with."
        ) from error


def _first_misfit(error: RuntimeError) -> str:
    """The first mismatch in the message of load_state_dict."""
    lines = [line.strip() for line in str(error).splitlines()]
    return textwrap.shorten(lines[min(1, len(lines) - 1)].rstrip("."), 200, placeholder=" ...")


def read_weights(path: Path) -> dict[str, Any]:
    """The model's weights in a model.pt or a checkpoint.  Raises SettingsError for any other file."""
    try:
        content = content_of(path, "give the model.pt of a finished run, or a checkpoint.")
    except SettingsError as error:
        raise SettingsError(f"--init-from {error}") from error
    weights: dict[str, Any] = content["model"] if {"format", "model"} <= content.keys() else content
    return weights


def criterion_of(config: TrainConfig) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss function of these settings: logits (B, K), labels (B,) -> () mean loss."""
    if config.max_bad_images:
        return partial(mean_over_readable, label_smoothing=config.label_smoothing)
    return nn.CrossEntropyLoss(label_smoothing=config.label_smoothing)


def mean_over_readable(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy like torch's, but 0 with zero gradients, not NaN, if no image of the batch could be read."""
    total = cross_entropy(logits, labels, reduction="sum", label_smoothing=label_smoothing)
    return total / (labels >= 0).sum().clamp(min=1)


def guard_of(config: TrainConfig, model: nn.Module) -> Callable[[Tensor], AbstractContextManager[object]]:
    """A function from labels (B,) to the context for the batch's pass through `model`."""
    buffers = list(model.buffers())
    return partial(buffers_kept_if_unread, buffers) if config.max_bad_images and buffers else nullcontext


@contextmanager
def buffers_kept_if_unread(buffers: Sequence[Tensor], labels: Tensor) -> Iterator[None]:
    """Restore `buffers`, such as batch norm's, after a pass through a batch in which no image could be read.

    Does not wait for the device.
    """
    before = [buffer.clone() for buffer in buffers]
    yield
    is_readable = (labels >= 0).any()
    for buffer, was in zip(buffers, before, strict=True):
        buffer.copy_(torch.where(is_readable, buffer, was))
