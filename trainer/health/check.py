"""The health check: faults of each rank's machine, agreement between ranks, and the network."""

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
from trainer.distributed.heartbeat import SharedState
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
    """What the launcher of a job knows about this machine."""

    gpus: int | None = None  # number of GPUs; None if unknown
    gbps: float | None = None  # network bandwidth in Gbit/s; None if unknown
    xids: tuple[int, ...] = ()  # NVIDIA's Xid errors in the kernel's log


NOTHING_EXPECTED = Expected()


def read_expected(env: Mapping[str, str]) -> Expected:
    """Read the expected machine from `env`.  Raises SettingsError for a variable that is not a number."""
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
    """The check of one rank: look(), then agree() once the ranks' store is connected, then measure()."""

    device: str  # the setting --device
    timeout_s: float  # the setting --timeout-s
    ranks: Ranks
    expected: Expected
    problems: list[str] = field(default_factory=list)
    _spent_s: float = 0.0  # without the time spent waiting for other ranks

    def look(self, *, connected: bool) -> torch.device:
        """Check this rank's part of the machine, and return the device to train on.

        Raises SettingsError like pick_device(), and SickNode if there are no other ranks to inform first.
        """
        began = monotonic()
        self.problems = problems_here(self.device, self.ranks, self.expected)
        self._spent_s = monotonic() - began
        if not connected:
            raise_if_sick(self.problems)
        # A sick machine may have no GPU; it only reports to the others and exits.
        return torch.device("cpu") if self.problems else pick_device(self.device, self.ranks)

    def agree(self, shared: SharedState) -> None:
        """Raise SickNode or MachineError if any machine is sick.  Collective, through the store."""
        agree(shared, self.ranks, self.problems, self.timeout_s)

    def measure(self, session: Session, say: Callable[[str], None]) -> None:
        """Measure the network and print the result.  Collective.  Raises MachineError for a wrong sum."""
        began = monotonic()
        network = measure(session)
        if session.device.type == "cuda":  # the training must report only its own use of memory
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(session.device)
        spent_s = self._spent_s + monotonic() - began
        found = f"; {network.sentence()}" if network else ""
        say(f"health check passed in {spent_s:.1f} s{found}")
        for warning in network.warnings(self.expected.gbps) if network else ():
            say(f"warning: {warning}")


def agree(shared: SharedState, ranks: Ranks, problems: Sequence[str], timeout_s: float) -> None:
    """Raise SickNode on machines with problems, and MachineError on all others, if any rank has problems.

    Collective, through the store only.  One rank of each sick machine reports; the others are silent.
    """
    if problems:
        shared.write(_key(ranks.rank), json.dumps([ranks.node_rank, socket.gethostname(), *problems]))
        shared.arrive(f"{PLACE}/sick")  # before the count of ranks below: a rank that sees all of them must see this
    here, until = shared.arrive(PLACE), time.monotonic() + timeout_s
    while here < ranks.world_size:
        if time.monotonic() > until:
            raise MachineError(
                f"{ranks.world_size - here} of {ranks.world_size} ranks did not finish their health check in time "
                f"({timeout_s:g} s); start again."
            )
        time.sleep(LOOK_EVERY_S)  # a store can wait for a key, but not for a count
        here = shared.arrived(PLACE)
    if shared.arrived(f"{PLACE}/sick"):
        raise verdict(ranks, _reports(shared))


def _key(rank: int) -> str:
    return f"{PLACE}/{rank}"


def _reports(shared: SharedState) -> dict[int, list[str]]:
    texts = {rank: shared.read(_key(rank)) for rank in range(shared.world_size)}
    return {rank: json.loads(text) for rank, text in texts.items() if text is not None}


def verdict(ranks: Ranks, reports: Mapping[int, Sequence[object]]) -> MachineError:
    """The error of this rank.  reports: by rank with problems: the node's number, its host name and the problems."""
    reported = {rank: (int(str(node)), str(host), problems) for rank, (node, host, *problems) in reports.items()}
    sick = sorted({node for node, _, _ in reported.values()})
    sentences = [_sentence([row for row in reported.values() if row[0] == node]) for node in sick]
    if ranks.node_rank not in sick:
        error = MachineError(f"{'; '.join(sentences)}; start again without it.")
        error.is_mine_to_report = False
        return error
    error = SickNode(f"{sentences[sick.index(ranks.node_rank)]}; take another machine.")
    error.is_mine_to_report = ranks.rank == min(rank for rank, row in reported.items() if row[0] == ranks.node_rank)
    return error


def _sentence(rows: Sequence[tuple[int, str, Sequence[object]]]) -> str:
    node, host, _ = rows[0]
    problems = dict.fromkeys(str(problem) for _, _, found in rows for problem in found)
    return f"node {node} ({host}){FAILED_CHECK}{', '.join(problems)}"


def raise_if_sick(problems: Sequence[str]) -> None:
    """Raise SickNode if there are problems; agree() for a training without other ranks."""
    if problems:
        raise SickNode(f"{_sentence([(0, socket.gethostname(), problems)])}; take another machine.")


# Time limit for all products of a rank; initialising a GPU takes seconds.
PRODUCTS_WITHIN_S = 90.0
# Size and number of the matrix products: enough to load a GPU for a moment; on a CPU only a few.
GPU_SIZE, GPU_PRODUCTS = 4096, 50
CPU_SIZE, CPU_PRODUCTS = 256, 2


def problems_here(device: str, ranks: Ranks, expected: Expected) -> list[str]:
    """The faults of this rank's part of the machine, a clause each; empty if it is healthy.

    device: the setting --device.  The first rank checks the machine as a whole; each computes products on its share of
    the GPUs, or on the CPU.
    """
    found = nvidia.xid_problems(expected.xids) if ranks.local_rank == 0 else []
    gpus = 0
    if device != "cpu":
        gpus = torch.cuda.device_count()
        if ranks.local_rank == 0:
            found += nvidia.look(expected.gpus) or _missing(gpus, expected)
    if found:
        return found  # products might hang
    indices = range(ranks.local_rank, gpus, ranks.local_world_size)
    devices = [torch.device("cuda", index) for index in indices] or [torch.device("cpu")]
    return _within(PRODUCTS_WITHIN_S, devices, wrong_products)


def _missing(gpus: int, expected: Expected) -> list[str]:
    """A clause if torch can use fewer GPUs than expected: nvidia-smi may list more."""
    if expected.gpus is None or gpus >= expected.gpus:
        return []
    return [f"{gpus} of {expected.gpus} GPUs can be used"]


def _within(seconds: float, devices: list[torch.device], compute: Callable[[torch.device], str | None]) -> list[str]:
    """The problems that `compute` finds on the devices, in turn.  If it hangs, its thread is abandoned."""
    found: list[str] = []
    at = devices[0]

    def run() -> None:
        nonlocal at
        for at in devices:
            try:
                problem = compute(at)
            except RuntimeError as error:  # CUDA's, with many lines
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
    """Check matrix products on `device`: a clause on what is wrong, or None.  Raises RuntimeError for CUDA errors.

    The factors are -1, 0 and 1, mostly 0, so all sums are integers below 256, which are exact in every type and order
    of summation.
    """
    on_gpu = device.type == "cuda"
    size, products = (GPU_SIZE, GPU_PRODUCTS) if on_gpu else (CPU_SIZE, CPU_PRODUCTS)
    left, right, probe = factors(size)
    # float16 uses the tensor cores; on a CPU it is slow.
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
    """Two matrices (size, size) of -1, 0 and 1, int8, and a probe (size,) of integers, float64, for is_product()."""
    generator = torch.Generator().manual_seed(size)  # separate, so that the training's random numbers do not change
    signs = torch.randint(0, 8, (2, size, size), generator=generator, dtype=torch.int8)
    left, right = (signs == 0).to(torch.int8) - (signs == 1).to(torch.int8)
    probe = torch.randint(1, 2**20, (size,), generator=generator, dtype=torch.int64).double()
    return left, right, probe


def is_product(left: Tensor, right: Tensor, product: Tensor, probe: Tensor) -> bool:
    """Whether `product` is left @ right, by Freivalds' algorithm.

    It finds any single wrong entry, and misses several with probability 2**-20.  All sums are integers below 2**53, so
    float64 is exact.
    """
    return torch.equal(product.double() @ probe, left.double() @ (right.double() @ probe))
