import pytest
import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.optimizers.groups import decay_groups, use_fused


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
