"""Whether a training is better than guessing, and what to change if not.  Pure and torch-free."""

import math

from trainer import datasets
from trainer.config import TrainConfig
from trainer.schedule import FEW_UPDATES, peak_lr

PATIENCE = 3  # epochs
SIGMAS = 3.0  # guessing is above its mean by more than this once in 700 times


def warning_for_guessing(
    config: TrainConfig, epoch: int, *, is_last: bool, best_top1: float, images: int, classes: int, updates: int
) -> str | None:
    """A warning for a run that only guesses after a few epochs or at its end, with what to change; else None.

    epoch: how many are done; best_top1: the best share of right answers yet, on `images` of so many classes; updates:
    up to now.  Says it once after PATIENCE epochs, and once at the end.
    """
    is_time = is_last or epoch - config.eval_every < PATIENCE <= epoch
    if not is_time or config.dataset == "synthetic" or best_top1 > _most_by_guessing(images, classes):
        return None
    longer = f"; train for more updates (--epochs, a smaller --batch-size) than {updates:,}"
    folders = "; and check that each image is in the folder of its class"
    return (
        f"after {epoch} epoch{'s' if epoch > 1 else ''} an accuracy of {best_top1:.1%} is no better than guessing "
        f"among {classes} classes. Lower --lr to {peak_lr(config) / 10:.2g}{longer if updates < FEW_UPDATES else ''}"
        f"{folders if datasets.is_folder(config.dataset) else ''}."
    )


def _most_by_guessing(images: int, classes: int) -> float:
    share = 1 / classes
    return share + SIGMAS * math.sqrt(share * (1 - share) / images)
