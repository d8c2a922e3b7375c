"""Counters and timers of a training, which stay on the device so that nothing waits for it."""

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
HELD, HELD_NUMBERS = 32, 2**18  # batches, and logits in them, that are counted together


class Totals:
    """Running sums of an epoch's training on this rank, kept on the device.

    Counting takes a dozen small operations, as many for one batch as for many: batches are held, a megabyte of numbers
    or 32 batches at most, and counted together, or when somebody reads.  The sums are the same, bit for bit on a CPU.

    at_once: count each batch when it comes, for a compiled model may write its next logits over the last ones.
    """

    def __init__(self, device: torch.device, *, at_once: bool = False) -> None:
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)
        self._first_bad = torch.full((), float(NEVER), dtype=torch.float64, device=device)
        self._most = 1 if at_once else HELD
        self._held: list[tuple[Tensor, Tensor, Tensor]] = []
        self._steps: list[int] = []

    @property
    def sums(self) -> Tensor:
        """(3,) float64: loss times images, right top-1 answers, images."""
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
        """Adds what is held to the sums, in its order."""
        if not self._held:
            return
        losses, logits, labels = (torch.stack(column) for column in zip(*self._held, strict=True))
        steps = torch.tensor(self._steps, dtype=torch.float64).to(losses.device, non_blocking=True)
        self._held, self._steps = [], []
        counts = (labels >= 0).sum(dim=1).double()
        right = (logits.argmax(dim=2) == labels).sum(dim=1).double()
        rows = torch.stack([losses.double() * counts, right, counts], dim=1)
        # One after the other: a plain sum would round otherwise where a resumed run has counted at other moments.
        self._sums.copy_(torch.cat([self._sums[None], rows]).cumsum(dim=0)[-1])
        bad = steps.masked_fill(losses.isfinite(), float(NEVER)).min()
        self._first_bad.copy_(torch.minimum(self._first_bad, bad))


def tally(logits: Tensor, labels: Tensor) -> Tensor:
    """(4,) float64 of an evaluation batch: summed loss, top-1 right, top-5 right, images.

    logits: (B, K) of any float type; labels: (B,), negative where unreadable.  Sums, so that they add
    up to the same total however the images were divided.
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


# On a GPU, of an epoch's updates the first ones are timed, and every tenth after them.
FIRST, EVERY = 10, 10


class Stopwatch:
    """Where the time of a step goes.  CUDA phases are timed by events and read only in `report`.

    Events cost a little, so on a GPU only some updates are timed.  accumulate: passes per update.
    """

    def __init__(self, device: torch.device, accumulate: int = 1) -> None:
        self._cuda, self._accumulate = device.type == "cuda", accumulate
        self._passes = 0
        self._wait_s = 0.0
        self._host_s: dict[str, float] = {}
        self._events: list[tuple[int, str, torch.cuda.Event, torch.cuda.Event]] = []

    def waiting(self, batches: Iterable[Item]) -> Iterator[Item]:
        """Passes `batches` on and times how long each one kept the training waiting."""
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
        """Times what runs inside as part of `name`."""
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
        """Milliseconds per update of each phase; data_wait as the host sees it.  Waits for the device."""
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
    """Whether a GPU's phases are timed in the update of that number."""
    return update < FIRST or update % EVERY == 0


def per_update(timed: Sequence[tuple[int, str, float]], updates: int) -> dict[str, float]:
    """Mean milliseconds of each phase over an epoch of `updates`.  Pure.

    timed: (update, phase, ms).  The first updates, in which kernels are chosen and compiled, are all timed, so they
    count for themselves; those after them also stand for the ones that were not timed.
    """
    later = sum(is_timed(update) for update in range(FIRST, updates))
    weight = (updates - FIRST) / later if later else 1.0
    totals: dict[str, float] = {}
    for update, name, milliseconds in timed:
        totals[name] = totals.get(name, 0.0) + milliseconds * (1.0 if update < FIRST else weight)
    return {name: total / max(1, updates) for name, total in totals.items()}


def peak_memory_mib(device: torch.device) -> float:
    """The most memory this rank has held, MiB: GPU memory by PyTorch's allocator, or the process's own."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # macOS counts bytes, Linux KiB


SAMPLE_EVERY_S = 1.0


class GpuUse:
    """Samples one GPU's utilisation in the background.  On a CPU, or without NVML, there are no samples."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._samples: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gpu-use", daemon=True)
        if device.type == "cuda":
            self._thread.start()

    def mean_percent(self) -> float | None:
        """The mean since the last call, 0 to 100, or None without a sample."""
        samples, self._samples = self._samples, []
        return sum(samples) / len(samples) if samples else None

    def close(self) -> None:
        """Ends the sampling."""
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
        except (pynvml.NVMLError, RuntimeError):  # no NVML here (containers often lack it), or a GPU that is split
            return
