"""One instance of a training job, from its start to its end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from launch.core import catalog
from launch.rehearse.aws.pricing import multiple
from launch.rehearse.aws.sagemaker.jobs import TrainingJob

STATES = {"Starting": "boots", "Downloading": "boots", "Training": "trains"}


@dataclass
class Machine:
    """See launch.rehearse.stage.scene.Life.  rank: its place among the job's instances."""

    job: TrainingJob
    name: str
    rank: int
    address: str
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    how: str = ""

    @property
    def type(self) -> str:
        return self.job.instance_type

    @property
    def zone(self) -> str:
        return ""  # SageMaker does not show it

    @property
    def state(self) -> str:
        return "off" if self.ended is not None else STATES.get(self.job.secondary, "uploads")

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.began

    @property
    def usd_per_hour(self) -> float:
        instance = catalog.load().get(self.type.removeprefix(catalog.SAGEMAKER_PREFIX))
        region = self.job.arn.split(":")[3]
        return (instance.sagemaker_usd_per_hour or 0.0) * multiple(region) if instance else 0.0

    def end(self, how: str) -> None:
        """Records its end and the reason."""
        self.ended, self.how = time.monotonic(), how
