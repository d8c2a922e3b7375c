"""What is wrong with this machine: looked at by its ranks before they meet, so that none waits for a sick GPU."""

import threading
from collections.abc import Callable

import torch

from trainer.distributed.ranks import Ranks
from trainer.health import nvidia
from trainer.health.expected import Expected
from trainer.health.products import wrong_products

# For all products of a rank; the first use of a GPU takes seconds itself.
PRODUCTS_WITHIN_S = 90.0


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
