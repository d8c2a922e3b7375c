"""What the launcher of a job knows about this machine, read from the environment.  Torch-free, pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trainer.contract import NODE_GBPS, NODE_GPUS, NODE_XIDS
from trainer.errors import SettingsError


@dataclass(frozen=True)
class Expected:
    """gpus, gbps: how many GPUs this machine should have and what its network should carry, in Gbit/s; None if
    unknown.  xids: the numbers of NVIDIA's Xid errors that its kernel has logged.
    """

    gpus: int | None = None
    gbps: float | None = None
    xids: tuple[int, ...] = ()


NOTHING_EXPECTED = Expected()


def read_expected(env: Mapping[str, str]) -> Expected:
    """Reads the expected machine from `env`.  Raises SettingsError for a variable that holds no number."""
    gpus, gbps = (_number(env, name) for name in (NODE_GPUS, NODE_GBPS))
    xids = [int(word) for word in env.get(NODE_XIDS, "").split() if word.isdigit()]
    return Expected(None if gpus is None else int(gpus), gbps, tuple(xids))


def _number(env: Mapping[str, str], name: str) -> float | None:
    text = env.get(name, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise SettingsError(f"{name}={text!r} must be a number; unset it, or drop --health-check.")
    return value
