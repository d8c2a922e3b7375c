"""The local backend: runs torchrun on this machine.  In notebooks, `from launch import local`."""

from launch.local.notebook import train
from trainer.errors import TrainerError, TrainingError

__all__ = ["TrainerError", "TrainingError", "train"]
