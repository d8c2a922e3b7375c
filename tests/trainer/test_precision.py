"""The order of an update: scale, unscale, clip, step, update."""

import pytest
import torch
from torch import nn

from tests.trainer.ranks_here import on_ranks
from trainer.config import TrainConfig
from trainer.distributed.session import Session
from trainer.errors import SettingsError
from trainer.optimizers.precision import Stepper, pick_precision, warning_for_slow_precision
from trainer.optimizers.sgd import build
from trainer.strategies import fsdp

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


@pytest.mark.parametrize(
    ("capability", "chosen"), [((8, 0), "bf16"), ((7, 0), "fp16"), ((7, 5), "fp16"), ((6, 1), "fp32")]
)
def test_auto_knows_what_each_gpu_does_well(
    capability: tuple[int, int], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert pick_precision(TrainConfig(), torch.device("cuda", 0)) == chosen


@pytest.mark.parametrize(
    ("precision", "device", "has_bf16", "is_warned"),
    [
        ("fp32", "cpu", False, False),
        ("fp16", "cpu", True, True),
        ("bf16", "cpu", False, True),
        ("bf16", "cpu", True, False),
        ("fp16", "cuda", False, False),
    ],
)
def test_16_bits_that_a_cpu_has_no_hardware_for_are_warned_of(
    precision: str, device: str, has_bf16: bool, is_warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.optimizers.precision.cpu_has_bf16", lambda: has_bf16)

    warning = warning_for_slow_precision(precision, torch.device(device))

    assert (warning is not None) is is_warned


def test_amp_where_only_fp32_is_fast_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.optimizers.precision.cpu_has_bf16", lambda: False)
    with pytest.raises(SettingsError, match=r"--amp: this cpu .* drop --amp, or insist with --precision bf16"):
        pick_precision(TrainConfig(amp=True), CPU)


def fp16_updates_under_fsdp(session: Session) -> list[tuple[list[float], float]]:
    """The weights and the scale after an update, after one with an infinity on rank 1, and after another."""
    model = nn.Linear(1, 2, bias=False)  # a weight for each of two ranks
    nn.init.constant_(model.weight, 1.0)
    config = TrainConfig(strategy="fsdp", momentum=0.0, weight_decay=0.0)
    wrapped = fsdp.wrap(model, torch.rand(2, 1), config, session)
    optimizer = build(wrapped.plain, config, session.device)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    stepper = Stepper(optimizer, wrapped.plain.parameters(), scaler, clip_norm=1.0)
    seen = []
    for infinite in (False, True, False):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = wrapped.train(torch.tensor([[4.0]])).sum()
        stepper.backward(loss)
        if infinite and session.ranks.rank == 1:
            model.weight.grad.to_local().fill_(float("inf"))
        stepper.update(learning_rate=0.5**0.5)
        seen.append((model.weight.full_tensor().flatten().tolist(), scaler.get_scale()))
    return seen


def test_under_fsdp_an_infinity_on_one_rank_skips_the_update_on_all() -> None:
    for seen in on_ranks(2, fp16_updates_under_fsdp):
        (first, before), (second, halved), (third, after) = seen
        assert (before, halved, after) == (1024.0, 512.0, 512.0)
        assert first == pytest.approx([0.5, 0.5], abs=1e-3)  # gradient (4, 4), clipped to norm 1
        assert second == first
        assert third == pytest.approx([0.0, 0.0], abs=1e-3)
