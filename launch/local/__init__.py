"""The backend that starts torchrun on this machine.  For notebooks, `from launch import local`."""

from launch.local.notebook import train
from trainer.errors import TrainerError, TrainingError

__all__ = ["TrainerError", "TrainingError", "train"]
