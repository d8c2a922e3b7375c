"""The moving average of weights: its values, and that the model gets its own weights back."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from trainer.training import WeightAverage


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def one_weight(value: float) -> nn.Module:
    model = nn.Linear(1, 1, bias=False)
    set_weight(model, value)
    return model


def set_weight(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(value)


def bits(model: nn.Module) -> list[Tensor]:
    return [weight.detach().clone() for weight in model.parameters()]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_first_updates_forget_the_initial_weights() -> None:
    model = one_weight(0.0)
    average = WeightAverage(model, decay=0.999)
    set_weight(model, 1.0)
    seen = []
    for _ in range(3):
        seen.append(round(average.decay(), 4))
        average.update()
    assert seen == [0.1, 0.1818, 0.25]
    with average.applied():
        assert bits(model)[0].item() == pytest.approx(1 - 0.1 * 2 / 11 * 0.25)


def test_the_model_gets_its_own_weights_back_bit_for_bit() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    average = WeightAverage(model, decay=0.9)
    set_weight(model, 1 / 3)
    own = bits(model)
    with average.applied():
        assert not equal(bits(model), own)
    assert equal(bits(model), own)


@pytest.mark.usefixtures("one_rank")
def test_a_sharded_model_evaluates_the_average_though_it_has_gathered_its_own_weights() -> None:
    model = fully_shard(one_weight(0.0), mesh=init_device_mesh("cpu", (1,)))
    average = WeightAverage(model, decay=0.05)
    for weight in model.parameters():
        torch.nn.init.ones_(weight)
    average.update()
    image = torch.ones(1, 1)
    with torch.no_grad():
        assert model(image).item() == 1.0
        with average.applied():
            assert model(image).item() == pytest.approx(0.95)
        assert model(image).item() == 1.0
