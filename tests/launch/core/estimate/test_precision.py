"""What a precision really gives on a device: only what its hardware computes in is quick."""

import pytest

from launch.core import catalog
from launch.core.estimate.forecast import Forecast, forecast
from launch.core.estimate.training import training
from trainer.config import TrainConfig


def expect(name: str, precision: str) -> Forecast:
    instance = catalog.find(name)
    config = TrainConfig(model="resnet18", dataset="cifar10", batch_size=128, precision=precision)
    return forecast(training(config, instance, 1, gpus=1), instance)


@pytest.mark.parametrize(("name", "precision", "least"), [
    ("c5.4xlarge", "bf16", 5.0), ("c5.4xlarge", "fp16", 5.0), ("c7i.4xlarge", "fp16", 5.0),
    ("g4dn.xlarge", "bf16", 1.3), ("p3.2xlarge", "bf16", 1.3),
])  # fmt: skip
def test_a_precision_that_the_hardware_lacks_takes_longer_than_fp32(name: str, precision: str, least: float) -> None:
    """Measured on a core without AVX512_BF16: bf16 takes ten times as long."""
    guess, whole = expect(name, precision), expect(name, "fp32")

    assert guess.epoch_s > least * whole.epoch_s
    assert any(f"does not compute in {precision}" in note for note in guess.notes)


@pytest.mark.parametrize(("name", "precision"), [
    ("c7i.4xlarge", "bf16"), ("g4dn.xlarge", "fp16"), ("g4dn.xlarge", "auto"), ("g5.2xlarge", "bf16"),
    ("p5.48xlarge", "bf16"), ("p3.2xlarge", "fp16"),
])  # fmt: skip
def test_one_that_it_has_is_quicker(name: str, precision: str) -> None:
    guess = expect(name, precision)

    assert guess.epoch_s < expect(name, "fp32").epoch_s
    assert not any("does not compute" in note for note in guess.notes)


def test_auto_on_an_old_cpu_is_fp32() -> None:
    assert expect("c5.4xlarge", "auto").epoch_s == expect("c5.4xlarge", "fp32").epoch_s
