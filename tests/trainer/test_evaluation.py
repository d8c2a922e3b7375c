"""Evaluation over several ranks equals one process's evaluation."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.trainer.ranks_here import alone, on_ranks
from trainer.config import TrainConfig
from trainer.datasets.base import Batch
from trainer.distributed.session import Session
from trainer.epoch import Score, evaluate_exactly
from trainer.state.snapshot import take, whole_weights
from trainer.training import Training, assemble

IMAGES = 1003  # prime-ish: divides by no world size and no batch size used here


def config(folder: Path, **settings: object) -> TrainConfig:
    return TrainConfig(
        dataset="synthetic", synthetic_images=100, image_size=8, device="cpu", precision="fp32",
        cache_dir=folder, **settings,
    )  # fmt: skip


class Noise:
    """An evaluation split of fixed random images; image i is the same on every rank."""

    size = IMAGES
    bad_images: tuple[str, ...] = ()

    def eval_batches(self, indices: range, batch_size: int):  # type: ignore[no-untyped-def]
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(self.size, 3, 8, 8, generator=generator)
        labels = torch.randint(0, 10, (self.size,), generator=generator)
        for start in range(0, len(indices), batch_size):
            chosen = list(indices[start : start + batch_size])
            yield Batch(images[chosen], labels[chosen])


def training_on_noise(session: Session, settings: TrainConfig, size: int = IMAGES) -> Training:
    training, noise = assemble(settings, session), Noise()
    noise.size = size
    object.__setattr__(training.data, "evaluation", noise)
    return training


def score(session: Session, settings: TrainConfig) -> Score:
    return evaluate_exactly(training_on_noise(session, settings))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, float, float]:
    """The slow truth: image by image, in float64, on one process."""
    training = training_on_noise(alone(), config(tmp_path_factory.mktemp("cache"), model="cnn", strategy="single"))
    model = training.wrapped.plain.eval()
    (images, labels) = next(Noise().eval_batches(range(IMAGES), IMAGES))
    with torch.no_grad():
        logits = torch.cat([model(image[None]) for image in images])
    best = logits.argsort(dim=1, descending=True)
    return (
        nn.functional.cross_entropy(logits.double(), labels).item(),
        (best[:, 0] == labels).double().mean().item(),
        (best[:, :5] == labels[:, None]).any(dim=1).double().mean().item(),
    )


@pytest.mark.parametrize(("world_size", "strategy"), [(1, "single"), (2, "ddp"), (3, "fsdp")])
def test_evaluation_counts_every_image_once_at_any_world_size(
    world_size: int, strategy: str, tmp_path: Path, expected: tuple[float, float, float]
) -> None:
    settings = config(tmp_path, model="cnn", strategy=strategy, eval_batch_size=64)
    loss, top1, top5 = expected
    scores = [score(alone(), settings)] if world_size == 1 else on_ranks(world_size, score, settings)
    for found in scores:
        assert (found.images, found.top1, found.top5) == (IMAGES, top1, top5)
        assert found.loss == pytest.approx(loss, abs=1e-6)


def statistics_as_seen(session: Session, settings: TrainConfig) -> list[float | None]:
    """A statistic that is its rank's number: in evaluation, afterwards, in the whole weights and in a checkpoint."""
    training = training_on_noise(session, settings, size=8)
    (mean,) = [b for name, b in training.wrapped.plain.named_buffers() if name == "bn1.running_mean"]
    mean.fill_(float(session.ranks.rank))
    seen = []
    training.wrapped.plain.bn1.register_forward_pre_hook(lambda *_: seen.append(mean.mean().item()))
    evaluate_exactly(training)
    kept = [whole_weights(training), take(training).get("model", {})]
    return [seen[0], mean.mean().item(), *(float(k["bn1.running_mean"].mean()) for k in kept if k)]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_what_is_evaluated_and_kept_has_the_mean_of_all_ranks_statistics_and_each_rank_keeps_its_own(
    strategy: str, tmp_path: Path
) -> None:
    settings = config(tmp_path, model="resnet18", strategy=strategy)
    (first, second) = on_ranks(2, statistics_as_seen, settings)
    assert first == [0.5, 0.0, 0.5, 0.5]
    assert second[:2] == [0.5, 1.0]
