"""What --inject asks for: faults by name, with when or where they happen.  Pure; injection.py lets them happen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.errors import SettingsError
from trainer.settings.registry import did_you_mean

# Each with its form, and what it is.
KINDS = {
    "node-dies": ("@epoch:N", "the last node is gone once epoch N is trained"),
    "spot-notice": ("[@epoch:N]", "AWS takes the last node back, once epoch N (1) is trained"),
    "disk-full": ("[@epoch:N]", "the disk of the first node is full, once epoch N (1) is trained"),
    "no-capacity": (":zone-X", "this zone has no machines"),
    "slow-network": (":RATE", "the nodes' network takes no more than RATE, such as 1gbit or 200mbit"),
    "launcher-killed": ("@call:N", "the launcher gets SIGKILL at its Nth request; then it is started again"),
    "throttle": ("", "AWS refuses every third request of the launcher as one too many"),
}
PATTERNS = {
    "@epoch:N": r"@epoch:(?P<number>[1-9]\d*)",
    "[@epoch:N]": r"(@epoch:(?P<number>[1-9]\d*))?",
    "@call:N": r"@call:(?P<number>[1-9]\d*)",
    ":zone-X": r":(?P<where>zone-[a-z])",
    ":RATE": r":(?P<where>[1-9]\d*[kmg]bit)",
    "": "",
}


@dataclass(frozen=True)
class Fault:
    """number: of the epoch or call, 0: none; where: such as zone-a, or the rate of a network."""

    kind: str
    number: int = 0
    where: str = ""

    def __str__(self) -> str:
        at = f"@{'call' if self.kind == 'launcher-killed' else 'epoch'}:{self.number}" if self.number else ""
        return f"{self.kind}{at}{':' + self.where if self.where else ''}"

    @property
    def has_epoch(self) -> bool:
        """Whether it waits for an epoch."""
        return "epoch" in KINDS[self.kind][0]


def parse(words: Sequence[str]) -> tuple[Fault, ...]:
    """The faults that `words` name.  Raises SettingsError with the form of the one that is wrong."""
    return tuple(_parse(word) for word in words)


def check(faults: Sequence[Fault], epochs: int) -> None:
    """Raises SettingsError for one that would come when the training of so many epochs is over."""
    for fault in faults:
        if fault.has_epoch and fault.number >= epochs:
            raise SettingsError(
                f"--inject {fault}: the training ends with epoch {epochs}; name an earlier one, or give more --epochs."
            )


def _parse(word: str) -> Fault:
    kind = re.split("[@:]", word)[0]
    if kind not in KINDS:
        raise SettingsError(f"--inject {word}: unknown fault{did_you_mean(kind, KINDS) or '.'} {_known()}")
    form, _ = KINDS[kind]
    found = re.fullmatch(PATTERNS[form], word.removeprefix(kind))
    if found is None:
        raise SettingsError(f"--inject {word}: must look like {kind}{form}. {_known()}")
    told = found.groupdict()
    return Fault(kind, int(told.get("number") or ("epoch" in form)), told.get("where") or "")


def _known() -> str:
    return f"Known: {', '.join(kind + form for kind, (form, _) in KINDS.items())}."
