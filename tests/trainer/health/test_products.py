"""A wrong matrix product is seen, and a right one is not."""

import pytest
import torch

from trainer.health import products
from trainer.health.products import factors, is_product, wrong_products


def test_a_cpu_multiplies_right() -> None:
    assert wrong_products(torch.device("cpu")) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_every_type_has_the_sums_exactly(dtype: torch.dtype) -> None:
    """So that a difference is an error of the machine and never of rounding."""
    left, right, probe = factors(256)
    product = left.to(dtype) @ right.to(dtype)
    assert torch.equal(product.double(), left.double() @ right.double())
    assert is_product(left, right, product, probe)


def test_sums_of_the_size_for_gpus_are_exact_in_bfloat16() -> None:
    """A row's sum has a deviation of sqrt(size / 16), so 256 is 16 of them away."""
    assert (products.GPU_SIZE / 16) ** 0.5 * 16 <= 256


@pytest.mark.parametrize("damage", [1.0, -(2.0**-10), float("nan"), float("inf")])
@pytest.mark.parametrize("place", [(0, 0), (17, 200), (255, 255)])
def test_a_single_wrong_entry_is_seen(damage: float, place: tuple[int, int]) -> None:
    left, right, probe = factors(256)
    product = left.float() @ right.float()
    product[place] += damage
    assert not is_product(left, right, product, probe)


def test_a_product_that_is_wrong_at_once_or_now_and_then_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    right, calls = torch.Tensor.__matmul__, iter(range(100))

    def always(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return right(a, b) + (a.dtype == torch.float32)

    def second(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return right(a, b) + (next(calls) == 1)

    monkeypatch.setattr(torch.Tensor, "__matmul__", always)
    assert wrong_products(torch.device("cpu")) == "a product of float32 matrices is wrong"
    monkeypatch.setattr(torch.Tensor, "__matmul__", second)
    assert wrong_products(torch.device("cpu")) == "1 of 2 products of the same float32 matrices differ"


def test_the_check_leaves_the_trainings_random_numbers_as_they_are() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    wrong_products(torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
