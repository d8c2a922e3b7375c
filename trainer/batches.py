"""How many images go through at once: the batch arithmetic of a training.  Torch-free."""

from dataclasses import dataclass

from trainer.config import TrainConfig
from trainer.errors import SettingsError


@dataclass(frozen=True)
class Batches:
    """How many images go through at once.  replicas: GPUs or CPU ranks that share one update."""

    per_replica: int
    accumulate: int
    replicas: int

    @property
    def per_update(self) -> int:
        """The global batch."""
        return self.per_replica * self.accumulate * self.replicas


def batches_at(config: TrainConfig, epoch: int, replicas: int) -> Batches:
    """The batch arithmetic of one epoch.  Raises SettingsError where the global batch does not divide."""
    wanted = _ramped(config, epoch) or config.global_batch_size
    if wanted is None:
        return Batches(config.batch_size, config.accumulate, replicas)
    share = replicas * config.accumulate
    if wanted % share:
        nearest = max(share, round(wanted / share) * share)
        raise SettingsError(
            f"a global batch of {wanted} does not divide among {replicas} replicas x {config.accumulate} "
            f"accumulated passes; the nearest that does is {nearest}."
        )
    return Batches(wanted // share, config.accumulate, replicas)


def check_batches(config: TrainConfig, replicas: int) -> None:
    """Raises SettingsError where a global batch of some epoch does not divide among `replicas`."""
    for epoch in {0, *(config.batch_ramp or {})}:
        batches_at(config, epoch, replicas)


def _ramped(config: TrainConfig, epoch: int) -> int | None:
    begun = [start for start in config.batch_ramp or {} if start <= epoch]
    return config.batch_ramp[max(begun)] if config.batch_ramp and begun else None
