"""Whether a training fits into a GPU, and how fast a precision is there: as an H100 and this CPU took it."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from launch.core import catalog
from launch.core.estimate.forecast import Forecast, forecast, misfit, peak_gib
from launch.core.estimate.training import training
from launch.forecast.compare import compare
from launch.forecast.options import ForecastOptions
from trainer import models
from trainer.config import TrainConfig
from trainer.errors import SettingsError, import_function, look_up

# ---- memory


H100 = [
    ("resnet18", 256, "bf16", 3_435), ("resnet50", 256, "bf16", 11_441), ("vgg16", 128, "bf16", 7_608),
    ("convnext_tiny", 128, "bf16", 8_154), ("resnet50", 256, "fp32", 27_989), ("vit_b_16", 128, "fp16", 9_596),
]  # fmt: skip


def config(model: str, batch: int, precision: str = "bf16", **settings: Any) -> TrainConfig:
    return TrainConfig(model=model, dataset="imagenet", batch_size=batch, precision=precision, **settings)


@pytest.mark.parametrize(("model", "batch", "precision", "mib"), H100)
def test_peaks_of_an_h100_lie_within_the_range(model: str, batch: int, precision: str, mib: int) -> None:
    found = peak_gib(training(config(model, batch, precision), catalog.find("p5.4xlarge"), 1))

    assert found.best < mib / 1024 < found.worst
    assert found.value == pytest.approx(mib / 1024, rel=0.27)


@pytest.mark.parametrize(("model", "batch"), [("cnn", 64), ("resnet18", 8)])
def test_what_this_cpu_allocates_at_most_is_what_is_counted(model: str, batch: int) -> None:
    """All that is allocated and freed again in a step, summed up as the profiler saw it."""
    build = import_function(look_up("model", model, models.TABLE))
    network: nn.Module = build(model, 10, 32)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(batch, 3, 32, 32), torch.zeros(batch, dtype=torch.long)
    weights = sum(weight.numel() for weight in network.parameters()) * 4

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        for _ in range(2):  # from the second on the optimizer has its state
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()

    taken = peak = 0
    for event in seen.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            taken += event.nbytes()
            peak = max(peak, taken)
    small = TrainConfig(model=model, dataset="cifar10", batch_size=batch, precision="fp32", optimizer="sgd")
    expected = peak_gib(training(small, catalog.find("c5.4xlarge"), 1))
    assert expected.best < (peak + weights) / 2**30 < expected.worst


def test_a_batch_that_fits_nowhere_is_left_out_and_says_why() -> None:
    """The review's: vit_l_16 with 8,192 images on 22 GiB was recommended."""
    options = ForecastOptions(instance_type=("g5.2xlarge",), nodes=(1,))

    with pytest.raises(
        SettingsError, match=r"1 x g5.2xlarge: a batch of 8,192 does not fit into the 22.4 GiB of its A10G"
    ):
        compare(config("vit_l_16", 8192), options, [])
    found = compare(config("vit_l_16", 8), options, [])
    assert [candidate.name for candidate in found.offers] == ["g5.2xlarge"]
    both = compare(
        config("resnet50", 512), ForecastOptions(instance_type=("g5.2xlarge", "p5.48xlarge"), nodes=(1,)), []
    )
    assert any("may not fit" in note or "does not fit" in note for kind in both.notes.values() for note in kind)


def test_a_ramp_is_refused_for_the_batch_that_does_not_fit() -> None:
    grows = config("resnet50", 64, batch_ramp={0: 64, 4: 8192})
    where = catalog.find("g5.2xlarge")

    sentence, is_sure = misfit(training(grows, where, 1), where)

    assert sentence.startswith("a batch of 8,192 does not fit into the 22.4 GiB")
    assert is_sure


@pytest.mark.parametrize("name", ["g5.2xlarge", "p3.2xlarge"])
def test_batches_that_others_train_with_fit(name: str) -> None:
    """[lambda]: ResNet-50 with 256 images on 16 GB, 448 on 24 GB, 1,280 on 80 GB, in 16 bits."""
    batch = {"g5.2xlarge": 448, "p3.2xlarge": 256}[name]

    _, is_sure = misfit(training(config("resnet50", batch, "fp16"), catalog.find(name), 1), catalog.find(name))

    assert not is_sure


def test_fsdp_an_optimizer_and_an_average_count() -> None:
    def gib(**settings: Any) -> float:
        where = catalog.find("p4d.24xlarge")
        return peak_gib(training(config("vit_l_16", 1, **settings), where, 1)).value

    weights = 304_326_632 / 2**30
    assert gib(optimizer="adamw") - gib(optimizer="sgd") == pytest.approx(4 * weights, rel=0.01)
    assert gib(ema_decay=0.99) - gib() == pytest.approx(4 * weights, rel=0.01)
    assert gib() - gib(strategy="fsdp") == pytest.approx(12 * weights * 7 / 8, rel=0.01)


# ---- precision


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
