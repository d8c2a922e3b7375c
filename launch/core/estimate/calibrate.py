"""Correct rates by measurements of runs, or by published ones.  Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from launch.core.catalog import Instance
from launch.core.estimate.formulas import Figure, Layout, Source, measured_rate, measured_time, step
from launch.core.estimate.rates import Rates
from launch.core.estimate.training import Training, is_emulated, strategy_of

# If the wait for data exceeds this share of a step, the input is the bottleneck.
WAITS = 0.1

# The fields of Rates for what a replica computes, and for what feeds it.
COMPUTE, INPUT = ("image_s", "pass_s", "update_s"), ("decoded_per_s", "read_per_s")


@dataclass(frozen=True)
class Measured:
    """One run's measurements.  batch, accumulate: of a replica; times: seconds of an update, over steady epochs."""

    name: str
    model: str
    px: int
    device: str  # as torch names it, or CPU
    half: bool
    layout: Layout
    batch: int
    accumulate: int
    step_s: float
    wait_s: float
    communication_s: float
    images_per_s: float
    all_reduce_per_s: float | None = None  # bytes, of the bus
    instance_type: str | None = None
    threads: int | None = None
    precision: str = ""  # in full; empty: not known
    sharing: tuple[str, str] = ("", "")  # strategy and communication hook; empty: not known
    dataset: str = ""  # empty: not known

    @property
    def computed_s(self) -> float:
        """Seconds of an update without waits and communication."""
        return self.step_s - self.wait_s - self.communication_s


@dataclass(frozen=True)
class Calibrated:
    """Corrected rates.  corrections: sentences; refused: runs of no use, and why; alike: runs of the same training."""

    rates: Rates
    corrections: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    alike: tuple[Measured, ...] = ()


def calibrate(rates: Rates, training: Training, instance: Instance, runs: Sequence[Measured]) -> Calibrated:
    """The rates of `instance` for `training`, corrected by `runs`."""
    corrections, refused, fitting = list[str](), list[tuple[str, str]](), list[Measured]()
    for run in runs:
        if why := _differs(run, training, instance):
            refused.append((run.name, why))
        else:
            fitting.append(run)
    # A run on one GPU measures compute best, as its step has nothing else.  Next best is an equal batch.
    batch = training.work().batch
    for run in _typical(sorted(fitting, key=lambda run: (run.layout.replicas, abs(run.batch - batch)))):
        rates = _by_compute(rates, training, instance, run, corrections)
        rates = _by_input(rates, training, instance, run, corrections)
    for several in (False, True):  # nodes
        known = [run for run in fitting if run.layout.replicas > 1 and (run.layout.nodes > 1) == several]
        rates = _by_network(rates, known, instance, corrections, refused)
    alike = [run for run in fitting if _is_alike(run, training, instance)]
    return Calibrated(rates, tuple(corrections), tuple(refused), tuple(alike))


def _is_alike(run: Measured, training: Training, instance: Instance) -> bool:
    """Whether `run` was the same training on the same layout."""
    work = training.work()
    here = run.instance_type in (None, instance.name) and run.layout == training.layout
    here = here and run.dataset in ("", training.config.dataset)
    is_shared_so = run.layout.replicas == 1 or all(
        own in ("", expected) for own, expected in zip(run.sharing, _sharing(training), strict=True)
    )
    return here and is_shared_so and (run.batch, run.accumulate) == (work.batch, work.accumulate)


def _sharing(training: Training) -> tuple[str, str]:
    return strategy_of(training.config, training.layout), training.config.comm_hook


def _typical(ordered: Sequence[Measured]) -> list[Measured]:
    """Among the first and those with its layout and batch the one with the median step; empty if there is none."""
    alike = [run for run in ordered if (run.layout, run.batch) == (ordered[0].layout, ordered[0].batch)]
    return sorted(alike, key=lambda run: run.computed_s)[(len(alike) - 1) // 2 :][:1]


def _differs(run: Measured, training: Training, instance: Instance) -> str | None:
    """Why `run` cannot calibrate `training` on `instance`; None if it can."""
    expected = instance.gpu_model or "CPU"
    if run.model != training.config.model:
        return f"trained {run.model}, not {training.config.model}"
    if run.px != training.px:
        return f"had images of {run.px} px, not {training.px}"
    if not _same_device(run.device, expected):
        return f"ran on {run.device}, and {instance.name} computes on {expected}"
    if not instance.is_gpu and run.instance_type != instance.name:
        return f"ran on the CPU of {run.instance_type or 'an unknown machine'}, and CPUs differ"
    if why := _differs_in_precision(run, training, instance):
        return why
    if run.computed_s <= 0:
        return "has no time left for compute beside its waits and its communication"
    return None


def _differs_in_precision(run: Measured, training: Training, instance: Instance) -> str | None:
    if run.half != training.kind.half:
        return f"computed in {_bits(run.half)} bits, and this would in {_bits(training.kind.half)}"
    if run.precision and _emulates(run.precision, training, instance) != training.kind.emulated:
        where = instance.gpu_model or "its CPU"
        return f"computed in {run.precision}, which is not as quick on {where} as what this would compute in"
    return None


def _emulates(precision: str, training: Training, instance: Instance) -> bool:
    """Whether the machine emulates that precision in software."""
    return is_emulated(training.config.model_copy(update={"precision": precision}), instance)


def _same_device(device: str, expected: str) -> bool:
    """Whether torch's name, such as NVIDIA A100-SXM4-40GB, matches the catalog's."""
    return expected in device.replace("-", " ").split()


def _bits(half: bool) -> int:
    return 16 if half else 32


def _by_compute(rates: Rates, training: Training, instance: Instance, run: Measured, corrections: list[str]) -> Rates:
    """Rates that reproduce the compute time of the run's step."""
    work = replace(training.work(), batch=run.batch, accumulate=run.accumulate, strategy="single")
    # With a GPU, the CPU's threads do not compute.
    threads = 1 if instance.is_gpu else (run.threads or training.kind.threads) / training.kind.threads
    modelled = step(work, rates.at("value"), run.layout).compute_s / threads
    images = run.batch * run.accumulate
    corrections.append(f"compute: {1e3 * run.computed_s:,.1f} ms a step of {images} images, from {run.name}")
    return as_measured(rates, COMPUTE, run.computed_s / modelled, "measured")


def _by_input(rates: Rates, training: Training, instance: Instance, run: Measured, corrections: list[str]) -> Rates:
    """Rates of the input, which are measured if the GPUs waited for data; for a machine of the same type."""
    if run.wait_s < WAITS * run.step_s or not training.kind.decodes or run.instance_type not in (None, instance.name):
        return rates
    speeds, image_bytes = rates.at("value"), training.data.image_bytes
    modelled = min(speeds.decoded_per_s, speeds.read_per_s / image_bytes)
    per_node = run.images_per_s / run.layout.nodes
    corrections.append(
        f"input: {per_node:,.0f} images/s a node, from {run.name}, which waited {run.wait_s / run.step_s:.0%}"
    )
    return as_measured(rates, INPUT, per_node / modelled, "measured")


def _by_network(
    rates: Rates, runs: Sequence[Measured], instance: Instance, corrections: list[str], refused: list[tuple[str, str]]
) -> Rates:
    """Rates of the network: the median of `runs`, all within a node or all between nodes.

    Probes of the same machine differ several times over, so their range is kept.
    """
    known = [run for run in runs if run.instance_type in (None, instance.name) and run.all_reduce_per_s is not None]
    others = [run for run in runs if run.instance_type not in (None, instance.name)]
    refused += [(run.name, f"had {run.instance_type}'s network, not {instance.name}'s") for run in others]
    if not known:
        return rates
    rate, sentence = _median_rate(known)
    several_nodes = known[0].layout.nodes > 1
    corrections.append(f"all-reduce {'between nodes' if several_nodes else 'within a node'}: {sentence}")
    if several_nodes:
        # A rate over a whole run is a lasting one.
        return replace(rates, outer_per_s=rate, lasting_per_s=rate)
    return replace(rates, inner_per_s=rate)


def _median_rate(known: Sequence[Measured]) -> tuple[Figure, str]:
    """The median of the runs' bus bandwidths with their range, and in words."""
    speeds = [run.all_reduce_per_s for run in known if run.all_reduce_per_s is not None]
    middle, low, high = median(speeds), min(speeds), max(speeds)
    once = measured_rate(middle, "measured")
    rate = replace(once, best=max(once.best, high), worst=min(once.worst, low))
    if len(known) == 1:
        return rate, f"{middle / 1e9:.2f} GB/s, from {known[0].name}"
    spread = f"{low / 1e9:.2f} to {high / 1e9:.2f}"
    return rate, f"{middle / 1e9:.2f} GB/s ({spread}), the median of {len(known)} runs"


def as_measured(rates: Rates, names: Sequence[str], factor: float, source: Source = "published") -> Rates:
    """`rates` with the values of `names` times `factor`, with the range of a measurement."""
    kind = measured_time if names == COMPUTE else measured_rate
    changed: Mapping[str, Any] = {name: kind(getattr(rates, name).value * factor, source) for name in names}
    return replace(rates, **changed)


def solve(target: float, of: Callable[[float], float]) -> float:
    """x between a millionth and a million with of(x) = target; of must grow with x."""
    low, high = 1e-6, 1e6
    for _ in range(100):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if of(middle) < target else (low, middle)
    return float((low * high) ** 0.5)
