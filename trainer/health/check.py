"""The whole check, in the order in which a run goes through it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import torch

from trainer.distributed.heartbeat import Notes
from trainer.distributed.ranks import Ranks
from trainer.distributed.session import Session
from trainer.health import agree
from trainer.health.expected import Expected
from trainer.health.network import measure
from trainer.health.node import problems_here
from trainer.process.machine import pick_device


@dataclass
class Check:
    """The check of one rank: look(), then agree() once it can write notes, then measure().

    device, timeout_s: the settings of those names.
    """

    device: str
    timeout_s: float
    ranks: Ranks
    expected: Expected
    problems: list[str] = field(default_factory=list)
    _spent_s: float = 0.0  # without waiting for ranks that start later

    def look(self, *, connected: bool) -> torch.device:
        """Looks at this rank's part of the machine; the device to train on.

        Raises SickNode where there are no other ranks to tell, and SettingsError as pick_device.
        """
        began = monotonic()
        self.problems = problems_here(self.device, self.ranks, self.expected)
        self._spent_s = monotonic() - began
        if not connected:
            agree.alone(self.problems)
        # A machine without its GPUs could name none; it only tells the others and leaves.
        return torch.device("cpu") if self.problems else pick_device(self.device, self.ranks)

    def agree(self, notes: Notes) -> None:
        """Raises SickNode or MachineError where any machine is sick.  Collective, over the notes."""
        agree.agree(notes, self.ranks, self.problems, self.timeout_s)

    def measure(self, session: Session, say: Callable[[str], None]) -> None:
        """Measures the network, and says how the check went.  Collective.  Raises MachineError for a wrong sum."""
        began = monotonic()
        network = measure(session)
        if session.device.type == "cuda":  # the training's own use of memory is what it reports
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(session.device)
        spent_s = self._spent_s + monotonic() - began
        found = f"; {network.sentence()}" if network else ""
        say(f"health check passed in {spent_s:.1f} s{found}")
        for warning in network.warnings(self.expected.gbps) if network else ():
            say(f"warning: {warning}")
