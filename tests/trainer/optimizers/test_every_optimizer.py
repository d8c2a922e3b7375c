"""What the training loop relies on, for every optimizer of the table."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.config import TrainConfig
from trainer.errors import import_function
from trainer.optimizers import NAMES, TABLE
from trainer.optimizers.groups import decay_groups, use_fused
from trainer.state.snapshot import lay_out_as_weights

# ---- every optimizer


CPU = torch.device("cpu")
HERE = [name for name in NAMES if name != "muon" or hasattr(torch.optim, "Muon")]  # muon came with torch 2.9


def tiny_model(memory_format: torch.memory_format = torch.contiguous_format) -> nn.Module:
    """(B, 3, 4, 4) -> (B, 3): a first, two hidden and a last layer, with and without biases."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.Conv2d(4, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 1, stride=2),
        nn.Flatten(),
        nn.Linear(32, 3),
    )
    return model.to(memory_format=memory_format)


def optimizer_for(name: str, model: nn.Module, **settings: Any) -> torch.optim.Optimizer:
    optimizer = import_function(TABLE[name].build)(model, TrainConfig(optimizer=name, **settings), CPU)
    assert isinstance(optimizer, torch.optim.Optimizer)
    return optimizer


def loss_of(model: nn.Module, step: int) -> Tensor:
    draw = torch.Generator().manual_seed(step)
    return F.cross_entropy(model(torch.randn(8, 3, 4, 4, generator=draw)), torch.arange(8) % 3)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


def weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", HERE)
def test_it_has_each_parameter_once_at_the_usual_rate_and_decay(name: str) -> None:
    model = tiny_model()
    groups = optimizer_for(name, model).param_groups
    for group in groups:
        usual = TABLE[name].weight_decay if group["params"][0].ndim >= 2 else 0.0
        assert (group["weight_decay"], group["lr"]) == (usual, TABLE[name].peak_lr)
    held = [id(weight) for group in groups for weight in group["params"]]
    assert sorted(held) == sorted(id(weight) for weight in model.parameters())


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_resumed_run_ends_with_the_same_bits(name: str, memory_format: torch.memory_format, tmp_path: Path) -> None:
    model = tiny_model(memory_format)
    optimizer = optimizer_for(name, model)
    train(model, optimizer, range(3))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "saved.pt")
    train(model, optimizer, range(3, 6))

    saved = torch.load(tmp_path / "saved.pt", weights_only=True)
    resumed = tiny_model(memory_format)
    resumed.load_state_dict(saved["model"])
    restored = optimizer_for(name, resumed)
    restored.load_state_dict(saved["optimizer"])
    train(resumed, restored, range(3, 6))
    assert equal(weights(resumed), weights(model))


@pytest.mark.parametrize("name", HERE)
def test_channels_last_weights_take_the_same_steps(name: str) -> None:
    plain, channels_last = tiny_model(), tiny_model(torch.channels_last)
    for model in (plain, channels_last):
        train(model, optimizer_for(name, model, lr=1e-3), range(3))
    for ours, theirs in zip(weights(channels_last), weights(plain), strict=True):
        # Sums in another order; Muon's iteration rounds to bfloat16, which makes more of the difference.
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_what_another_layout_remembers_trains_on_as_it_was(name: str) -> None:
    """fsdp saves contiguous tensors, and other strategies keep weights as channels last."""

    def trained(*formats: torch.memory_format) -> list[Tensor]:
        model = tiny_model(formats[0])
        optimizer = import_function(TABLE[name].build)(model, TrainConfig(optimizer=name, lr=0.01), CPU)
        for memory_format in formats:
            model.to(memory_format=memory_format)
            saved = optimizer.state_dict()
            optimizer = import_function(TABLE[name].build)(model, TrainConfig(optimizer=name, lr=0.01), CPU)
            optimizer.load_state_dict(saved)
            lay_out_as_weights(optimizer)
            for weight in model.parameters():
                weight.grad = torch.sin(weight.detach() * 100)
            optimizer.step()
        return list(model.parameters())

    as_it_was = trained(torch.contiguous_format, torch.contiguous_format)
    for weight, expected in zip(trained(torch.contiguous_format, torch.channels_last), as_it_was, strict=True):
        assert torch.allclose(weight, expected, atol=1e-6)


# ---- groups


def test_frozen_weights_are_in_no_group() -> None:
    model = nn.Linear(2, 3)
    model.bias.requires_grad_(False)
    groups = decay_groups(model.parameters(), 0.01)
    assert [group["params"] for group in groups] == [[model.weight]]


@pytest.mark.parametrize(
    ("device", "asked", "fused"), [("cuda", None, True), ("cpu", None, True), ("cpu", False, None)]
)
def test_fused_kernels_are_taken_unless_asked_otherwise(device: str, asked: bool | None, fused: bool | None) -> None:
    assert use_fused(TrainConfig(fused=asked), torch.device(device)) is fused


@pytest.mark.parametrize(("asked", "fused"), [(None, None), (True, True), (False, None)])
def test_sharded_weights_get_fused_kernels_only_when_asked(asked: bool | None, fused: bool | None) -> None:
    assert use_fused(TrainConfig(strategy="fsdp", fused=asked), torch.device("cuda")) is fused
