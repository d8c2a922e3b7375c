"""Points: repeated runs of the same settings, GPUs and batch, with their measurements.  Pure."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from statistics import median
from typing import Any

from launch.core.drawing.charts import Measured, exactly
from launch.core.runs import Run, number, seconds_of

CONFIDENCE = 0.95
RESAMPLES = 2000
# Settings without effect on result and speed; runs that differ in the seed are repetitions.
APART = frozenset({
    "seed", "run_dir", "checkpoint_dir", "data_dir", "data_url", "data_cache_gb", "shuffle_shards", "cache_dir",
    "download", "checkpoint_every_s", "keep_checkpoints", "resume", "progress", "log_every", "probe_steps", "plot",
    "tensorboard", "wandb", "mlflow", "timeout_s", "device", "amp", "max_bad_images",
})  # fmt: skip
BATCH = frozenset({"batch_size", "global_batch_size"})
# Settings that affect learning but not the time of an update.
LEARNING = frozenset({
    "lr", "lr_scaling", "lr_base_batch", "schedule", "warmup_epochs", "milestones", "lr_gamma", "momentum", "nesterov",
    "weight_decay", "label_smoothing", "batch_ramp", "epochs", "max_steps", "eval_every", "init_from",
})  # fmt: skip
# Settings of how an update of the same size is divided: fewer GPUs may need more passes.
PASSES = frozenset({"accumulate"})
OPTIONS = ("instance_type",)  # a backend's options that affect the speed
# Settings with values that are clear without a name.
NAMED = ("model", "dataset", "strategy", "precision", "backend", "instance_type", "device_name")
Family = Mapping[str, Any]
SPREAD_FROM = 3  # epochs: a range of fewer is meaningless


def median_of(values: Iterable[float | None]) -> Measured | None:
    """The median with its 95 % interval by the percentile bootstrap; None without values.

    For up to five values the interval is their range, which contains the true median in 50 % of cases for two values,
    75 % for three, 88 % for four and 94 % for five: all n values are on one side of it with probability 2 * 0.5^n.
    """
    known = tuple(value for value in values if value is not None)
    return _interval(known) if known else None


@cache
def _interval(values: tuple[float, ...]) -> Measured:
    middle = median(values)
    if len(set(values)) == 1:
        return Measured(middle, middle, middle)
    draw = random.Random(0)  # noqa: S311  # statistics, no secret
    medians = sorted(median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    cut = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Measured(middle, min(medians[cut], middle), max(medians[-1 - cut], middle))


# Settings of how several GPUs share their work; without effect on a single GPU.
SHARING = frozenset({
    "strategy", "comm_hook", "powersgd_rank", "bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "layout",
})  # fmt: skip
# Settings without effect on the result, except for rounding.
SPEED = SHARING - {"comm_hook", "powersgd_rank"} | {
    "threads", "workers", "decode", "channels_last", "compile", "compile_mode", "fused", "cudnn_benchmark",
    "deterministic", "eval_batch_size", "device_name", "instance_type", "backend",
}  # fmt: skip
WORDS = {"comm_hook": "{} hook", "lr_scaling": "{} lr scaling", "optimizer": "{}",
         "layout": "{}", "batch_ramp": "ramp {}", "lr": "lr {}"}  # fmt: skip


def family(run: Run) -> dict[str, Any]:
    """The settings of `run` without its batch, its number of GPUs, and defaults."""
    values = _changed_settings(run)
    if run.settings.get("amp") is False:
        values["precision"] = "fp32"
    for name in ("model", "dataset", "strategy", "precision"):
        values.setdefault(name, _defaults()[name])
    if values["strategy"] == "auto":
        values["strategy"] = "ddp"  # `auto` with several ranks; without effect on one
    if precision := run.last.get("precision"):  # as `auto` was resolved
        values["precision"] = precision
    for name in OPTIONS:
        if run.options.get(name):
            values[name] = run.options[name]
    values["backend"] = run.backend
    if device := run.last.get("device"):
        values["device_name"] = device
    return {name: _plain(value) for name, value in values.items()}


def _changed_settings(run: Run) -> dict[str, Any]:
    """The settings that distinguish families and are not at their defaults."""
    changed = {}
    for name, value in run.settings.items():
        if name not in APART | BATCH and _plain(value) != _plain(_defaults().get(name)):
            changed[name] = value
    return changed


def key(of: Family) -> str:
    """A hashable key of a family."""
    return repr(sorted(of.items()))


def without(of: Family, names: Iterable[str]) -> dict[str, Any]:
    left_out = set(names)
    return {name: value for name, value in of.items() if name not in left_out}


def labels(families: Sequence[Family]) -> dict[str, str]:
    """A label for each family by its key, with the settings that distinguish it."""
    names = sorted({name for one in families for name in one} - set(NAMED))
    usual = {name: Counter(_texts(families, name)).most_common(1)[0][0] for name in names}
    differ = [name for name in NAMED if len(set(_texts(families, name))) > 1]
    return {key(one): _label(one, differ, usual) for one in families}


def _texts(families: Sequence[Family], name: str) -> list[str]:
    return [str(one.get(name)) for one in families]


def _label(one: Family, differ: Sequence[str], usual: Mapping[str, str]) -> str:
    """A family's label.  differ: names of settings to show; usual: values of the others that are omitted."""
    parts = [str(one[name]) for name in differ if name in one]
    parts += [in_words(name, one.get(name)) for name, value in usual.items() if str(one.get(name)) != value]
    return ", ".join(part for part in parts if part) or plainly(one)


def plainly(one: Family) -> str:
    """The label of a family without distinguishing settings."""
    return f"{one.get('strategy')}, {one.get('precision')}"


def in_words(name: str, value: Any) -> str:
    """A setting in words: ('comm_hook', 'fp16') -> 'fp16 hook'; '' for one that is not set."""
    if value in (None, "none") or (value is False and name not in _defaults()):
        return ""
    if isinstance(value, bool):
        return f"{'' if value else 'no '}{name.replace('_', ' ')}"
    return WORDS.get(name, name.replace("_", " ") + " {}").format(value)


def shared(names: Iterable[str]) -> str:
    """The common parts of labels: ('ddp', 'ddp, lr 0.2') -> 'ddp'; '' if there is none."""
    first, *others = [name.split(", ") for name in names]
    return ", ".join(part for part in first if all(part in parts for parts in others))


def counted(count: int, unit: str) -> str:
    """(2, 'GPU') -> '2 GPUs'."""
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


def unit(runs: Iterable[Run]) -> str:
    """GPU, or CPU rank if no run used a GPU."""
    devices = {str(run.last.get("device")) for run in runs if run.epochs}
    return "CPU rank" if devices == {"CPU"} else "GPU"


def short(unit: str) -> str:
    """A short unit: 'CPU rank' -> 'rank'."""
    return unit.split()[-1]


def _plain(value: Any) -> Any:
    """Normalize a value from YAML, JSON or a command line."""
    if isinstance(value, Mapping):
        return ",".join(f"{start}:{images}" for start, images in value.items()) or None
    if isinstance(value, (list, tuple)):
        return ",".join(map(_item, value)) or None
    if isinstance(value, str):
        return None if value in ("", "null", "Null", "NULL", "None", "NONE") else value
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


def _item(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@cache
def _defaults() -> Mapping[str, Any]:
    from trainer.config import TrainConfig

    return {name: field.default for name, field in TrainConfig.model_fields.items()}


@dataclass(frozen=True)
class Point:
    """Repeated runs of the same settings."""

    family: Family
    replicas: int
    nodes: int
    per_update: int  # the global batch, of a ramp the last
    runs: tuple[Run, ...]
    label: str = ""

    @property
    def per_gpu(self) -> int:
        """The share of one GPU in the global batch."""
        return self.per_update // self.replicas

    @cached_property
    def images_per_s(self) -> Measured | None:
        return self.measured("images_per_s")

    def measured(self, name: str) -> Measured | None:
        """A field of the steady epochs: the interval of the repetitions' medians, or of a single run's epochs."""
        if len(self.runs) > 1:
            return median_of(run.typical(name) for run in self.runs)
        (run,) = self.runs
        value = of(number(epoch, name) for epoch in run.steady)
        if value is None or len(run.epochs) >= SPREAD_FROM:
            return value
        return exactly(value.value)

    def ended_with(self, name: str) -> Measured | None:
        """The last value of each completed run."""
        return median_of(final(run, name) for run in self.runs)


def of(values: Iterable[float | None]) -> Measured | None:
    """The median with its interval; None without values."""
    known = [value for value in values if value is not None]
    return Measured(median(known), min(known), max(known)) if known else None


def final(run: Run, name: str) -> float | None:
    """The value at the end of a run; None if it is not done."""
    planned = 0 if run.settings.get("max_steps") else number(run.settings, "epochs") or 0
    return run.newest(name) if run.state == "done" and len(run.epochs) >= planned else None


def per_update(run: Run) -> int:
    """The global batch, of a ramp the last one; 0 if not recorded."""
    return int(number(run.last, "global_batch") or 0)


def is_measured(run: Run) -> bool:
    """Whether the number of GPUs, the batch and the speed are recorded."""
    return bool(run.epochs and run.replicas and per_update(run) and run.typical("images_per_s"))


def points(runs: Iterable[Run]) -> list[Point]:
    """A point for each family, number of GPUs and batch, without labels; families with the most points first."""
    measured = [run for run in runs if is_measured(run)]
    groups: dict[tuple[Any, ...], Point] = {}
    for run, own in zip(measured, _families(measured), strict=True):
        nodes = _nodes(run)
        place = (key(own), run.replicas, nodes, per_update(run))
        earlier = groups[place].runs if place in groups else ()
        groups[place] = Point(own, run.replicas, nodes, per_update(run), (*earlier, run))
    sizes = Counter(key(point.family) for point in groups.values())
    order = {name: index for index, name in enumerate(sizes)}

    def rank(point: Point) -> tuple[int, ...]:
        name = key(point.family)
        return (-sizes[name], order[name], point.per_gpu, point.replicas, point.nodes)

    return sorted(groups.values(), key=rank)


def _families(runs: Sequence[Run]) -> list[Family]:
    """The family of each run; with its layout, if the same number of GPUs was used on different numbers of nodes."""
    families = [family(run) for run in runs]
    fewest: dict[tuple[str, int], int] = {}
    for run, own in zip(runs, families, strict=True):
        place = (key(own), run.replicas)
        fewest[place] = min(_nodes(run), fewest.get(place, _nodes(run)))
    return [
        {**own, "layout": layout(run.replicas, _nodes(run))} if _nodes(run) > fewest[key(own), run.replicas] else own
        for run, own in zip(runs, families, strict=True)
    ]


def layout(replicas: int, nodes: int) -> str:
    """The layout in words: (8, 2) -> '4 per node'."""
    return f"{replicas // nodes} per node"


def _nodes(run: Run) -> int:
    return max(1, int(number(run.last, "nodes") or 1))


def accuracy_over(run: Run) -> list[tuple[float, float, float]]:
    """(seconds since the first epoch began, epoch, accuracy in %) after each evaluation."""
    ends = accumulate(seconds_of(epoch) for epoch in run.epochs)
    return [
        (end, number(epoch, "epoch") or count, 100 * accuracy)
        for count, (end, epoch) in enumerate(zip(ends, run.epochs, strict=True), 1)
        if (accuracy := number(epoch, "eval_top1")) is not None
    ]
