"""One training from settings to results; run() is the outline."""

import gc
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from trainer.config import TrainConfig, batches_at
from trainer.contract import CHECKPOINTS, CURVES, METRICS, RESUME, SETTINGS, SIGNATURE, WEIGHTS
from trainer.datasets.order import updates_left
from trainer.distributed.agreement import Agreement, Interrupt, watch
from trainer.distributed.ranks import Ranks
from trainer.distributed.session import Session, agree_on_folder, make_folders, remove_empty, session
from trainer.epoch import (
    Score,
    evaluate_exactly,
    is_epoch_complete,
    measure_communication,
    refuse_empty_epochs,
    train_one_epoch,
)
from trainer.errors import Interrupted, TrainingError, one_line
from trainer.files import write_atomically
from trainer.health.check import NOTHING_EXPECTED, Check, Expected
from trainer.metrics.counters import GpuUse
from trainer.metrics.log import Journal, draw, epoch_record, headline, open_journal, opening, read_records, seconds_left
from trainer.metrics.probe import Communication
from trainer.metrics.progress import Bar
from trainer.optimizers.precision import warning_for_slow_precision
from trainer.optimizers.schedule import count_updates, warning_for_few_updates, warning_for_guessing
from trainer.outcome import Record, no_record
from trainer.process.machine import pick_device, set_up, translate_torch_errors
from trainer.settings.flags import to_yaml
from trainer.state import snapshot
from trainer.state.checkpoint import Checkpoints, load, save_weights
from trainer.strategies import DISTRIBUTED
from trainer.training import Training, assemble, strategy_name


def run(
    config: TrainConfig,
    ranks: Ranks,
    claim_folder: Callable[[], Path],
    say: Callable[[str], None],
    interactive: bool,
    record: Record = no_record,
    expected: Expected = NOTHING_EXPECTED,
) -> None:
    """Run the training described by `config` and write the results into a folder.  Raises TrainerError.

    claim_folder: locks and returns the folder for this run, on rank 0; say: prints a line for the user; interactive:
    whether to show a progress bar by default; record: gets the reason of a failure that rank 0's own exception does not
    explain; expected: what --health-check should find on this machine.
    """
    connect = strategy_name(config, ranks.world_size) in DISTRIBUTED
    with watch(acknowledges=ranks.is_head) as interrupt, ExitStack() as stack:
        check = Check(config.device, config.timeout_s, ranks, expected) if config.health_check else None
        device = check.look(connected=connect) if check else pick_device(config.device, ranks)
        set_up(config, device, ranks)
        joined = stack.enter_context(
            session(
                ranks, device, config.timeout_s, connect=connect, record=record,
                asked=lambda: interrupt.requested, before=check.agree if check else None,
            )
        )  # fmt: skip
        stack.enter_context(translate_torch_errors(config, ranks))
        if check:
            check.measure(joined, say if ranks.is_head else _silence)
        run_dir = agree_on_folder(joined, claim_folder)
        bar = Bar(ranks.is_head and (interactive if config.progress is None else config.progress))
        with joined.watched(config.stall_s) as watched:
            _run_in(run_dir, config, watched, interrupt, bar, say if ranks.is_head else _silence)


def _run_in(
    run_dir: Path, config: TrainConfig, joined: Session, interrupt: Interrupt, bar: Bar, say: Callable[[str], None]
) -> None:
    """Run the training in `run_dir`.  Collective."""
    with ExitStack() as stack:
        checkpoint_dir = config.checkpoint_dir or run_dir / CHECKPOINTS
        stack.callback(remove_empty, make_folders(joined, run_dir, checkpoint_dir))
        checkpoints = Checkpoints(checkpoint_dir, config.keep_checkpoints)
        stack.callback(checkpoints.close)
        found = _find_checkpoint(config, joined, checkpoints, say)
        training = assemble(config, joined, resumes=found is not None)
        refuse_empty_epochs(training)
        say(opening(training, strategy_name(config, joined.ranks.world_size)))
        if found is not None:
            _resume(training, checkpoints, found, say)
        _warn(training, say)
        journal = joined.on_head(lambda: _journal(training, run_dir)) or Journal([])
        stack.callback(journal.close)
        # After a failure, trackers may need long to flush.  No other rank waits for this one, so none may kill it.
        stack.push(lambda failed, *_: joined.leave() if failed else None)
        agreement = Agreement(
            joined, interrupt, time.monotonic, save_every_s=config.checkpoint_every_s, at_most_every=config.log_every
        )
        gc.freeze()  # what is imported stays: a collection of it would make all ranks wait for this one
        gc.enable()
        try:
            train(training, checkpoints, journal, agreement, bar, say)
        except Interrupted as stopped:
            joined.on_head(checkpoints.wait)
            joined.on_head(lambda: _draw(training, run_dir, say))
            raise Interrupted(f"{stopped} To resume, {RESUME.format(folder=run_dir)}.") from None
        _finish(training, checkpoints, run_dir, say)


def train(
    training: Training,
    checkpoints: Checkpoints,
    journal: Journal,
    agreement: Agreement,
    bar: Bar,
    say: Callable[[str], None],
) -> None:
    """Train all remaining epochs.  Collective."""
    config, progress = training.config, training.progress
    communication: Communication | None = None
    measured_at = -1  # global batch; measured again when a ramp changes it

    def save(is_best: bool = False) -> str:
        return _save(training, checkpoints, is_best)

    with closing(GpuUse(training.session.device)) as gpu_use:
        while not _is_done(training):
            epoch = progress.epoch
            result = train_one_epoch(training, epoch, agreement, bar, save)
            if result.global_batch != measured_at:
                communication, measured_at = measure_communication(training), result.global_batch
            last = epoch + 1 == config.epochs or _out_of_steps(training)
            score = evaluate_exactly(training) if last or (epoch + 1) % config.eval_every == 0 else None
            record = epoch_record(training, epoch + 1, result, score, communication, gpu_use.mean_percent())
            training.session.on_head(partial(journal.write, record))
            say(headline(record, config.epochs, seconds_left(training, record)))
            _warn_of_guessing(training, record, say, is_last=last)
            progress.reported_at = progress.updates
            if is_epoch_complete(training):  # else --max-steps ended it, and a run with a higher limit continues it
                begin_next_epoch(training)
            save(is_best=score is not None and _is_best(training, checkpoints, score))
            agreement.saved()


def _is_best(training: Training, checkpoints: Checkpoints, score: Score) -> bool:
    """Whether `score` is the best so far; if so, record the checkpoint that is saved next as the best."""
    progress = training.progress
    if score.top1 <= progress.best_top1:
        return False
    progress.best_top1 = score.top1
    progress.best = checkpoints.path(progress.epoch, progress.updates).name
    return True


def begin_next_epoch(training: Training) -> None:
    """Move on to the next epoch and reset the counters of the current one."""
    progress = training.progress
    progress.epoch += 1
    progress.images = progress.epoch_updates = 0
    progress.seconds = 0.0
    training.totals.sums.zero_()


def _is_done(training: Training) -> bool:
    """Whether nothing is left to train, evaluate or report."""
    progress = training.progress
    if progress.epoch >= training.config.epochs:
        return True
    return _out_of_steps(training) and progress.reported_at == progress.updates


def _out_of_steps(training: Training) -> bool:
    limit = training.config.max_steps
    return limit is not None and training.progress.updates >= limit


def _find_checkpoint(
    config: TrainConfig, joined: Session, checkpoints: Checkpoints, say: Callable[[str], None]
) -> bytes | None:
    """The newest checkpoint, read by rank 0 for all ranks, or None to start from scratch.  Collective."""
    if not config.resume:
        joined.on_head(checkpoints.start_afresh)
        return None
    return joined.broadcast(joined.on_head(lambda: checkpoints.newest(say)))


def _resume(training: Training, checkpoints: Checkpoints, found: bytes, say: Callable[[str], None]) -> None:
    """Restore the training from the checkpoint `found`.  Collective."""
    joined = training.session
    started_anew = snapshot.restore(training, load(found))
    done = training.progress
    inside = f", {done.images:,} images into it" if done.images else ""
    updates = f"{done.updates:,} update{'' if done.updates == 1 else 's'}"
    say(f"resuming at epoch {done.epoch + 1}{inside}, after {updates}")
    if done.best and not joined.gather(joined.on_head(lambda: checkpoints.repair_best(done.best)))[0]:
        started_anew.append(f"the best checkpoint, {done.best}, is missing or damaged; the next evaluation is the best")
        done.best, done.best_top1 = "", -1.0
    for sentence in started_anew:
        say(f"warning: {sentence}")


def _journal(training: Training, run_dir: Path) -> Journal:
    write_atomically(run_dir / SETTINGS, to_yaml(training.config))
    write_atomically(run_dir / SIGNATURE, training.data.signature.as_json(training.config.model))
    progress = training.progress
    # The line of an unfinished epoch is rewritten at its end, but kept if --max-steps ended the run there.
    epochs_reported = progress.epoch + int(progress.images > 0 and _is_done(training))
    return open_journal(training.config, run_dir, epochs_reported)


def _save(training: Training, checkpoints: Checkpoints, is_best: bool) -> str:
    """Start saving on rank 0 and return the path.  Collective: an error on rank 0 is raised on all ranks."""
    if not snapshot.weights_are_finite(training):
        raise TrainingError(
            "the weights are no longer finite, so they are not saved; earlier checkpoints are untouched. "
            "Start again with a lower --lr or --clip-norm 1."
        )
    state, done = snapshot.take(training), training.progress
    training.session.on_head(lambda: checkpoints.save(state, done.epoch, done.updates, is_best=is_best))
    return str(checkpoints.path(done.epoch, done.updates))


def _finish(training: Training, checkpoints: Checkpoints, run_dir: Path, say: Callable[[str], None]) -> None:
    """Save the weights, draw the curves and print the paths of the results.  Collective."""
    joined = training.session
    joined.on_head(checkpoints.wait)
    with training.ema.applied() if training.ema else nullcontext():
        weights = snapshot.whole_weights(training)
    joined.on_head(lambda: save_weights(run_dir / WEIGHTS, weights))
    joined.on_head(lambda: _draw(training, run_dir, say))
    if training.progress.best_top1 >= 0:
        say(f"done: best {training.data.eval_split} accuracy {training.progress.best_top1:.1%}")
    for label, name in (("metrics", METRICS), ("picture", CURVES), ("weights", WEIGHTS)):
        if joined.ranks.is_head and (run_dir / name).exists():
            say(f"  {label:<12}{run_dir / name}")
    say(f"  {'checkpoints':<12}{checkpoints.folder}")


def _draw(training: Training, run_dir: Path, say: Callable[[str], None]) -> None:
    """Draw the curves, unless the run ended within its first epoch: importing matplotlib takes a second."""
    config = training.config
    updates = updates_left(training.data.train.size, 0, batches_at(config, 0, training.wrapped.replicas))
    if config.plot and training.progress.updates >= updates and (run_dir / METRICS).exists():
        try:
            draw(read_records(run_dir / METRICS), f"{config.model} on {config.dataset}", run_dir / CURVES)
        except Exception as error:  # a missing picture must not fail a run whose weights are saved
            say(f"warning: cannot draw {run_dir / CURVES} ({one_line(getattr(error, 'strerror', None) or error, 300)})")


def _warn(training: Training, say: Callable[[str], None]) -> None:
    """Warn about settings that are allowed but rarely intended."""
    config = training.config
    warnings = [warning_for_slow_precision(training.precision, training.session.device)]
    if config.max_steps is None:
        updates = count_updates(config, training.data.train.size, training.wrapped.replicas)
        warnings.append(warning_for_few_updates(updates))
    for warning in warnings:
        if warning:
            say(f"warning: {warning}")


def _warn_of_guessing(training: Training, record: dict[str, Any], say: Callable[[str], None], *, is_last: bool) -> None:
    if record["eval_top1"] is None:
        return
    warning = warning_for_guessing(
        training.config,
        record["epoch"],
        is_last=is_last,
        best_top1=max(record["eval_top1"], training.progress.best_top1),
        images=record["eval_images"],
        classes=training.data.classes,
        updates=record["updates"],
    )
    if warning:
        say(f"warning: {warning}")


def _silence(line: str) -> None:
    pass
