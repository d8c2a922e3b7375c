"""Take a training's state for a checkpoint, and restore it.

Tensors are stored unsharded and on the CPU, so a run may resume under another strategy or with another number of ranks.
With the same number it resumes bit for bit: each rank's random state, batch-norm statistics and running sums are stored
too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainer.datasets.tree import class_name
from trainer.errors import SettingsError, one_line
from trainer.settings.flags import LARGEST
from trainer.state.checkpoint import is_name
from trainer.training import Progress, Training

FORMAT = 1

# A checkpoint fits a run only if these settings agree.
MUST_MATCH = ("model", "dataset", "image_size", "optimizer", "ema_decay", "seed")
# The state of gradient compression fits only if these agree: they determine how gradients are put into buckets.
SHAPES_COMPRESSION = ("comm_hook", "powersgd_rank", "bucket_cap_mb", "static_graph")


def take(training: Training) -> dict[str, Any]:
    """The state of the training on rank 0, an empty dict on other ranks.  Collective."""
    ranks = training.session.gather_on_head(_of_this_rank(training))
    with averaged_statistics(training):
        tensors = training.wrapped.whole(
            {
                "model": training.wrapped.plain.state_dict(),
                "optimizer": training.optimizer.state_dict(),
                "ema": training.ema.state() if training.ema else {},
            }
        )
        if not training.session.ranks.is_head:
            return {}
        if not training.wrapped.whole_is_new:
            tensors = copied(tensors)
    return {
        "format": FORMAT,
        "config": training.config.model_dump(mode="json"),
        "signature": asdict(training.data.signature),
        "progress": asdict(training.progress),
        "training_images": training.data.train.size,
        "scaler": training.step_context.stepper.scaler.state_dict(),
        "ranks": ranks,
        **tensors,
    }


def restore(training: Training, state: dict[str, Any]) -> list[str]:
    """Restore `training` from `state`, except for settings that have changed since.

    Return sentences about what could not be restored.  Raises SettingsError if the two do not fit.  Collective.
    """
    wrapped = training.wrapped
    try:
        _check_fits(training, state)
        progress = _progress(state["progress"])
        _check_images(state["training_images"], training, progress)
        _check_order(state["config"], training.config.model_dump(mode="json"), progress)
        _check_finite({part: state[part] for part in ("model", "optimizer", "ema")})
        wrapped.plain.load_state_dict(wrapped.split(state["model"], wrapped.plain.state_dict()))
        _restore_optimizer(training, state["optimizer"])
        if training.ema:
            training.ema.load_state(wrapped.split(state["ema"], training.ema.state()))
        if state["scaler"] and training.step_context.stepper.scaler.is_enabled():
            training.step_context.stepper.scaler.load_state_dict(state["scaler"])
        training.progress = progress
        _restore_rank(training, state["ranks"])
        return _restore_compression(training, state)
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        problem = one_line((str(error).splitlines() or [type(error).__name__])[-1], 200)
        raise SettingsError(
            f"the checkpoint to resume from does not fit this run ({problem}); "
            "give another --checkpoint-dir, or --no-resume to start afresh."
        ) from error


def _progress(values: dict[str, Any]) -> Progress:
    """The progress stored in a checkpoint.  Raises ValueError if it is invalid."""
    progress = Progress(**values)
    for field in fields(Progress):
        value = getattr(progress, field.name)
        if field.type is str:
            is_valid = value == "" or is_name(value)
        else:
            least = -1 if field.default == -1 else 0
            is_valid = type(value) in (int, field.type) and least <= value <= LARGEST
        if not is_valid:
            raise ValueError(f"{field.name} is {one_line(value)}")
    return progress


def weights_are_finite(training: Training) -> bool:
    """Whether all weights are finite on all ranks.  Collective; waits for the device."""
    weights = training.wrapped.plain.parameters()
    shards = [weight.to_local() if hasattr(weight, "to_local") else weight for weight in weights]  # FSDP's local shard
    norms = torch.stack(torch._foreach_norm([shard.detach() for shard in shards if shard.numel()]))
    return not training.session.highest([float(not norms.isfinite().all())])[0]


def whole_weights(training: Training) -> dict[str, Tensor]:
    """The model's current weights, unsharded, on the CPU of rank 0.  Collective."""
    with averaged_statistics(training):
        weights: dict[str, Tensor] = training.wrapped.whole(training.wrapped.plain.state_dict())
        return weights if training.wrapped.whole_is_new else copied(weights)


def _of_this_rank(training: Training) -> dict[str, Any]:
    compression = training.wrapped.compression
    return {
        "cpu_randomness": torch.get_rng_state(),
        "gpu_randomness": torch.cuda.get_rng_state() if training.session.device.type == "cuda" else None,
        "buffers": [buffer.to("cpu", copy=True) for buffer in training.wrapped.plain.buffers()],
        "sums": training.totals.sums.to("cpu", copy=True),
        "compression": compression.state() if compression else None,
    }


def _restore_rank(training: Training, ranks: list[dict[str, Any]]) -> None:
    if len(ranks) != training.session.ranks.world_size:
        # The number of ranks has changed: rank 0 continues all sums, and ranks keep their new random state.
        if training.session.ranks.is_head:
            training.totals.sums.copy_(torch.stack([rank["sums"] for rank in ranks]).sum(dim=0))
        return
    state = ranks[training.session.ranks.rank]
    torch.set_rng_state(state["cpu_randomness"])
    if state["gpu_randomness"] is not None and training.session.device.type == "cuda":
        torch.cuda.set_rng_state(state["gpu_randomness"])
    training.totals.sums.copy_(state["sums"])
    for buffer, before in zip(training.wrapped.plain.buffers(), state["buffers"], strict=True):
        buffer.copy_(before)


def _check_finite(tree: Any, name: str = "the checkpoint") -> None:
    """Raise ValueError for a tensor that is not finite: trainings never save one, and could not continue from it."""
    if isinstance(tree, Tensor) and not bool(tree.isfinite().all()):
        raise ValueError(f"{name} is not finite")
    if isinstance(tree, dict):
        for key, value in tree.items():
            _check_finite(value, one_line(key))


def _restore_compression(training: Training, state: dict[str, Any]) -> list[str]:
    """Restore this rank's gradient compression.  Return sentences about what starts from zero instead."""
    compression, ranks = training.wrapped.compression, state["ranks"]
    saved = [rank.get("compression") for rank in ranks]  # missing in checkpoints of earlier versions
    if compression is None or None in saved:
        return []
    if len(ranks) != training.session.ranks.world_size:
        reason = f"of {len(ranks)} ranks, not {training.session.ranks.world_size}"
    else:
        was, now = state["config"], training.config.model_dump(mode="json")
        changed = [name for name in SHAPES_COMPRESSION if was.get(name) != now[name]]
        if not changed:
            compression.load_state(saved[training.session.ranks.rank])
            return []
        reason = "for another " + " and ".join("--" + name.replace("_", "-") for name in changed)
    hook = training.config.comm_hook
    return [f"--comm-hook {hook} restarts its error feedback, because the checkpoint's is {reason}"]


def _restore_optimizer(training: Training, state: dict[str, Any]) -> None:
    """Restore the optimizer's state, such as momentum; its hyperparameters remain those of this run's settings."""
    optimizer = training.optimizer
    split = training.wrapped.split(state, _optimizer_layout(state, training))
    now = optimizer.state_dict()["param_groups"]
    groups = [{**was, **group} for was, group in zip(state["param_groups"], now, strict=True)]
    optimizer.load_state_dict({"state": split["state"], "param_groups": groups})
    _check_shapes(optimizer)
    lay_out_as_weights(optimizer)


def _check_shapes(optimizer: Optimizer) -> None:
    """Raise ValueError if the state belongs to other weights, which would make the first update fail."""
    for weight, values in optimizer.state.items():
        sizes = {value.numel() for value in values.values() if isinstance(value, Tensor)}
        if not sizes <= {1, weight.numel()}:  # 1: the number of updates
            raise ValueError("the optimizer's state is not shaped like its weights")


def lay_out_as_weights(optimizer: Optimizer) -> None:
    """Give an optimizer's state the memory layout of its weights, which may differ if another strategy saved it.

    torch's fused kernels assume equal layouts; on a CPU they do not check, and compute wrong results.
    """
    for weight, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == weight.shape and value.stride() != weight.stride():
                values[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def _optimizer_layout(state: dict[str, Any], training: Training) -> dict[str, Any]:
    """Map each tensor of the optimizer's state that is shaped like its weight to that weight, for sharding it alike."""
    weights = [weight for group in training.optimizer.param_groups for weight in group["params"]]
    return {
        "state": {
            index: {
                name: weights[index] if isinstance(value, Tensor) and value.shape == weights[index].shape else None
                for name, value in entry.items()
            }
            for index, entry in state.get("state", {}).items()
        }
    }


def _with(name: str, value: object) -> str:
    flag = "--" + name.replace("_", "-")
    return f"without {flag}" if value is None else f"with {flag} {one_line(value)}"


def _check_fits(training: Training, state: dict[str, Any]) -> None:
    if state.get("format") != FORMAT:
        raise SettingsError(
            "the checkpoint to resume from was made by another version of the trainer; start afresh with --no-resume."
        )
    was, now = state["config"], training.config.model_dump(mode="json")
    for name in MUST_MATCH:
        if was.get(name) != now[name]:
            raise SettingsError(
                f"the checkpoint to resume from was made {_with(name, was.get(name))}, and this run is "
                f"{_with(name, now[name])}; give the same, another --checkpoint-dir, or --no-resume to start afresh."
            )
    classes = tuple(map(class_name, state["signature"]["classes"]))
    if classes != training.data.signature.classes:
        raise SettingsError(
            "the checkpoint to resume from was made with other classes, or in another order; "
            "give the same data again, another --checkpoint-dir, or --no-resume to start afresh."
        )


def _check_images(were: Any, training: Training, progress: Progress) -> None:
    """Check that the number of training images has not changed within the epoch, as their order depends on it."""
    now = training.data.train.size
    if progress.images and were != now:
        raise SettingsError(
            f"the checkpoint to resume from is inside an epoch of {one_line(were)} training images, and now there "
            f"are {now}; give the same images again, another --checkpoint-dir, or --no-resume to start afresh."
        )


def _check_order(was: dict[str, Any], now: dict[str, Any], progress: Progress) -> None:
    """Check that the images are shuffled as at the start of the epoch, or some would be seen twice."""
    windows = [settings.get("shuffle_shards") if settings.get("data_url") else None for settings in (was, now)]
    if progress.images and windows[0] != windows[1]:
        before = f"with --data-url and --shuffle-shards {windows[0]}" if windows[0] else "without --data-url"
        raise SettingsError(
            f"the checkpoint to resume from is inside an epoch whose images were shuffled {before}; "
            "use that again, another --checkpoint-dir, or --no-resume to start afresh."
        )


def copied(tree: Any) -> Any:
    """Copy every tensor in `tree` to the CPU, so that training can continue while it is written."""
    if isinstance(tree, Tensor):
        return tree.detach().to("cpu", copy=True)
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [copied(value) for value in tree]
    return tree


@contextmanager
def averaged_statistics(training: Training) -> Iterator[None]:
    """Average the batch-norm statistics over all ranks inside the block, then restore each rank's own bit for bit.

    This way evaluating or saving does not affect the training.  Collective.
    """
    buffers = training.wrapped.plain.buffers() if training.wrapped.communicates else ()
    statistics = [buffer for buffer in buffers if buffer.is_floating_point()]
    if not statistics:
        yield
        return
    own = torch.cat([buffer.flatten() for buffer in statistics])
    _write(statistics, training.session.sum(own.clone()) / training.session.ranks.world_size)
    try:
        yield
    finally:
        _write(statistics, own)


def _write(buffers: list[torch.Tensor], flat: torch.Tensor) -> None:
    for buffer, values in zip(buffers, flat.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(values.view_as(buffer))
