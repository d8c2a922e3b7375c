"""A job: what to train, and where and how to run it.  Every backend plans from one."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

from trainer.config import TrainConfig
from trainer.settings.checks import check

Where = TypeVar("Where", bound=BaseModel)


@dataclass(frozen=True)
class Job(Generic[Where]):
    """Settings of the training, and a backend's options.  Raises SettingsError where the settings contradict."""

    train: TrainConfig
    where: Where

    def __post_init__(self) -> None:
        check(self.train)


def on_gpus(train: TrainConfig) -> TrainConfig:
    """`train` for machines with GPUs, on which it must not fall back to the CPU: that is slow, and bills alike."""
    return train if train.device == "cpu" else train.model_copy(update={"device": "cuda"})
