"""The order of an update: scale, unscale, clip, step, update."""

import pytest
import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.precision import Stepper, gradient_scaler, pick_precision

CPU = torch.device("cpu")


def model_with_weight(value: float) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, value)
    return model


def stepper_for(model: nn.Module, *, scaled: bool, clip_norm: float | None = None) -> Stepper:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    return Stepper(torch.optim.SGD(model.parameters(), lr=0.0), model.parameters(), scaler, clip_norm)


def test_gradients_are_unscaled_before_they_are_clipped() -> None:
    model = model_with_weight(1.0)
    stepper = stepper_for(model, scaled=True, clip_norm=1.0)
    stepper.backward(model(torch.tensor([[0.5]])).sum())  # gradient 0.5, scaled 512
    stepper.update(learning_rate=1.0)
    assert model.weight.item() == 0.5  # clipping the scaled gradient would have left 1 - 1/1024


def test_a_large_gradient_is_clipped_to_the_norm() -> None:
    model = model_with_weight(1.0)
    stepper = stepper_for(model, scaled=True, clip_norm=1.0)
    stepper.backward(model(torch.tensor([[8.0]])).sum())
    stepper.update(learning_rate=1.0)
    assert model.weight.item() == pytest.approx(0.0, abs=1e-5)


def test_an_infinite_gradient_skips_the_update_and_halves_the_scale() -> None:
    model = model_with_weight(1.0)
    stepper = stepper_for(model, scaled=True)
    stepper.backward(model(torch.tensor([[float("inf")]])).sum())
    stepper.update(learning_rate=1.0)
    assert (model.weight.item(), stepper.scaler.get_scale()) == (1.0, 512.0)


def test_gradients_are_cleared_after_an_update_and_gathered_before_it() -> None:
    model = model_with_weight(1.0)
    stepper = stepper_for(model, scaled=False)
    for _ in range(2):
        stepper.backward(model(torch.tensor([[1.0]])).sum())
    stepper.update(learning_rate=0.25)
    assert (model.weight.item(), model.weight.grad) == (0.5, None)


def test_only_fp16_is_scaled() -> None:
    assert [gradient_scaler(name, CPU).is_enabled() for name in ("fp32", "fp16", "bf16")] == [False, True, False]


@pytest.mark.parametrize(
    ("settings", "chosen"), [({"amp": False}, "fp32"), ({"precision": "bf16"}, "bf16"), ({"precision": "fp16"}, "fp16")]
)
def test_what_the_user_asks_for_is_taken(settings: dict[str, object], chosen: str) -> None:
    assert pick_precision(TrainConfig(**settings), CPU) == chosen


@pytest.mark.parametrize(
    ("capability", "chosen"), [((8, 0), "bf16"), ((7, 0), "fp16"), ((7, 5), "fp16"), ((6, 1), "fp32")]
)
def test_auto_knows_what_each_gpu_does_well(
    capability: tuple[int, int], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert pick_precision(TrainConfig(), torch.device("cuda", 0)) == chosen
