"""Muon on reshaped filters, and AdamW on the rest, against torch's own two applied by hand."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.optimizers.muon import build

CPU = torch.device("cpu")
needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon came with torch 2.9")

# What a user may do to a model between building the optimizer and training.
PREPARATIONS: dict[str, Callable[[nn.Module], object]] = {
    "as it is": lambda model: model,
    "channels last": lambda model: model.to(memory_format=torch.channels_last),
    "moved": lambda model: [setattr(weight, "data", weight.data.clone()) for weight in model.parameters()],
}


def model_of_four_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 3), nn.Linear(6, 8), nn.Linear(8, 2))


@needs_muon
@pytest.mark.parametrize("prepare", PREPARATIONS.values(), ids=PREPARATIONS.keys())
def test_it_is_torchs_muon_on_reshaped_filters_and_adamw_elsewhere(prepare: Callable[[nn.Module], object]) -> None:
    config = TrainConfig(optimizer="muon", lr=0.02, momentum=0.95, weight_decay=0.1)
    model, mirror = model_of_four_layers(), model_of_four_layers()
    optimizer = build(model, config, CPU)
    prepare(model)

    hidden = [mirror[1].weight, mirror[2].weight]
    matrices = [weight.detach().clone().flatten(1) for weight in hidden]
    muon = torch.optim.Muon(matrices, lr=0.02, momentum=0.95, weight_decay=0.1)
    adamw = torch.optim.AdamW(
        [
            {"params": [mirror[0].weight, mirror[3].weight], "weight_decay": 0.1},
            {"params": [layer.bias for layer in mirror], "weight_decay": 0.0},
        ],
        lr=0.001,
        fused=True,  # as ours is by default
    )
    for _ in range(3):
        for weight, other in zip(model.parameters(), mirror.parameters(), strict=True):
            other.grad = torch.randn_like(other)
            weight.grad = torch.empty_like(weight).copy_(other.grad)  # laid out as autograd does
        for matrix, weight in zip(matrices, hidden, strict=True):
            assert weight.grad is not None
            matrix.grad = weight.grad.flatten(1)
        for each in (optimizer, muon, adamw):
            each.step()

    for matrix, weight in zip(matrices, (model[1].weight, model[2].weight), strict=True):
        assert torch.equal(weight.detach().flatten(1), matrix)
    for index in (0, 3):
        assert torch.equal(model[index].weight, mirror[index].weight)
        assert torch.equal(model[index].bias, mirror[index].bias)


@needs_muon
def test_a_weight_without_gradient_stays_as_it_is() -> None:
    model = model_of_four_layers()
    optimizer = build(model, TrainConfig(optimizer="muon"), CPU)
    before = [weight.detach().clone() for weight in model.parameters()]
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_model_without_hidden_layers_is_refused() -> None:
    with pytest.raises(SettingsError, match="this model has none; take --optimizer adamw"):
        build(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), TrainConfig(optimizer="muon"), CPU)


def test_an_older_torch_is_refused_with_the_version_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    with pytest.raises(SettingsError, match=r"needs torch 2\.9 or newer"):
        build(model_of_four_layers(), TrainConfig(optimizer="muon"), CPU)
