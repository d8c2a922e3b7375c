"""Evaluation over all ranks that equals one process's: every image counts once, whatever the world size."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import isfinite
from time import perf_counter

import torch

from trainer.batches import batches_at
from trainer.datasets.base import UNREADABLE, Batch
from trainer.datasets.encoded import refuse_none_readable
from trainer.distributed.sampler import shard
from trainer.errors import TrainingError
from trainer.loop import evaluate
from trainer.schedule import peak_lr
from trainer.state.statistics import averaged_statistics
from trainer.training import Training


@dataclass(frozen=True)
class Score:
    """The result of an evaluation.  loss: mean cross-entropy; top1, top5: shares of right answers, 0 to 1;
    seconds: wall time of this rank.
    """

    loss: float
    top1: float
    top5: float
    images: int
    seconds: float


def evaluate_exactly(training: Training) -> Score:
    """The score on the whole evaluation split, the same on every rank.  Collective.

    Each rank evaluates its unpadded share; sums in float64 are added up once at the end.
    Raises TrainingError if the loss is not finite, and DataError if no image could be read.
    """
    began = perf_counter()
    session, split = training.session, training.data.evaluation
    with averaged_statistics(training), _averaged_weights(training):
        sums = evaluate(training.wrapped.plain, _share(training), training.trainee.autocast, session.device)
    loss, top1, top5, images = session.sum(sums).tolist()
    skipped = sum(len(names) for names in session.gather(list(split.bad_images)))
    assert split.size - skipped <= images <= split.size, f"{images:g} of {split.size} images were counted"
    refuse_none_readable(images, "the evaluation")
    if not isfinite(loss):
        raise TrainingError(
            "the evaluation loss is not finite, so the weights are not either; earlier checkpoints are untouched. "
            f"Start again with a lower --lr (it was {peak_lr(training.config):g}) or --clip-norm 1."
        )
    return Score(loss / images, top1 / images, top5 / images, int(images), perf_counter() - began)


def _averaged_weights(training: Training) -> AbstractContextManager[None]:
    return training.ema.applied() if training.ema else nullcontext()


def _share(training: Training) -> Iterator[Batch]:
    ranks, split = training.session.ranks, training.data.evaluation
    size = _batch_size(training)
    batches = _reporting_progress(training, split.eval_batches(shard(split.size, ranks.rank, ranks.world_size), size))
    if not training.wrapped.collective_forward:
        return batches
    longest = -(-len(shard(split.size, 0, ranks.world_size)) // size)
    return _padded(batches, longest, _blank(training))


def _batch_size(training: Training) -> int:
    """The batch size of evaluation: by default twice that of training, as there are no gradients to store."""
    config = training.config
    trained = batches_at(config, min(training.progress.epoch, config.epochs - 1), training.wrapped.replicas)
    return config.eval_batch_size or 2 * trained.per_replica


def _reporting_progress(training: Training, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Passes `batches` on and notes progress at each, so that the other ranks see that this one is alive."""
    for batch in batches:
        training.session.moved()
        yield batch


def _padded(batches: Iterator[Batch], count: int, blank: Batch) -> Iterator[Batch]:
    """Pads `batches` with `blank` up to `count`: all ranks must gather sharded weights equally often."""
    given = 0
    for given, batch in enumerate(batches, start=1):  # noqa: B007  counted for the line below
        yield batch
    yield from (blank for _ in range(count - given))


def _blank(training: Training) -> Batch:
    side, device = training.data.image_size, training.session.device
    return Batch(torch.zeros(1, 3, side, side, device=device), torch.full((1,), UNREADABLE, device=device))
