"""LARS against its formula, written once more: You et al. 2017, algorithm 1."""

import sys

import pytest
import torch
from torch import Tensor, nn

from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.optimizers.lars import build

CPU = torch.device("cpu")
TRUST = 0.001


def reference_step(weight: Tensor, gradient: Tensor, velocity: Tensor, config: TrainConfig) -> None:
    """One update in place.  The rate is outside the velocity, as in torch: the same while it is constant."""
    assert config.weight_decay is not None
    update = gradient.clone()
    if weight.ndim >= 2:
        update += config.weight_decay * weight
        update *= TRUST * weight.norm() / (gradient.norm() + config.weight_decay * weight.norm())
    velocity.mul_(config.momentum).add_(update)
    assert config.lr is not None
    weight -= config.lr * (update + config.momentum * velocity if config.nesterov else velocity)


@pytest.mark.parametrize("nesterov", [False, True])
def test_its_steps_follow_the_formula(nesterov: bool) -> None:
    torch.manual_seed(0)
    config = TrainConfig(optimizer="lars", lr=2.0, momentum=0.9, weight_decay=0.01, nesterov=nesterov)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Linear(3, 4)).double()
    optimizer = build(model, config, CPU)
    expected = [weight.detach().clone() for weight in model.parameters()]
    velocities = [torch.zeros_like(weight) for weight in expected]
    for _ in range(5):
        for weight, mirror, velocity in zip(model.parameters(), expected, velocities, strict=True):
            weight.grad = torch.randn_like(weight)
            reference_step(mirror, weight.grad, velocity, config)
        optimizer.step()
    for weight, mirror in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.detach(), mirror)


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(SettingsError, match=r"pip install -c constraints\.txt -e \. in the checkout"):
        build(nn.Linear(2, 2), TrainConfig(optimizer="lars"), CPU)


def test_fused_is_refused() -> None:
    with pytest.raises(SettingsError, match="lars has no fused kernels; drop --fused"):
        build(nn.Linear(2, 2), TrainConfig(optimizer="lars", fused=True), CPU)
