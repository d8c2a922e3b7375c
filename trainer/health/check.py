"""The whole check, in the order in which a run goes through it, and what a rank looks at on its own machine."""

import json
import math
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

import torch
from torch import Tensor

from trainer.contract import FAILED_CHECK, NODE_GBPS, NODE_GPUS, NODE_XIDS
from trainer.distributed.heartbeat import Notes
from trainer.distributed.ranks import Ranks
from trainer.distributed.session import Session
from trainer.errors import MachineError, SettingsError, SickNode
from trainer.health import nvidia
from trainer.health.network import measure
from trainer.process.machine import pick_device

LOOK_EVERY_S = 0.1
PLACE = "health"


@dataclass(frozen=True)
class Expected:
    """What the launcher of a job knows about this machine.

    gpus, gbps: how many GPUs this machine should have and what its network should carry, in Gbit/s; None if
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


# For all products of a rank; the first use of a GPU takes seconds itself.
PRODUCTS_WITHIN_S = 90.0
# Rows and products: on a GPU enough to load it for a moment, on a CPU a token.
GPU_SIZE, GPU_PRODUCTS = 4096, 50
CPU_SIZE, CPU_PRODUCTS = 256, 2


def problems_here(device: str, ranks: Ranks, expected: Expected) -> list[str]:
    """The faults of this rank's part of the machine, a clause each; empty where it is fit.

    device: the setting of that name.  The first rank looks at what the whole machine has; each computes on its share
    of the GPUs, or on the CPU.
    """
    found = nvidia.xid_problems(expected.xids) if ranks.local_rank == 0 else []
    gpus = 0
    if device != "cpu":
        gpus = torch.cuda.device_count()
        if ranks.local_rank == 0:
            found += nvidia.look(expected.gpus) or _missing(gpus, expected)
    if found:
        return found  # products would only wait for it
    mine = range(ranks.local_rank, gpus, ranks.local_world_size)
    devices = [torch.device("cuda", index) for index in mine] or [torch.device("cpu")]
    return _within(PRODUCTS_WITHIN_S, devices, wrong_products)


def _missing(gpus: int, expected: Expected) -> list[str]:
    """What torch can use may be less than what nvidia-smi lists."""
    if expected.gpus is None or gpus >= expected.gpus:
        return []
    return [f"{gpus} of {expected.gpus} GPUs can be used"]


def _within(seconds: float, devices: list[torch.device], compute: Callable[[torch.device], str | None]) -> list[str]:
    """What `compute` finds on the devices, one after the other.  One that hangs is left behind, in its thread."""
    found: list[str] = []
    at = devices[0]

    def run() -> None:
        nonlocal at
        for at in devices:
            try:
                problem = compute(at)
            except RuntimeError as error:  # CUDA's, in many words
                problem = f"cannot compute ({str(error).splitlines()[0]})"
            if problem:
                found.append(f"{_named(at)}: {problem}")

    thread = threading.Thread(target=run, name="health", daemon=True)
    thread.start()
    thread.join(seconds)
    return [*found, f"{_named(at)}: no product within {seconds:g} s"] if thread.is_alive() else found


def _named(device: torch.device) -> str:
    return "its CPU" if device.type == "cpu" else f"GPU {device.index}"


def wrong_products(device: torch.device) -> str | None:
    """Checks products on `device`: a clause on what is wrong, or None.  Raises RuntimeError, as CUDA does.

    The factors hold -1, 0 and 1, mostly 0, so every sum is a whole number below 256, which each type and order of
    adding up gives exactly.
    """
    on_gpu = device.type == "cuda"
    size, products = (GPU_SIZE, GPU_PRODUCTS) if on_gpu else (CPU_SIZE, CPU_PRODUCTS)
    left, right, probe = factors(size)
    # Half precision is what tensor cores compute; on a CPU it is slow.
    for dtype in (torch.float32, torch.float16) if on_gpu else (torch.float32,):
        a, b = left.to(device, dtype), right.to(device, dtype)
        first = a @ b
        differing = sum(not torch.equal(a @ b, first) for _ in range(products - 1))
        name = str(dtype).removeprefix("torch.")
        if differing:
            return f"{differing} of {products} products of the same {name} matrices differ"
        if not is_product(left, right, first.cpu(), probe):
            return f"a product of {name} matrices is wrong"
    return None


def factors(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two matrices (size, size) of -1, 0 and 1, int8, and whole numbers (size,) float64 to probe a product with."""
    generator = torch.Generator().manual_seed(size)  # its own, so that the training's numbers stay as they are
    signs = torch.randint(0, 8, (2, size, size), generator=generator, dtype=torch.int8)
    left, right = (signs == 0).to(torch.int8) - (signs == 1).to(torch.int8)
    probe = torch.randint(1, 2**20, (size,), generator=generator, dtype=torch.int64).double()
    return left, right, probe


def is_product(left: Tensor, right: Tensor, product: Tensor, probe: Tensor) -> bool:
    """Whether `product` is left @ right, by Freivalds' test: one wrong entry passes it never, several once in 2**20.

    All sums are whole numbers below 2**53, so float64 has them exactly.
    """
    return torch.equal(product.double() @ probe, left.double() @ (right.double() @ probe))
