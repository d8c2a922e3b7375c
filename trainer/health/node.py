"""What is wrong with this machine: looked at by its ranks before they meet, so that none waits for a sick GPU."""

import threading
from collections.abc import Callable

import torch
from torch import Tensor

from trainer.distributed.ranks import Ranks
from trainer.health import nvidia
from trainer.health.expected import Expected

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
