"""A job: what to train, and where and how to run it.  Every backend plans from one."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

from launch.core.training.base import Training

Where = TypeVar("Where", bound=BaseModel)


@dataclass(frozen=True)
class Job(Generic[Where]):
    """A training, and a backend's options."""

    train: Training
    where: Where
