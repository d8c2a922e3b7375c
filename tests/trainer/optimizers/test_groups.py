import pytest
import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.optimizers.groups import decay_groups, use_fused, weight_decay


def test_only_matrices_and_filters_decay() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 5))
    decayed, free = decay_groups(model.parameters(), 0.01)
    assert (decayed["weight_decay"], [tuple(p.shape) for p in decayed["params"]]) == (0.01, [(2, 1, 3, 3), (5, 2)])
    assert (free["weight_decay"], [tuple(p.shape) for p in free["params"]]) == (0.0, [(2,), (2,), (2,), (5,)])


def test_frozen_weights_are_in_no_group() -> None:
    model = nn.Linear(2, 3)
    model.bias.requires_grad_(False)
    groups = decay_groups(model.parameters(), 0.01)
    assert [group["params"] for group in groups] == [[model.weight]]


@pytest.mark.parametrize(
    ("device", "asked", "fused"),
    [("cuda", None, True), ("cpu", None, True), ("cpu", True, True), ("cpu", False, None), ("cuda", False, None)],
)
def test_fused_kernels_are_taken_unless_asked_otherwise(device: str, asked: bool | None, fused: bool | None) -> None:
    assert use_fused(TrainConfig(fused=asked), torch.device(device)) is fused


@pytest.mark.parametrize(("asked", "fused"), [(None, None), (True, True), (False, None)])
def test_sharded_weights_get_fused_kernels_only_when_asked(asked: bool | None, fused: bool | None) -> None:
    assert use_fused(TrainConfig(strategy="fsdp", fused=asked), torch.device("cuda")) is fused


@pytest.mark.parametrize(("optimizer", "usual"), [("sgd", 5e-4), ("adamw", 0.01), ("lars", 1e-4), ("muon", 0.01)])
def test_each_optimizer_has_its_usual_decay(optimizer: str, usual: float) -> None:
    assert weight_decay(TrainConfig(optimizer=optimizer)) == usual


def test_a_given_decay_wins_over_the_usual_one() -> None:
    assert weight_decay(TrainConfig(optimizer="adamw", weight_decay=0.0)) == 0.0
