"""One trial: a real training of a few seconds in a child process, so that running out of memory kills only that.

Torch is imported in the child process only.
"""

import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trainer.config import TrainConfig
from trainer.distributed import loopback
from trainer.errors import DataError, MachineError, SettingsError, TrainerError, TrainingError
from trainer.tune.choose import Trial

WARM_UP = 3  # updates that are not measured: kernels are chosen and compiled, and the first batches decoded
SHARE_OF_MEMORY = 0.9  # of the free memory, for a trial on a CPU
NO_MEMORY = ("out of memory", "can't allocate memory", "Cannot allocate memory")  # messages of CUDA, torch and Linux
ENDING_S = 10.0  # for the process to exit after it has sent its answer
ERRORS = {kind.__name__: kind for kind in (SettingsError, DataError, TrainingError)}
Answer = dict[str, Any]
Work = Callable[[TrainConfig, float], Answer]


def run_trial(config: TrainConfig, seconds: float, work: Work | None = None) -> Trial:
    """Measure the speed of a training with these settings after warm-up.  Raises TrainerError as the training would.

    Raises MachineError, and kills the process, if it does not answer within --timeout-s.  work: the function to run in
    the process (default: measure()).
    """
    receiving, sending = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_in_process, args=(sending, work or measure, config, seconds), daemon=True
    )
    process.start()
    sending.close()
    try:
        answer = _answer(receiving, seconds + config.timeout_s)
        if answer is not None:
            process.join(ENDING_S)
    finally:
        if hangs := process.is_alive():  # even if it has answered; its result is used then
            process.kill()
            process.join()
    assert config.workers is not None
    if answer is None:
        raise MachineError(
            f"a trial of batch {config.batch_size} with {config.workers} workers did not answer for "
            f"{seconds + config.timeout_s:g} s and was ended; try fewer --workers, or --worker-kind threads, or raise "
            "--timeout-s."
        )
    if "refusal" in answer:
        raise ERRORS.get(answer["kind"], MachineError)(answer["refusal"])
    if not answer and not hangs and process.exitcode not in (-9, 0):
        raise MachineError(f"a trial ended with exit code {process.exitcode}; its output is above.")
    answer.setdefault("images_per_s", None)
    return Trial(config.batch_size, config.workers, **answer)


def _answer(receiving: Connection, within_s: float) -> Answer | None:
    """The answer of the process; {} if it was killed, as when memory runs out, and None if it hangs."""
    try:
        return dict(receiving.recv()) if receiving.poll(within_s) else None
    except EOFError:
        return {}


def _in_process(sending: Connection, work: Work, config: TrainConfig, seconds: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which kills this process
    multiprocessing.current_process().daemon = False  # daemons may not have children, which decode images
    try:
        sending.send(work(config, seconds))
    except TrainerError as error:
        sending.send({"refusal": str(error), "kind": type(error).__name__})
    except (RuntimeError, MemoryError, OSError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in NO_MEMORY):
            raise
        sending.send({"images_per_s": None})


def measure(config: TrainConfig, seconds: float) -> Answer:
    """Train for `seconds` after WARM_UP updates, and return the measurements."""
    from trainer.__main__ import set_library_defaults

    set_library_defaults(config)
    for name, value in loopback.environment().items():
        os.environ.setdefault(name, value)
    from trainer.distributed.ranks import Ranks
    from trainer.distributed.session import session
    from trainer.process.machine import pick_device, set_up
    from trainer.strategies import DISTRIBUTED

    ranks = Ranks()
    device = pick_device(config.device, ranks)
    set_up(config, device, ranks)
    if device.type == "cpu":
        _limit_memory()
    with session(ranks, device, config.timeout_s, connect=config.strategy in DISTRIBUTED) as alone:
        try:
            return _measured(config, seconds, alone)
        except TrainerError as error:
            error.is_mine_to_report = False  # the parent reports it
            raise


def _measured(config: TrainConfig, seconds: float, session: Any) -> Answer:
    from trainer.metrics.counters import GpuUse, peak_memory_mib
    from trainer.training import assemble

    device, training = session.device, assemble(config, session)
    if training.data.train.size < config.batch_size:
        raise SettingsError(
            f"the training set has {training.data.train.size} images, fewer than a batch of {config.batch_size}; give "
            "a smaller --batch-size, or --batch-size-from."
        )
    waits: list[float] = []
    with closing(GpuUse(device)) as use:
        steps = _steps(training, waits)
        for _ in range(WARM_UP):
            next(steps)
        _finish(device)
        use.mean_percent()
        waits.clear()
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            next(steps)
            done += 1
        _finish(device)
        took = time.perf_counter() - began
        steps.close()
        return {
            "images_per_s": done * config.batch_size * config.accumulate / took,
            "data_wait": sum(waits) / took,
            "memory_mib": peak_memory_mib(device),
            "gpu_percent": use.mean_percent(),
            "images": training.data.train.size,
        }


def _steps(training: Any, waits: list[float]) -> Any:
    """Train epoch after epoch, yielding after each update; appends the seconds waited for each batch to `waits`."""
    from trainer.config import batches_at
    from trainer.datasets.order import Order, positions, updates_left
    from trainer.loop import train_epoch
    from trainer.metrics.counters import Stopwatch

    config, train, device = training.config, training.data.train, training.session.device
    batches = batches_at(config, 0, 1)
    for epoch in count():
        # If the image size grows, that of the last epoch must fit.
        order = Order(train.size, config.seed, config.epochs - 1 + epoch)
        where = positions(batches, 0, 1, 0, updates_left(train.size, 0, batches))
        watch = Stopwatch(device, batches.accumulate)
        with closing(train.train_batches(order, where)) as loader:
            timed = _timed(loader, waits)
            yield from train_epoch(
                training.step_context, timed, lambda step: 1e-6, training.totals, watch, accumulate=batches.accumulate
            )


def _timed(batches: Iterator[Any], waits: list[float]) -> Iterator[Any]:
    while True:
        began = time.perf_counter()
        try:
            batch = next(batches)
        except StopIteration:
            return
        waits.append(time.perf_counter() - began)
        yield batch


def _finish(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _limit_memory() -> None:
    """Make allocations fail before the kernel's OOM killer ends processes, possibly others."""
    free = _free_memory()
    if free is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(free * SHARE_OF_MEMORY), resource.RLIM_INFINITY))


def _free_memory() -> int | None:
    """Available memory in bytes, or None on systems other than Linux."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] * 1024 if found else None
