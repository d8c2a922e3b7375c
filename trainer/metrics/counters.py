"""Counters and timers of a training, kept on the device so that the host does not wait for it."""

import resource
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")

NEVER = 2**53  # a step number no run reaches and float64 holds exactly
HELD, HELD_NUMBERS = 32, 2**18  # how many batches, or logits in them, are buffered and counted together


class Totals:
    """Running sums of an epoch's training on this rank, kept on the device.

    Counting takes a dozen small operations, for one batch or for many.  So batches are buffered, at most 32 of them or
    a megabyte of logits, and counted together, or when the sums are read.  The sums are the same, on a CPU bit for bit.

    at_once: count each batch immediately, because a compiled model may overwrite its last logits with the next.
    """

    def __init__(self, device: torch.device, *, at_once: bool = False) -> None:
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)
        self._first_bad = torch.full((), float(NEVER), dtype=torch.float64, device=device)
        self._most = 1 if at_once else HELD
        self._held: list[tuple[Tensor, Tensor, Tensor]] = []
        self._steps: list[int] = []

    @property
    def sums(self) -> Tensor:
        """(3,) float64: loss times images, correct top-1 predictions, images."""
        self._count()
        return self._sums

    @property
    def first_bad(self) -> Tensor:
        """() float64: the first update whose loss was not finite, or NEVER."""
        self._count()
        return self._first_bad

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor, step: int) -> None:
        """loss: () mean over readable images; logits: (B, K); labels: (B,), negative where unreadable."""
        if self._held and self._held[0][1].shape != logits.shape:
            self._count()
        self._held.append((loss.detach(), logits.detach(), labels))
        self._steps.append(step)
        if len(self._held) >= self._most or len(self._held) * logits.numel() >= HELD_NUMBERS:
            self._count()

    @torch.no_grad()
    def _count(self) -> None:
        """Add the buffered batches to the sums, in order."""
        if not self._held:
            return
        losses, logits, labels = (torch.stack(column) for column in zip(*self._held, strict=True))
        steps = torch.tensor(self._steps, dtype=torch.float64).to(losses.device, non_blocking=True)
        self._held, self._steps = [], []
        counts = (labels >= 0).sum(dim=1).double()
        right = (logits.argmax(dim=2) == labels).sum(dim=1).double()
        rows = torch.stack([losses.double() * counts, right, counts], dim=1)
        # cumsum adds in order; sum() would round differently in a resumed run, which may have counted at other times.
        self._sums.copy_(torch.cat([self._sums[None], rows]).cumsum(dim=0)[-1])
        bad = steps.masked_fill(losses.isfinite(), float(NEVER)).min()
        self._first_bad.copy_(torch.minimum(self._first_bad, bad))


def tally(logits: Tensor, labels: Tensor) -> Tensor:
    """(4,) float64 for an evaluation batch: summed loss, top-1 correct, top-5 correct, images.

    logits: (B, K) of any float type; labels: (B,), negative where unreadable.  These are sums, so the total does not
    depend on how the images are divided.
    """
    readable = labels >= 0
    loss = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="none")
    ranked = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
    return torch.stack([
        loss.double().sum(),  # ignored labels have loss 0
        ranked[:, 0].sum().double(),
        ranked.any(dim=1).sum().double(),
        readable.sum().double(),
    ])  # fmt: skip


# On a GPU the first updates of an epoch are timed, and then every tenth.
FIRST, EVERY = 10, 10


class Stopwatch:
    """Times the phases of a step.  On a GPU by CUDA events, which are read only in `report`.

    Events cost some time, so on a GPU only some updates are timed.  accumulate: passes per update.
    """

    def __init__(self, device: torch.device, accumulate: int = 1) -> None:
        self._cuda, self._accumulate = device.type == "cuda", accumulate
        self._passes = 0
        self._wait_s = 0.0
        self._host_s: dict[str, float] = {}
        self._events: list[tuple[int, str, torch.cuda.Event, torch.cuda.Event]] = []

    def waiting(self, batches: Iterable[Item]) -> Iterator[Item]:
        """Yield from `batches`, and time how long the training waits for each."""
        iterator = iter(batches)
        while True:
            began = perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._wait_s += perf_counter() - began
            self._passes += 1
            yield batch

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to phase `name`."""
        if not self._cuda:
            began = perf_counter()
            yield
            self._host_s[name] = self._host_s.get(name, 0.0) + perf_counter() - began
        elif is_timed(self._update):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            yield
            end.record()
            self._events.append((self._update, name, start, end))
        else:
            yield

    def report(self) -> dict[str, float]:
        """Milliseconds per update of each phase; data_wait is measured on the host.  Waits for the device."""
        updates = self._passes / self._accumulate
        milliseconds = {name: seconds * 1e3 / max(1.0, updates) for name, seconds in self._host_s.items()}
        if self._cuda:
            torch.cuda.synchronize()
            timed = [(update, name, start.elapsed_time(end)) for update, name, start, end in self._events]
            milliseconds = per_update(timed, self._update + 1)
        return {"data_wait": self._wait_s * 1e3 / max(1.0, updates)} | milliseconds

    @property
    def _update(self) -> int:
        """The update that the last pass belongs to."""
        return (self._passes - 1) // self._accumulate


def is_timed(update: int) -> bool:
    """Whether a GPU's phases are timed in the update with this number."""
    return update < FIRST or update % EVERY == 0


def per_update(timed: Sequence[tuple[int, str, float]], updates: int) -> dict[str, float]:
    """Mean milliseconds of each phase over an epoch of `updates`.  Pure.

    timed: (update, phase, ms).  The first updates, in which kernels are chosen and compiled, are all timed and weigh 1;
    later ones are weighted to represent those that were not timed.
    """
    later = sum(is_timed(update) for update in range(FIRST, updates))
    weight = (updates - FIRST) / later if later else 1.0
    totals: dict[str, float] = {}
    for update, name, milliseconds in timed:
        totals[name] = totals.get(name, 0.0) + milliseconds * (1.0 if update < FIRST else weight)
    return {name: total / max(1, updates) for name, total in totals.items()}


def peak_memory_mib(device: torch.device) -> float:
    """Peak memory of this rank in MiB: of PyTorch's GPU allocator, or on a CPU of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # macOS counts bytes, Linux KiB


SAMPLE_EVERY_S = 1.0


class GpuUse:
    """Background sampler of one GPU's utilisation.  On a CPU, or without NVML, it takes no samples."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._samples: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gpu-use", daemon=True)
        if device.type == "cuda":
            self._thread.start()

    def mean_percent(self) -> float | None:
        """The mean since the last call, 0 to 100, or None without samples."""
        samples, self._samples = self._samples, []
        return sum(samples) / len(samples) if samples else None

    def close(self) -> None:
        """Stop sampling."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        try:
            import pynvml
        except ImportError:
            return
        try:
            while not self._over.wait(SAMPLE_EVERY_S):
                self._samples.append(torch.cuda.utilization(self._device))
        except (pynvml.NVMLError, RuntimeError):  # no NVML, as in many containers, or a GPU split by MIG
            return
