"""What --inject asks for: faults by name, with when they happen.  Pure; rehearsal.py lets them happen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.errors import SettingsError
from trainer.registry import did_you_mean

# Each with the form that its when or where takes, and what it is.
KINDS = {
    "node-dies": ("@epoch:N", "the last node is gone once epoch N is trained"),
    "spot-notice": ("@epoch:N", "EC2 takes the last node back, two minutes after it said so"),
    "no-capacity": (":zone-X", "this zone has no machines"),
    "launcher-killed": ("@call:N", "the launcher gets SIGKILL at its Nth request; then it is started again"),
    "throttle": ("", "AWS refuses every third request of the launcher as one too many"),
}


@dataclass(frozen=True)
class Fault:
    """number: of the epoch or call; where: such as zone-a."""

    kind: str
    number: int = 0
    where: str = ""

    def __str__(self) -> str:
        at = f"@{'call' if self.kind == 'launcher-killed' else 'epoch'}:{self.number}" if self.number else ""
        return f"{self.kind}{at}{':' + self.where if self.where else ''}"


def parse(words: Sequence[str]) -> tuple[Fault, ...]:
    """The faults that `words` name.  Raises SettingsError with the form of the one that is wrong."""
    return tuple(_parse(word) for word in words)


def _parse(word: str) -> Fault:
    kind = word.partition("@")[0].partition(":")[0]
    if kind not in KINDS:
        raise SettingsError(f"--inject {word}: unknown fault{did_you_mean(kind, KINDS) or '.'} {_known()}")
    form, rest = KINDS[kind][0], word.removeprefix(kind)
    if not form and not rest:
        return Fault(kind)
    start = form.rstrip("NX")
    value = rest.removeprefix(start)
    if form.endswith("N") and rest.startswith(start) and value.isdigit() and int(value) > 0:
        return Fault(kind, number=int(value))
    if form.endswith("X") and rest.startswith(start) and value.isalpha() and len(value) == 1:
        return Fault(kind, where=rest[1:])
    raise SettingsError(f"--inject {word}: must look like {kind}{form}. {_known()}")


def _known() -> str:
    return f"Known: {', '.join(kind + form for kind, (form, _) in KINDS.items())}."
