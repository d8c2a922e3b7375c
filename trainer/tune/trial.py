"""One trial: a real training of some seconds, in a process of its own, so that running out of memory ends nothing else.

Torch is imported in that process only.
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

WARM_UP = 3  # updates: kernels are chosen and compiled, and the first batches decoded
SHARE_OF_MEMORY = 0.9  # of what is free, which a trial on a CPU may take
NO_MEMORY = ("out of memory", "can't allocate memory", "Cannot allocate memory")  # as CUDA, torch and Linux say it
ENDING_S = 10.0  # which a process has to end in once it has answered
ERRORS = {kind.__name__: kind for kind in (SettingsError, DataError, TrainingError)}
Answer = dict[str, Any]
Work = Callable[[TrainConfig, float], Answer]


def run_trial(config: TrainConfig, seconds: float, work: Work | None = None) -> Trial:
    """How fast a training with these settings is, once it is warm.  Raises TrainerError as the training would.

    A process that hangs is ended after --timeout-s: MachineError.  work: what the process does; measure() unless a
    test says otherwise.
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
        if hangs := process.is_alive():  # also where it has answered: its result counts
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
    """What the process says; nothing if it was ended, as the kernel does when memory runs out, and None if it hangs."""
    try:
        return dict(receiving.recv()) if receiving.poll(within_s) else None
    except EOFError:
        return {}


def _in_process(sending: Connection, work: Work, config: TrainConfig, seconds: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one, and ends it
    multiprocessing.current_process().daemon = False  # which may have no processes, and images are decoded by some
    try:
        sending.send(work(config, seconds))
    except TrainerError as error:
        sending.send({"refusal": str(error), "kind": type(error).__name__})
    except (RuntimeError, MemoryError, OSError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in NO_MEMORY):
            raise
        sending.send({"images_per_s": None})


def measure(config: TrainConfig, seconds: float) -> Answer:
    """Trains for `seconds` after WARM_UP updates and says how that went."""
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
            error.is_mine_to_report = False  # the process that started this one says it, once
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
    """Trains update by update, epoch after epoch, and adds to `waits` the seconds that it waited for each batch."""
    from trainer.config import batches_at
    from trainer.datasets.order import Order, positions, updates_left
    from trainer.loop import train_epoch
    from trainer.metrics.counters import Stopwatch

    config, train, device = training.config, training.data.train, training.session.device
    batches = batches_at(config, 0, 1)
    for epoch in count():
        # The last epoch's size of images that grow is the one that must fit.
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
    """Makes allocations fail before the kernel has to end processes, which need not be this one."""
    free = _free_memory()
    if free is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(free * SHARE_OF_MEMORY), resource.RLIM_INFINITY))


def _free_memory() -> int | None:
    """Bytes that Linux would give to a process, or None where it is another system."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] * 1024 if found else None
