"""Training in one process on one device."""

from torch import Tensor, nn

from trainer.config import TrainConfig
from trainer.distributed.session import Session
from trainer.errors import SettingsError
from trainer.strategies.base import Wrapped


def wrap(model: nn.Module, images: Tensor, config: TrainConfig, session: Session) -> Wrapped:
    """Wrap `model` for one process.  Raises SettingsError for several ranks: each would train its own model."""
    world = session.ranks.world_size
    if world > 1:
        raise SettingsError(
            f"--strategy single with {world} ranks would train {world} models; take ddp or one process."
        )
    return Wrapped(train=model, plain=model)
