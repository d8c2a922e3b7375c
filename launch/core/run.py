"""One training, as far as it came: its settings, records, how it ended and what it cost.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any, Literal

from trainer.errors import printable
from trainer.sizes import side_at

HOUR_S = 3600
UNKNOWN_SIDES = 10
LARGEST = 1e15  # a whole number in JSON may have so many digits that no float holds it
SMALLEST = 1e-30  # what is less is 0: divided by it, a price or a speed would be infinite

# planned: not begun; running: begun and not known to have ended; interrupted: saved, and can be resumed.
State = Literal["planned", "running", "done", "failed", "interrupted"]


@dataclass(frozen=True)
class Run:
    """One training, as far as it came.  Its name and its reason are kept as one line of printable text."""

    name: str
    folder: Path
    settings: Mapping[str, Any]  # of the trainer
    epochs: tuple[Mapping[str, Any], ...] = ()  # the trainer's records, which trainer/README.md describes
    backend: str = "local"
    options: Mapping[str, Any] = field(default_factory=dict)  # of the backend, such as nodes and instance_type
    point: Mapping[str, Any] = field(default_factory=dict)  # what differs from the other runs of its sweep
    state: State = "done"
    reason: str = ""  # why it failed, one sentence
    exit_code: int | None = None
    started: str = ""  # ISO 8601, UTC
    seconds: float | None = None  # wall time of the whole
    usd_per_hour: float | None = None  # of all its machines together
    usd: float | None = None  # None where it costs nothing
    rehearsed: bool = False  # on this machine, with an embedded AWS

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", printable(self.name))
        object.__setattr__(self, "reason", printable(" ".join(self.reason.split())))

    @property
    def steady(self) -> tuple[Mapping[str, Any], ...]:
        """The epochs that its speed is measured on: those on its last GPUs with its last batch and size of images.

        Without the first of them, which starts workers, tunes cuDNN, compiles, and may have begun on other GPUs; a
        single one counts.
        """
        return self._last_stretch[1:] or self._last_stretch

    @property
    def is_warm(self) -> bool:
        """Whether there is an epoch after the first on the same GPUs with the same batch."""
        return len(self._last_stretch) > 1

    @property
    def _last_stretch(self) -> tuple[Mapping[str, Any], ...]:
        """The newest epochs that trained alike."""
        alike = list(takewhile(self._is_like_the_last, reversed(self.epochs)))
        return tuple(reversed(alike))

    def _is_like_the_last(self, epoch: Mapping[str, Any]) -> bool:
        return _layout(epoch) == _layout(self.last) and self._side(epoch) == self._side(self.last)

    def _side(self, epoch: Mapping[str, Any]) -> int:
        """Pixels a side of its images where these grew; 0 where they did not.  Only good to be compared."""
        first, epochs, full = (_whole(self.settings, name) for name in ("image_size_start", "epochs", "image_size"))
        place = _whole(epoch, "epoch")
        if first is None or place is None or epochs is None:
            return 0
        # Unless given the data set's own, which is larger.
        return side_at(place - 1, epochs, first, UNKNOWN_SIDES * first if full is None else full)

    @property
    def last(self) -> Mapping[str, Any]:
        """The newest record; empty where there is none."""
        return self.epochs[-1] if self.epochs else {}

    @property
    def is_script(self) -> bool:
        """Whether it is a script of the user's own, whose records have metrics of its own: launch.core.metrics."""
        return "script" in self.settings

    @property
    def replicas(self) -> int:
        """GPUs or CPU ranks that shared one update; 0 without an epoch."""
        return int(number(self.last, "replicas") or number(self.last, "world_size") or 0)

    def typical(self, name: str) -> float | None:
        """The median of a number over the steady epochs; None where none has it."""
        values = [value for epoch in self.steady if (value := number(epoch, name)) is not None]
        return median(values) if values else None

    @property
    def epoch_with_evaluation_s(self) -> float | None:
        """Seconds of a steady epoch with its share of evaluation, which may be rarer than epochs; None without one."""
        epoch_s, evaluation_s = self.typical("epoch_s"), self.typical("eval_s")
        if epoch_s is None:
            return None
        evaluated = [value for epoch in self.epochs if (value := number(epoch, "eval_s"))]
        if evaluation_s is None and evaluated:
            evaluation_s = median(evaluated)
        return epoch_s + (evaluation_s or 0.0) * len(evaluated) / len(self.epochs)

    @property
    def whole_s(self) -> float:
        """Seconds from start to end, where they are known with initialization and starts that failed.

        At least those of its epochs: of a run that was resumed, the trainer alone knows the last start only.
        """
        return max(self.seconds or 0.0, sum(map(seconds_of, self.epochs)))

    @property
    def usd_per_epoch(self) -> float | None:
        """USD of a steady epoch with its evaluation; an equal share of a bare bill; None without a price."""
        if self.usd_per_hour is not None and self.epoch_with_evaluation_s is not None:
            return self.usd_per_hour * self.epoch_with_evaluation_s / HOUR_S
        return self.usd / len(self.epochs) if self.usd is not None and self.epochs else None

    @property
    def whole_usd(self) -> float | None:
        """USD from start to end, as billed where that is known; None without a price."""
        if self.usd is not None:
            return self.usd
        return None if self.usd_per_hour is None else self.usd_per_hour * self.whole_s / HOUR_S


def seconds_of(epoch: Mapping[str, Any]) -> float:
    """Of training and evaluation."""
    return (number(epoch, "epoch_s") or 0.0) + (number(epoch, "eval_s") or 0.0)


def _layout(epoch: Mapping[str, Any]) -> tuple[Any, ...]:
    """What must stay the same for two epochs' speeds to be of one thing."""
    return tuple(epoch.get(name) for name in ("world_size", "replicas", "nodes", "device", "global_batch"))


def number(record: Mapping[str, Any], name: str) -> float | None:
    """A value of a record; None for one that is missing, no number, not finite or not to be counted with."""
    value = record.get(name)
    if not isinstance(value, (int, float)) or not abs(value) < LARGEST:
        return None
    return float(value) if abs(value) >= SMALLEST else 0.0


def _whole(record: Mapping[str, Any], name: str) -> int | None:
    """A value of a record that is a whole number; None for others."""
    value = record.get(name)
    return value if isinstance(value, int) and abs(value) < LARGEST else None
