"""One training from settings to results: read run() as the table of contents."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

import torch

from trainer.config import TrainConfig, batches_at
from trainer.contract import CHECKPOINTS, CURVES, METRICS, SETTINGS, WEIGHTS
from trainer.distributed.probe import Communication
from trainer.distributed.pulse import Pulse
from trainer.distributed.ranks import Ranks
from trainer.distributed.sampler import steps_per_epoch
from trainer.distributed.session import Session, session
from trainer.epoch import measure_communication, refuse_empty_epochs, train_one_epoch
from trainer.errors import Interrupted, SettingsError, TrainingError, not_written
from trainer.evaluation import evaluate_exactly
from trainer.files import write_atomically
from trainer.metrics.curves import draw
from trainer.metrics.gpu_use import GpuUse
from trainer.metrics.log import Journal, open_journal, read_records
from trainer.metrics.progress import Bar
from trainer.metrics.record import epoch_record, headline, opening, seconds_left
from trainer.outcome import Record, no_record
from trainer.precision import warning_for_slow_precision
from trainer.process.interrupt import watch
from trainer.process.machine import pick_device, set_up
from trainer.schedule import count_updates, warning_for_few_updates
from trainer.settings.flags import to_yaml
from trainer.state import snapshot
from trainer.state.checkpoint import Checkpoints, load, save_weights
from trainer.strategies import DISTRIBUTED
from trainer.training import Training, assemble, strategy_name


def run(
    config: TrainConfig,
    ranks: Ranks,
    run_dir: Path,
    say: Callable[[str], None],
    interactive: bool,
    record: Record = no_record,
) -> None:
    """Trains as `config` says and leaves the results in `run_dir`.  Raises TrainerError.

    say: shows the user a line; interactive: whether a terminal watches, for the progress bar; record: gets the reason
    of a failure where rank 0's own exception does not have it.
    """
    device = pick_device(config.device, ranks)
    set_up(config, device, ranks)
    strategy = strategy_name(config, ranks.world_size)
    with ExitStack() as stack:
        interrupt = stack.enter_context(watch(tells=ranks.is_head))
        joined = stack.enter_context(
            session(ranks, device, config.timeout_s, connect=strategy in DISTRIBUTED, record=record)
        )
        stack.enter_context(torch_errors_in_words(config, ranks))
        run_dir = Path(joined.gather(str(run_dir))[0])  # each rank has a clock of its own
        tell = say if ranks.is_head else _silence
        checkpoint_dir = config.checkpoint_dir or run_dir / CHECKPOINTS
        stack.callback(_remove_empty, _make_folders(joined, run_dir, checkpoint_dir))
        checkpoints = Checkpoints(checkpoint_dir, config.keep_checkpoints)
        stack.callback(checkpoints.close)
        training = assemble(config, joined)
        refuse_empty_epochs(training)
        tell(opening(training, strategy))
        _resume(training, checkpoints, tell)
        _warn(training, tell)
        journal = joined.on_head(lambda: _journal(training, run_dir)) or Journal([])
        stack.callback(journal.close)
        # After a failure a tracker may still take long to send its last: no other rank waits, so none may end this one.
        stack.push(lambda failed, *_: joined.leave() if failed else None)
        pulse = Pulse(
            joined, interrupt, time.monotonic, save_every_s=config.checkpoint_every_s, at_most_every=config.log_every
        )
        bar = Bar(ranks.is_head and (interactive if config.progress is None else config.progress))
        try:
            _train(training, checkpoints, journal, pulse, bar, tell)
        except Interrupted as stopped:
            joined.on_head(checkpoints.wait)
            joined.on_head(lambda: _draw(training, run_dir))
            raise Interrupted(f"{stopped} To resume, run the same command with --run-dir {run_dir}.") from None
        _finish(training, checkpoints, run_dir, tell)


def _train(
    training: Training,
    checkpoints: Checkpoints,
    journal: Journal,
    pulse: Pulse,
    bar: Bar,
    tell: Callable[[str], None],
) -> None:
    """Trains all remaining epochs."""
    config, progress = training.config, training.progress
    communication: Communication | None = None
    measured_at = -1  # global batch; measured anew when a ramp changes it

    def save(is_best: bool = False) -> str:
        return _save(training, checkpoints, is_best)

    with closing(GpuUse(training.session.device)) as gpu_use:
        while progress.epoch < config.epochs and not _out_of_steps(training):
            epoch = progress.epoch
            result = train_one_epoch(training, epoch, pulse, bar, save)
            if result.global_batch != measured_at:
                communication, measured_at = measure_communication(training), result.global_batch
            last = epoch + 1 == config.epochs or _out_of_steps(training)
            score = evaluate_exactly(training) if last or (epoch + 1) % config.eval_every == 0 else None
            record = epoch_record(training, epoch + 1, result, score, communication, gpu_use.mean_percent())
            training.session.on_head(partial(journal.write, record))
            tell(headline(record, config.epochs, seconds_left(training, record)))
            is_best = score is not None and score.top1 > progress.best_top1
            if score is not None and is_best:
                progress.best_top1 = score.top1
            begin_next_epoch(training)
            save(is_best)
            pulse.saved()


def begin_next_epoch(training: Training) -> None:
    """Resets what is counted within one epoch."""
    training.progress.epoch += 1
    training.progress.images = 0
    training.progress.seconds = 0.0
    training.totals.sums.zero_()


def _out_of_steps(training: Training) -> bool:
    limit = training.config.max_steps
    return limit is not None and training.progress.updates >= limit


def _make_folders(joined: Session, *folders: Path) -> list[Path]:
    """Makes sure that `folders` can be written to; returns those that this rank made, the innermost first.  Collective.

    Early, before loading the data takes its time.
    """
    made: list[Path] = []

    def make() -> None:
        for folder in folders:
            missing = [path for path in (folder, *folder.parents) if not path.exists()]
            try:
                folder.mkdir(parents=True, exist_ok=True)
                made[:0] = missing
                trial = folder / f".writable-{joined.ranks.rank}"
                trial.touch()
                trial.unlink()
            except OSError as error:
                raise not_written(
                    error, f"cannot write to {folder} ({error.strerror}); choose another --run-dir or --checkpoint-dir."
                ) from error

    joined.once_per_node(make)
    return made


def _remove_empty(folders: list[Path]) -> None:
    """Removes those that nothing was written to, as after an error in the data."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _resume(training: Training, checkpoints: Checkpoints, tell: Callable[[str], None]) -> None:
    """Resumes from the newest checkpoint, which rank 0 reads for all.  Collective."""
    joined = training.session
    if not training.config.resume:
        joined.on_head(checkpoints.start_afresh)
        return
    data = joined.broadcast(joined.on_head(lambda: checkpoints.newest(tell)))
    if data is not None:
        snapshot.restore(training, load(data))
        done = training.progress
        inside = f", {done.images:,} images into it" if done.images else ""
        tell(f"resuming at epoch {done.epoch + 1}{inside}, after {done.updates:,} updates")


def _journal(training: Training, run_dir: Path) -> Journal:
    write_atomically(run_dir / SETTINGS, to_yaml(training.config))
    return open_journal(training.config, run_dir, training.progress.epoch)


def _save(training: Training, checkpoints: Checkpoints, is_best: bool) -> str:
    """Starts saving on rank 0 and returns the path.  Collective: an error on rank 0 is raised on all ranks."""
    if not snapshot.weights_are_finite(training):
        raise TrainingError(
            "the weights are no longer finite, so they are not saved; earlier checkpoints are untouched. "
            "Start again with a lower --lr or --clip-norm 1."
        )
    state, done = snapshot.take(training), training.progress
    training.session.on_head(lambda: checkpoints.save(state, done.epoch, done.updates, is_best=is_best))
    return str(checkpoints.path(done.epoch, done.updates))


def _finish(training: Training, checkpoints: Checkpoints, run_dir: Path, tell: Callable[[str], None]) -> None:
    """Saves the weights, draws the curves and prints where everything is.  Collective."""
    joined = training.session
    joined.on_head(checkpoints.wait)
    with training.ema.applied() if training.ema else nullcontext():
        weights = snapshot.whole_weights(training)
    joined.on_head(lambda: save_weights(run_dir / WEIGHTS, weights))
    joined.on_head(lambda: _draw(training, run_dir))
    if training.progress.best_top1 >= 0:
        tell(f"done: best test accuracy {training.progress.best_top1:.1%}")
    for label, name in (("metrics", METRICS), ("picture", CURVES), ("weights", WEIGHTS)):
        if joined.ranks.is_head and (run_dir / name).exists():
            tell(f"  {label:<12}{run_dir / name}")
    tell(f"  {'checkpoints':<12}{checkpoints.folder}")


def _draw(training: Training, run_dir: Path) -> None:
    """Draws the curves, except for a run that ended within its first epoch: matplotlib takes a second of processor."""
    config = training.config
    steps = steps_per_epoch(training.data.train.size, batches_at(config, 0, training.wrapped.replicas))
    if config.plot and training.progress.updates >= steps and (run_dir / METRICS).exists():
        draw(read_records(run_dir / METRICS), f"{config.model} on {config.dataset}", run_dir / CURVES)


def _warn(training: Training, tell: Callable[[str], None]) -> None:
    """Warns of settings that are allowed and rarely meant."""
    config = training.config
    warnings = [warning_for_slow_precision(training.precision, training.session.device)]
    if config.max_steps is None:
        updates = count_updates(config, training.data.train.size, training.wrapped.replicas)
        warnings.append(warning_for_few_updates(updates))
    for warning in warnings:
        if warning:
            tell(f"warning: {warning}")


@contextmanager
def torch_errors_in_words(config: TrainConfig, ranks: Ranks) -> Iterator[None]:
    """Turns errors of torch that a user's choice causes into sentences."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise TrainingError(_out_of_memory(config, ranks)) from error
    except RuntimeError as error:
        if "does not have a deterministic implementation" in str(error):
            problem = str(error).split(" does not have")[0]
            raise SettingsError(f"--deterministic: {problem} has no such kernel; drop it or change --model.") from error
        if type(error).__name__ == "InvalidCxxCompiler":
            raise SettingsError("--compile needs a C++ compiler; install g++, or drop it.") from error
        raise


def _out_of_memory(config: TrainConfig, ranks: Ranks) -> str:
    images, gib = batches_at(config, 0, ranks.world_size).per_replica, torch.cuda.mem_get_info()[1] / 2**30
    return (
        f"out of GPU memory: {config.model} with {images} images per pass does not fit into {gib:.0f} GiB. "
        "Halve --batch-size and double --accumulate: the result is the same. "
        "--precision bf16, --eval-batch-size and --strategy fsdp save memory too."
    )


def _silence(line: str) -> None:
    pass
