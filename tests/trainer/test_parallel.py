"""Data-parallel training is right: k ranks do what one rank does with the whole batch."""

from pathlib import Path

import pytest
import torch

from tests.trainer.ranks_here import alone, on_ranks
from trainer.config import TrainConfig, batches_at
from trainer.datasets.order import Order, positions
from trainer.distributed.session import Session
from trainer.loop import train_epoch
from trainer.metrics.counters import Stopwatch, Totals
from trainer.state.snapshot import whole_weights
from trainer.training import assemble

STEPS = 20


def config(folder: Path, **settings: object) -> TrainConfig:
    defaults = {
        "model": "cnn", "dataset": "synthetic", "synthetic_images": 64 * STEPS, "image_size": 8, "device": "cpu",
        "precision": "fp32", "cache_dir": folder, "lr": 0.05, "global_batch_size": 64,
    }  # fmt: skip
    return TrainConfig(**(defaults | settings))


def train(session: Session, settings: TrainConfig) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The global loss of each update, STEPS unless max_steps says otherwise, and the weights afterwards."""
    training = assemble(settings, session)
    batches = batches_at(settings, 0, training.wrapped.replicas)
    where = positions(batches, training.wrapped.first_replica, 1, 0, settings.max_steps or STEPS)
    loader = training.data.train.train_batches(Order(training.data.train.size, settings.seed, 0), where)
    losses, totals = [], Totals(session.device)
    steps = train_epoch(
        training.step_context,
        loader,
        lambda step: 0.05,
        totals,
        Stopwatch(session.device),
        accumulate=batches.accumulate,
    )
    for _ in steps:
        loss, _, images = session.sum(totals.sums.clone()).tolist()
        losses.append(loss / images)
        totals.sums.zero_()
    weights = whole_weights(training)
    return losses, weights if session.ranks.is_head else {}


# Everything that two ranks do is done by one pair of processes: starting them takes longest.
EXACT = {
    "ddp": {"strategy": "ddp"},
    "fsdp": {"strategy": "fsdp"},
    "ddp accumulating": {"strategy": "ddp", "accumulate": 2},
    "fsdp accumulating": {"strategy": "fsdp", "accumulate": 2},
    "ddp clipped": {"strategy": "ddp", "clip_norm": 0.1},
    "fsdp clipped": {"strategy": "fsdp", "clip_norm": 0.1},
    "fsdp lars": {"strategy": "fsdp", "optimizer": "lars"},
    "ddp muon": {"strategy": "ddp", "optimizer": "muon", "max_steps": 1},
    "ddp static": {"strategy": "ddp", "static_graph": True, "gradient_as_bucket_view": False, "bucket_cap_mb": 0.1},
}
TOLERANCE = {"fp16": 5e-3, "bf16": 3e-2, "powersgd": 0.3}
LOSSY = {hook: {"strategy": "ddp", "comm_hook": hook} for hook in TOLERANCE}

Trained = tuple[list[float], dict[str, torch.Tensor]]


def train_all(session: Session, folder: Path) -> dict[str, Trained]:
    return {name: train(session, config(folder, **settings)) for name, settings in (EXACT | LOSSY).items()}


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Trained]]:
    return on_ranks(2, train_all, tmp_path_factory.mktemp("cache"))


# LARS divides by small gradient norms and Muon orthogonalises in bf16: both enlarge the rounding of a sum.
# Under Muon it grows from update to update, so the first one is compared; its rate is 0.05.
ENLARGED = {"fsdp lars": 1e-4, "ddp muon": 1e-3}


def assert_same(found: Trained, reference: Trained, tolerance: float = 1e-5) -> None:
    assert found[0] == pytest.approx(reference[0], abs=tolerance)
    for name, weight in found[1].items():
        torch.testing.assert_close(weight, reference[1][name], atol=tolerance, rtol=1e-4)


def alike(name: str) -> dict[str, object]:
    """What a single process does as well."""
    return {key: value for key, value in EXACT[name].items() if key in ("clip_norm", "optimizer", "max_steps")}


@pytest.mark.parametrize("name", EXACT)
def test_two_ranks_of_32_equal_one_rank_of_64(
    name: str, on_two_ranks: list[dict[str, Trained]], tmp_path: Path
) -> None:
    reference = train(alone(), config(tmp_path, strategy="single", **alike(name)))
    for rank in on_two_ranks:
        assert_same(rank[name], reference, ENLARGED.get(name, 1e-5))


def of_48(session: Session, folder: Path, names: list[str]) -> dict[str, Trained]:
    return {name: train(session, config(folder, **EXACT[name], global_batch_size=48)) for name in names}


@pytest.mark.slow("three ranks do what one process does with the whole batch")
def test_three_ranks_equal_one_process(tmp_path: Path) -> None:
    names = ["ddp accumulating", "fsdp", "fsdp clipped"]
    found = on_ranks(3, of_48, tmp_path, names)
    for name in names:
        reference = train(alone(), config(tmp_path, strategy="single", global_batch_size=48, **alike(name)))
        for rank in found:
            assert_same(rank[name], reference)


def test_accumulating_gradients_equals_the_large_batch(tmp_path: Path) -> None:
    assert_same(
        train(alone(), config(tmp_path, strategy="single", accumulate=4)),
        train(alone(), config(tmp_path, strategy="single")),
    )


@pytest.mark.parametrize("hook", LOSSY)
def test_compressed_gradients_train_almost_alike(
    hook: str, on_two_ranks: list[dict[str, Trained]], tmp_path: Path
) -> None:
    losses, _ = train(alone(), config(tmp_path, strategy="single"))
    (found, _), (other, _) = (rank[hook] for rank in on_two_ranks)
    assert found == other
    assert found == pytest.approx(losses, abs=TOLERANCE[hook])
    assert found != pytest.approx(losses, abs=1e-7)  # something was compressed
