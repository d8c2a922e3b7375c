"""Errors of torch that a user's settings cause, as sentences that say what to change."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trainer.batches import batches_at
from trainer.config import TrainConfig
from trainer.distributed.ranks import Ranks
from trainer.errors import SettingsError, TrainingError


@contextmanager
def torch_errors_in_words(config: TrainConfig, ranks: Ranks) -> Iterator[None]:
    """Turns errors of torch that a user's choice causes into sentences."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise TrainingError(_out_of_memory(config, ranks)) from error
    except RuntimeError as error:
        if "does not have a deterministic implementation" in str(error):
            problem = str(error).split(" does not have")[0]
            raise SettingsError(f"--deterministic: {problem} has no such kernel; drop it or change --model.") from error
        if type(error).__name__ == "InvalidCxxCompiler":
            raise SettingsError("--compile needs a C++ compiler; install g++, or drop it.") from error
        raise


def _out_of_memory(config: TrainConfig, ranks: Ranks) -> str:
    images, gib = batches_at(config, 0, ranks.world_size).per_replica, torch.cuda.mem_get_info()[1] / 2**30
    return (
        f"out of GPU memory: {config.model} with {images} images per pass does not fit into {gib:.0f} GiB. "
        "Halve --batch-size and double --accumulate: the result is the same. "
        "--precision bf16, --eval-batch-size and --strategy fsdp save memory too."
    )
