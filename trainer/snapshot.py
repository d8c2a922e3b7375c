"""What a checkpoint holds, taken from a training and put back into one.

Tensors are stored whole and on the CPU, so a run may go on under another strategy or with another
number of ranks.  With the same number it goes on bit for bit: each rank's randomness, batch-norm
statistics and running sums are kept too.
"""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from trainer.errors import SettingsError
from trainer.training import Progress, Training

FORMAT = 1

# A checkpoint fits a run only where these agree.
MUST_MATCH = ("model", "dataset", "image_size", "optimizer", "ema_decay", "seed")


def take(training: Training) -> dict[str, Any]:
    """The whole state on rank 0, an empty dict elsewhere.  Collective."""
    ranks = training.session.gather(_of_this_rank(training))
    parts = {
        "model": training.wrapped.plain.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "ema": training.ema.state() if training.ema else {},
    }
    whole = training.wrapped.whole(parts)
    if not training.session.ranks.is_head:
        return {}
    return {
        "format": FORMAT,
        "config": training.config.model_dump(mode="json"),
        "progress": asdict(training.progress),
        "scaler": training.trainee.stepper.scaler.state_dict(),
        "ranks": ranks,
        **_copied(whole),
    }


def restore(training: Training, state: dict[str, Any]) -> None:
    """Makes `training` what it was when `state` was taken.  Raises SettingsError if it cannot be.  Collective."""
    _check_fits(training, state)
    wrapped, optimizer = training.wrapped, training.optimizer
    wrapped.plain.load_state_dict(wrapped.split(state["model"], wrapped.plain.state_dict()))
    optimizer.load_state_dict(wrapped.split(state["optimizer"], _optimizer_layout(state["optimizer"], training)))
    training.trainee.stepper.scaler.load_state_dict(state["scaler"])
    if training.ema:
        training.ema.load_state(wrapped.split(state["ema"], training.ema.state()))
    training.progress = Progress(**state["progress"])
    _restore_rank(training, state["ranks"])


def whole_weights(training: Training) -> dict[str, Tensor]:
    """The model's weights as they stand, whole and on the CPU.  Collective."""
    weights: dict[str, Tensor] = _copied(training.wrapped.whole(training.wrapped.plain.state_dict()))
    return weights


def _of_this_rank(training: Training) -> dict[str, Any]:
    return {
        "cpu_randomness": torch.get_rng_state(),
        "gpu_randomness": torch.cuda.get_rng_state() if training.session.device.type == "cuda" else None,
        "buffers": [buffer.to("cpu", copy=True) for buffer in training.wrapped.plain.buffers()],
        "sums": training.totals.sums.to("cpu", copy=True),
    }


def _restore_rank(training: Training, ranks: list[dict[str, Any]]) -> None:
    if len(ranks) != training.session.ranks.world_size:
        # Other ranks than before: the sums go on with rank 0, each rank keeps its fresh randomness.
        if training.session.ranks.is_head:
            training.totals.sums.copy_(torch.stack([rank["sums"] for rank in ranks]).sum(dim=0))
        return
    mine = ranks[training.session.ranks.rank]
    torch.set_rng_state(mine["cpu_randomness"])
    if mine["gpu_randomness"] is not None and training.session.device.type == "cuda":
        torch.cuda.set_rng_state(mine["gpu_randomness"])
    training.totals.sums.copy_(mine["sums"])
    for buffer, before in zip(training.wrapped.plain.buffers(), mine["buffers"], strict=True):
        buffer.copy_(before)


def _optimizer_layout(state: dict[str, Any], training: Training) -> dict[str, Any]:
    """For each tensor of an optimizer's state that is shaped like its weight, that weight: they are split alike."""
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


def _check_fits(training: Training, state: dict[str, Any]) -> None:
    was, now = state["config"], training.config.model_dump(mode="json")
    for name in MUST_MATCH:
        if was.get(name) != now[name]:
            flag = "--" + name.replace("_", "-")
            raise SettingsError(
                f"the checkpoint to go on from was made with {flag} {was.get(name)}, not {now[name]}; "
                "give that again, another --checkpoint-dir, or --no-resume to start afresh."
            )


def _copied(tree: Any) -> Any:
    """`tree` with every tensor copied to the CPU, so that training can go on while it is written."""
    if isinstance(tree, Tensor):
        return tree.detach().to("cpu", copy=True)
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_copied(value) for value in tree]
    return tree
