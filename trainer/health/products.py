"""A short matrix product on one device, whose result is known exactly: a GPU that computes wrong trains wrong."""

import torch
from torch import Tensor

# Rows and products: on a GPU enough to load it for a moment, on a CPU a token.
GPU_SIZE, GPU_PRODUCTS = 4096, 50
CPU_SIZE, CPU_PRODUCTS = 256, 2


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
