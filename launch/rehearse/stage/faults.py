"""The faults that --inject takes, with when or where they happen.  Pure; injection.py makes them happen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.errors import SettingsError
from trainer.settings.registry import did_you_mean

# Name -> form and description.
KINDS = {
    "node-dies": ("@epoch:N", "the last node dies after epoch N"),
    "spot-notice": ("[@epoch:N]", "AWS reclaims the last node after epoch N (default: 1)"),
    "sick-node": ("[:N]", "the GPU of the last node is broken, and those of the first N - 1 in its place (default: 1)"),
    "disk-full": ("[@epoch:N]", "the disk of the first node is full after epoch N (default: 1)"),
    "no-capacity": (":zone-X", "this zone has no capacity; or a region, such as us-east-1"),
    "no-route": ("", "the subnets have lost their route to the internet, until the launcher has ended"),
    "slow-network": (":RATE", "each node sends and receives at most RATE, such as 1gbit or 200mbit"),
    "launcher-killed": ("@call:N", "the launcher gets SIGKILL at its Nth request and is started again"),
    "throttle": ("", "AWS throttles every third request of the launcher"),
}
PATTERNS = {
    "@epoch:N": r"@epoch:(?P<number>[1-9]\d*)",
    "[@epoch:N]": r"(@epoch:(?P<number>[1-9]\d*))?",
    "@call:N": r"@call:(?P<number>[1-9]\d*)",
    ":zone-X": r":(?P<where>zone-[a-z]|[a-z]{2}(-[a-z]+)+-\d)",
    "[:N]": r"(:(?P<number>[1-9]\d*))?",
    ":RATE": r":(?P<where>[1-9]\d*[kmg]bit)",
    "": "",
}


@dataclass(frozen=True)
class Fault:
    """number: of the epoch, call or nodes, 0 without one; where: a zone such as zone-a, or a network's rate."""

    kind: str
    number: int = 0
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind}{self._at if self.number else ''}{':' + self.where if self.where else ''}"

    @property
    def _at(self) -> str:
        if self.kind == "sick-node":
            return f":{self.number}"
        return f"@{'call' if self.kind == 'launcher-killed' else 'epoch'}:{self.number}"

    @property
    def has_epoch(self) -> bool:
        """Whether it happens after an epoch."""
        return "epoch" in KINDS[self.kind][0]


def parse(words: Sequence[str]) -> tuple[Fault, ...]:
    """The faults that `words` name.  Raises SettingsError with the form of a wrong one."""
    return tuple(_parse(word) for word in words)


def check(faults: Sequence[Fault], epochs: int | None) -> None:
    """Raises SettingsError for a fault that would come after the last of so many epochs, if they are known."""
    for fault in faults:
        if epochs is not None and fault.has_epoch and fault.number >= epochs:
            raise SettingsError(
                f"--inject {fault}: the training ends with epoch {epochs}; choose an earlier epoch, or more --epochs."
            )


def _parse(word: str) -> Fault:
    kind = re.split("[@:]", word)[0]
    if kind not in KINDS:
        raise SettingsError(f"--inject {word}: unknown fault{did_you_mean(kind, KINDS) or '.'} {_known()}")
    form, _ = KINDS[kind]
    match = re.fullmatch(PATTERNS[form], word.removeprefix(kind))
    if match is None:
        raise SettingsError(f"--inject {word}: must look like {kind}{form}. {_known()}")
    parts = match.groupdict()
    return Fault(kind, int(parts.get("number") or form.startswith("[")), parts.get("where") or "")


def _known() -> str:
    return f"Known: {', '.join(kind + form for kind, (form, _) in KINDS.items())}."
