"""The whole check, in the order in which a run goes through it."""

import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

import torch

from trainer.contract import FAILED_CHECK
from trainer.distributed.heartbeat import Notes
from trainer.distributed.ranks import Ranks
from trainer.distributed.session import Session
from trainer.errors import MachineError, SickNode
from trainer.health.expected import Expected
from trainer.health.network import measure
from trainer.health.node import problems_here
from trainer.process.machine import pick_device

LOOK_EVERY_S = 0.1
PLACE = "health"


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
            alone(self.problems)
        # A machine without its GPUs could name none; it only reports to the others and leaves.
        return torch.device("cpu") if self.problems else pick_device(self.device, self.ranks)

    def agree(self, notes: Notes) -> None:
        """Raises SickNode or MachineError where any machine is sick.  Collective, over the notes."""
        agree(notes, self.ranks, self.problems, self.timeout_s)

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


def agree(notes: Notes, ranks: Ranks, problems: Sequence[str], timeout_s: float) -> None:
    """Returns where no rank has problems.  Raises SickNode on machines with some, and MachineError on the others.

    Collective, over the notes alone.  One rank of each sick machine reports; the rest are silent.
    """
    if problems:
        notes.write(_key(ranks.rank), json.dumps([ranks.node_rank, socket.gethostname(), *problems]))
        notes.arrive(f"{PLACE}/sick")  # first: who has counted all ranks must find it
    here, until = notes.arrive(PLACE), time.monotonic() + timeout_s
    while here < ranks.world_size:
        if time.monotonic() > until:
            raise MachineError(
                f"{ranks.world_size - here} of {ranks.world_size} ranks did not end their health check in time "
                f"({timeout_s:g} s); start again."
            )
        time.sleep(LOOK_EVERY_S)  # a store can be waited on for a key, not for a count
        here = notes.arrived(PLACE)
    if notes.arrived(f"{PLACE}/sick"):
        raise verdict(ranks, _reports(notes))


def _key(rank: int) -> str:
    return f"{PLACE}/{rank}"


def _reports(notes: Notes) -> dict[int, list[str]]:
    texts = {rank: notes.read(_key(rank)) for rank in range(notes.world_size)}
    return {rank: json.loads(text) for rank, text in texts.items() if text is not None}


def verdict(ranks: Ranks, reports: Mapping[int, Sequence[object]]) -> MachineError:
    """The error of this rank.  reports: of ranks with problems: their machine's number and name, and the problems."""
    reported = {rank: (int(str(node)), str(host), problems) for rank, (node, host, *problems) in reports.items()}
    sick = sorted({node for node, _, _ in reported.values()})
    sentences = [_sentence([row for row in reported.values() if row[0] == node]) for node in sick]
    if ranks.node_rank not in sick:
        error = MachineError(f"{'; '.join(sentences)}; start again without it.")
        error.is_mine_to_report = False
        return error
    mine = SickNode(f"{sentences[sick.index(ranks.node_rank)]}; take another machine.")
    mine.is_mine_to_report = ranks.rank == min(rank for rank, row in reported.items() if row[0] == ranks.node_rank)
    return mine


def _sentence(rows: Sequence[tuple[int, str, Sequence[object]]]) -> str:
    node, host, _ = rows[0]
    problems = dict.fromkeys(str(problem) for _, _, found in rows for problem in found)
    return f"node {node} ({host}){FAILED_CHECK}{', '.join(problems)}"


def alone(problems: Sequence[str]) -> None:
    """agree() for a training without other ranks."""
    if problems:
        raise SickNode(f"{_sentence([(0, socket.gethostname(), problems)])}; take another machine.")
