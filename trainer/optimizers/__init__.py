"""The table of optimizers with default rates and weight decay.  Torch-free: only building one imports torch.

To add an optimizer, write its module and add one entry here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class OptimizerInfo:
    """An optimizer's constructor and defaults."""

    build: str  # its function, as "module:function"
    peak_lr: float  # default
    weight_decay: float  # default


TABLE: Mapping[str, OptimizerInfo] = MappingProxyType(
    {
        "sgd": OptimizerInfo("trainer.optimizers.sgd:build", peak_lr=0.1, weight_decay=5e-4),
        "adamw": OptimizerInfo("trainer.optimizers.adamw:build", peak_lr=1e-3, weight_decay=0.01),
        "lars": OptimizerInfo("trainer.optimizers.lars:build", peak_lr=2.0, weight_decay=1e-4),
        "muon": OptimizerInfo("trainer.optimizers.muon:build", peak_lr=0.02, weight_decay=0.01),
    }
)
NAMES = tuple(TABLE)
