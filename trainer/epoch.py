"""One epoch of training: runs the loop, and checks the loss, saves and stops between updates."""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from math import isfinite
from time import perf_counter

import torch

from trainer.config import Batches, batches_at
from trainer.datasets.base import UNREADABLE, Batch
from trainer.datasets.encoded import refuse_none_readable
from trainer.datasets.order import Order, positions, shard, updates_left
from trainer.distributed.agreement import Agreement
from trainer.errors import Interrupted, SettingsError, TrainingError
from trainer.loop import evaluate, train_epoch
from trainer.metrics.counters import Stopwatch
from trainer.metrics.probe import Communication, measure
from trainer.metrics.progress import Bar
from trainer.optimizers.schedule import learning_rate, peak_lr, updates_after
from trainer.state.snapshot import averaged_statistics
from trainer.training import Training


@dataclass(frozen=True)
class EpochResult:
    """The result of one epoch of training over all ranks.  Times are this rank's."""

    loss: float
    top1: float
    learning_rate: float  # of the last update
    global_batch: int
    accumulate: int  # passes per update
    updates: int  # in this epoch
    images: int
    seconds: float
    phases_ms: dict[str, float]  # per update


def train_one_epoch(
    training: Training, epoch: int, agreement: Agreement, bar: Bar, save: Callable[[], str]
) -> EpochResult:
    """Train the rest of `epoch`.  Collective.

    save: starts writing a checkpoint and returns its path.  Raises Interrupted after a final save, and
    TrainingError for a loss that is not finite.
    """
    progress = training.progress
    batches = batches_at(training.config, epoch, training.wrapped.replicas)
    first, updates = progress.epoch_updates, _updates_to_do(training, batches)
    rate = _rates(training, epoch, batches)
    watch = Stopwatch(training.session.device, batches.accumulate)
    bar.start(epoch, first, first + updates, _updates_of_later_epochs(training, epoch))
    before, began = progress.seconds, perf_counter()
    with closing(_loader(training, epoch, batches, updates)) as loader, closing(bar):
        steps = train_epoch(
            training.step_context, loader, rate, training.totals, watch, first_step=first, accumulate=batches.accumulate
        )
        for step in steps:
            progress.learning_rate = rate(step - 1)
            progress.epoch_updates, progress.updates = step, progress.updates + 1
            progress.images += batches.per_update
            progress.seconds = before + perf_counter() - began
            if training.ema:
                training.ema.update()
            bar.advance()
            if agreement.due() or step == first + updates:
                _check(training, agreement, bar, save, epoch_ends=step == first + updates)
    progress.seconds = before + perf_counter() - began
    return _result(training, batches, watch)


def is_epoch_complete(training: Training) -> bool:
    """Whether the current epoch has no updates left; otherwise this run, or one that resumes it, continues it."""
    progress = training.progress
    batches = batches_at(training.config, progress.epoch, training.wrapped.replicas)
    return updates_left(training.data.train.size, progress.images, batches) == 0


def _check(training: Training, agreement: Agreement, bar: Bar, save: Callable[[], str], *, epoch_ends: bool) -> None:
    """Check the loss, and save or stop if it is time to.  Collective."""
    verdict = agreement.reach(training.totals.first_bad, epoch_ends=epoch_ends)
    if verdict.bad_step is not None:
        raise TrainingError(_not_finite(training, verdict.bad_step))
    bar.show(training.totals)
    if verdict.stop:
        path = save()
        raise Interrupted(f"stopped on request in epoch {training.progress.epoch + 1}; saved in {path}.")
    if verdict.save:
        save()
        agreement.saved()


def _not_finite(training: Training, step: int) -> str:
    config, epoch = training.config, training.progress.epoch
    fp16 = " or --precision fp32" if training.precision == "fp16" else ""
    return (
        f"the loss is not finite from update {step + 1} of epoch {epoch + 1} on; earlier checkpoints are untouched. "
        f"Start again with a lower --lr (it was {peak_lr(config):g}), --clip-norm 1, --warmup-epochs 1{fp16}."
    )


def _updates_to_do(training: Training, batches: Batches) -> int:
    """Updates to do in the current epoch: all that are left, or as many as --max-steps allows."""
    progress, limit = training.progress, training.config.max_steps
    left = updates_left(training.data.train.size, progress.images, batches)
    return left if limit is None else min(left, max(0, limit - progress.updates))


def _updates_of_later_epochs(training: Training, epoch: int) -> int:
    return updates_after(training.config, training.data.train.size, training.wrapped.replicas, epoch)


def refuse_empty_epochs(training: Training) -> None:
    """Raise SettingsError if a global batch, now or later in a ramp, is larger than the training set."""
    size = training.data.train.size
    for epoch in {0, *(training.config.batch_ramp or {})}:
        images = batches_at(training.config, epoch, training.wrapped.replicas).per_update
        if images > size:
            raise SettingsError(
                f"the training set has {size} images, less than one global batch of {images}; "
                "lower --batch-size or use fewer ranks."
            )


def _rates(training: Training, epoch: int, batches: Batches) -> Callable[[int], float]:
    """A function from an update's number in the epoch to its learning rate."""
    first, done = training.progress.epoch_updates, training.progress.images
    # Images of the whole epoch: the same in every process with this global batch.
    images = done + updates_left(training.data.train.size, done, batches) * batches.per_update

    def rate(step: int) -> float:
        before = done + (step - first) * batches.per_update
        return learning_rate(training.config, epoch + before / images, batches.per_update)

    return rate


def _loader(training: Training, epoch: int, batches: Batches, updates: int) -> Generator[Batch]:
    """The batches of this process for the next `updates` of `epoch`."""
    wrapped, train = training.wrapped, training.data.train
    order = Order(train.size, training.config.seed, epoch)
    where = positions(batches, wrapped.first_replica, wrapped.replicas_here, training.progress.images, updates)
    with closing(train.train_batches(order, where)) as loader:
        try:
            for batch in loader:
                training.session.advanced()
                yield batch
        finally:
            training.session.rests()


def _result(training: Training, batches: Batches, watch: Stopwatch) -> EpochResult:
    progress = training.progress
    loss, top1, images = training.session.sum(training.totals.sums.clone()).tolist()
    if progress.epoch_updates:
        refuse_none_readable(images, "an epoch of training")
    return EpochResult(
        loss=loss / max(1, images),
        top1=top1 / max(1, images),
        learning_rate=progress.learning_rate,
        global_batch=batches.per_update,
        accumulate=batches.accumulate,
        updates=progress.epoch_updates,
        images=int(images),
        seconds=progress.seconds,
        phases_ms=watch.report(),
    )


def measure_communication(training: Training) -> Communication | None:
    """The share of a step that is communication, or None if there is none.  Collective."""
    if not (training.wrapped.communicates and training.config.probe_steps):
        return None
    if training.config.comm_hook == "powersgd":
        return None  # every pass would change PowerSGD's error feedback
    batches = batches_at(training.config, training.progress.epoch, training.wrapped.replicas)
    where = positions(batches, training.wrapped.first_replica, training.wrapped.replicas_here, 0, 1)[:1]
    order = Order(training.data.train.size, training.config.seed, training.progress.epoch)
    with closing(training.data.train.train_batches(order, where)) as loader:
        batch = next(iter(loader))
    return measure(training.step_context, batch, training.session, training.config.probe_steps)


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

    Each rank evaluates its share, without padding, and the float64 sums are added up once at the end.
    Raises TrainingError if the loss is not finite, and DataError if no image could be read.
    """
    began = perf_counter()
    session, split = training.session, training.data.evaluation
    with averaged_statistics(training), _averaged_weights(training):
        sums = evaluate(training.wrapped.plain, _share(training), training.step_context.autocast, session.device)
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
    """Yield `batches`, reporting progress at each, so that the other ranks see that this one is alive."""
    for batch in batches:
        training.session.moved()
        yield batch


def _padded(batches: Iterator[Batch], count: int, blank: Batch) -> Iterator[Batch]:
    """Pad `batches` with `blank` up to `count`: all ranks must gather sharded weights equally often."""
    given = 0
    for given, batch in enumerate(batches, start=1):  # noqa: B007  counted for the line below
        yield batch
    yield from (blank for _ in range(count - given))


def _blank(training: Training) -> Batch:
    side, device = training.data.image_size, training.session.device
    return Batch(torch.zeros(1, 3, side, side, device=device), torch.full((1,), UNREADABLE, device=device))
