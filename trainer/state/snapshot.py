"""What a checkpoint holds, taken from a training and put back into one.

Tensors are stored whole and on the CPU, so a run may resume under another strategy or with another
number of ranks.  With the same number it resumes bit for bit: each rank's randomness, batch-norm
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
    """Makes `training` what it was when `state` was taken, but for settings that have changed since.

    Raises SettingsError if the two do not go together.  Collective.
    """
    _check_fits(training, state)
    wrapped = training.wrapped
    try:
        wrapped.plain.load_state_dict(wrapped.split(state["model"], wrapped.plain.state_dict()))
        _restore_optimizer(training, state["optimizer"])
        if training.ema:
            training.ema.load_state(wrapped.split(state["ema"], training.ema.state()))
    except (RuntimeError, ValueError, KeyError) as error:
        problem = str(error).splitlines()[-1].strip()
        raise SettingsError(
            f"the checkpoint to resume from does not fit this run ({problem}); "
            "give another --checkpoint-dir, or --no-resume to start afresh."
        ) from error
    if state["scaler"] and training.trainee.stepper.scaler.is_enabled():
        training.trainee.stepper.scaler.load_state_dict(state["scaler"])
    training.progress = Progress(**state["progress"])
    _restore_rank(training, state["ranks"])


def weights_are_finite(training: Training) -> bool:
    """Whether every weight is a number, on every rank.  Collective; waits for the device."""
    weights = training.wrapped.plain.parameters()
    shards = [weight.to_local() if hasattr(weight, "to_local") else weight for weight in weights]  # fsdp's own part
    norms = torch.stack(torch._foreach_norm([shard.detach() for shard in shards if shard.numel()]))
    return not training.session.highest([float(not norms.isfinite().all())])[0]


def whole_weights(training: Training) -> dict[str, Tensor]:
    """The model's weights as they stand, whole and on the CPU of rank 0.  Collective."""
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


def _restore_optimizer(training: Training, state: dict[str, Any]) -> None:
    """Momentum and the like as they were; rates, decay and kernels as this run's settings say."""
    optimizer = training.optimizer
    split = training.wrapped.split(state, _optimizer_layout(state, training))
    now = optimizer.state_dict()["param_groups"]
    groups = [{**was, **group} for was, group in zip(state["param_groups"], now, strict=True)]
    optimizer.load_state_dict({"state": split["state"], "param_groups": groups})


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
    if state.get("format") != FORMAT:
        raise SettingsError("the checkpoint to resume from was made by another version; start afresh with --no-resume.")
    was, now = state["config"], training.config.model_dump(mode="json")
    for name in MUST_MATCH:
        if was.get(name) != now[name]:
            flag = "--" + name.replace("_", "-")
            raise SettingsError(
                f"the checkpoint to resume from was made with {flag} {was.get(name)}, not {now[name]}; "
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
