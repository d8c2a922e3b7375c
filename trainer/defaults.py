"""Defaults that depend on other settings: learning rate, weight decay and warm-up.  Pure and torch-free.

The model follows from the data set in TrainConfig itself.  What the defaults reach: tests/bench/RESULTS.md.
"""

from trainer import optimizers
from trainer.config import TrainConfig
from trainer.models import SENSITIVE
from trainer.schedule import FEW_UPDATES, count_updates, warmup_length

# Factor of an optimizer's usual rate for the models of SENSITIVE.
CAREFUL = {"sgd": 0.1, "adamw": 0.3, "lars": 0.1, "muon": 0.3}
# Models whose norms look at one image alone.  Others average over batches for as many updates as a short run has.
WITHOUT_BATCH_NORM = ("cnn",)


def resolved(config: TrainConfig, train_images: int, replicas: int) -> TrainConfig:
    """`config` with a learning rate, weight decay and warm-up where none is given.

    They follow from model, optimizer, schedule and the number of updates over `train_images`.
    Raises SettingsError where a global batch does not divide among the replicas.
    """
    usual = optimizers.TABLE[config.optimizer]
    found = {
        "lr": _rate(config, train_images, replicas),
        "weight_decay": usual.weight_decay,
        "warmup_epochs": warmup_length(config),
    }
    return config.model_copy(update={name: value for name, value in found.items() if getattr(config, name) is None})


def _rate(config: TrainConfig, train_images: int, replicas: int) -> float:
    rate = optimizers.TABLE[config.optimizer].peak_lr
    if config.model.startswith(SENSITIVE):
        rate *= CAREFUL[config.optimizer]
    if config.model not in WITHOUT_BATCH_NORM:
        rate *= _share_of_long_run(config, train_images, replicas)
    return float(f"{rate:.3g}")


def _share_of_long_run(config: TrainConfig, train_images: int, replicas: int) -> float:
    """Less than 1 for a run of few updates: batch norm's running averages lag behind weights that change fast."""
    # Not fewer for --max-steps, or a run stopped by it could not be continued as if it had not been.
    whole = config.model_copy(update={"max_steps": None})
    return min(1.0, count_updates(whole, train_images, replicas) / FEW_UPDATES)
