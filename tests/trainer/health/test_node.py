"""What a rank says of its machine, with GPUs that are not there."""

import threading
import time

import pytest
import torch

from trainer.distributed.ranks import Ranks
from trainer.health import check
from trainer.health.check import NOTHING_EXPECTED, Expected, factors, is_product, problems_here, wrong_products

FIRST, SECOND = Ranks(0, 2, 0, 2), Ranks(1, 2, 1, 2)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The GPUs on which a product is computed, of four."""
    computed: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(check.nvidia, "query", lambda: None)
    monkeypatch.setattr(check, "wrong_products", lambda device: computed.append(device.index))
    return computed


def test_the_ranks_of_a_machine_compute_on_all_of_its_gpus(gpus: list[int]) -> None:
    assert problems_here("auto", FIRST, Expected(gpus=4)) == []
    assert gpus == [0, 2]
    assert problems_here("auto", SECOND, Expected(gpus=4)) == []
    assert gpus == [0, 2, 1, 3]


def test_gpus_that_torch_cannot_use_are_counted_by_the_first_rank(gpus: list[int]) -> None:
    assert problems_here("auto", FIRST, Expected(gpus=8)) == ["4 of 8 GPUs can be used"]
    assert gpus == []
    assert problems_here("auto", SECOND, Expected(gpus=8)) == []


def test_what_a_gpu_says_when_it_cannot_compute_is_one_clause(gpus: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: torch.device) -> str | None:
        if device.index == 2:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be")
        return "a product of float32 matrices is wrong"

    monkeypatch.setattr(check, "wrong_products", fail)
    assert problems_here("auto", FIRST, NOTHING_EXPECTED) == [
        "GPU 0: a product of float32 matrices is wrong",
        "GPU 2: cannot compute (CUDA error: uncorrectable ECC error encountered)",
    ]


def test_a_gpu_that_hangs_is_named_and_nobody_waits_for_it(gpus: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    forever = threading.Event()
    monkeypatch.setattr(check, "wrong_products", lambda device: None if device.index == 0 else forever.wait(30))
    monkeypatch.setattr(check, "PRODUCTS_WITHIN_S", 0.1)
    began = time.monotonic()

    found = problems_here("auto", FIRST, NOTHING_EXPECTED)

    forever.set()
    assert found == ["GPU 2: no product within 0.1 s"]
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_every_type_has_the_sums_exactly(dtype: torch.dtype) -> None:
    """So that a difference is an error of the machine and never of rounding."""
    left, right, probe = factors(256)
    product = left.to(dtype) @ right.to(dtype)
    assert torch.equal(product.double(), left.double() @ right.double())
    assert is_product(left, right, product, probe)


@pytest.mark.parametrize("damage", [-(2.0**-10), float("nan"), float("inf")])
def test_a_single_wrong_entry_is_seen(damage: float) -> None:
    left, right, probe = factors(256)
    product = left.float() @ right.float()
    product[17, 200] += damage
    assert not is_product(left, right, product, probe)


def test_a_product_that_is_wrong_always_or_sometimes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    assert wrong_products(torch.device("cpu")) is None
    assert torch.equal(torch.get_rng_state(), before)  # the training's random numbers are as they were
    right, calls = torch.Tensor.__matmul__, iter(range(100))

    def always(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return right(a, b) + (a.dtype == torch.float32)

    def second(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return right(a, b) + (next(calls) == 1)

    monkeypatch.setattr(torch.Tensor, "__matmul__", always)
    assert wrong_products(torch.device("cpu")) == "a product of float32 matrices is wrong"
    monkeypatch.setattr(torch.Tensor, "__matmul__", second)
    assert wrong_products(torch.device("cpu")) == "1 of 2 products of the same float32 matrices differ"
