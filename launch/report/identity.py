"""Which runs differ in the number of GPUs and the batch only, and the names of such families.  Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from launch.core.run import Run

# Settings that change neither the result nor the speed; runs that differ in the seed are repetitions.
APART = frozenset({
    "seed", "run_dir", "checkpoint_dir", "data_dir", "data_url", "data_cache_gb", "shuffle_shards", "cache_dir",
    "download", "checkpoint_every_s", "keep_checkpoints", "resume", "progress", "log_every", "probe_steps", "plot",
    "tensorboard", "wandb", "mlflow", "timeout_s", "device", "amp", "max_bad_images",
})  # fmt: skip
BATCH = frozenset({"batch_size", "global_batch_size"})
# How the GPUs of a run share their work; without effect on a single GPU.
SHARING = frozenset({
    "strategy", "comm_hook", "powersgd_rank", "bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "layout",
})  # fmt: skip
# Settings without effect on the result, but for rounding.
SPEED = SHARING - {"comm_hook", "powersgd_rank"} | {
    "threads", "workers", "decode", "channels_last", "compile", "compile_mode", "fused", "cudnn_benchmark",
    "deterministic", "eval_batch_size", "device_name", "instance_type", "backend",
}  # fmt: skip
# Settings that change what is learnt and not how long an update takes.
LEARNING = frozenset({
    "lr", "lr_scaling", "lr_base_batch", "schedule", "warmup_epochs", "milestones", "lr_gamma", "momentum", "nesterov",
    "weight_decay", "label_smoothing", "batch_ramp", "epochs", "max_steps", "eval_every", "init_from",
})  # fmt: skip
# Of an update whose size is the same: fewer GPUs may need more of them.
PASSES = frozenset({"accumulate"})
OPTIONS = ("instance_type",)  # of a backend, those that change the speed
# Values that need no name beside them; shown where they differ.
NAMED = ("model", "dataset", "strategy", "precision", "backend", "instance_type", "device_name")
WORDS = {"comm_hook": "{} hook", "lr_scaling": "{} lr scaling", "optimizer": "{}",
         "layout": "{}", "batch_ramp": "ramp {}", "lr": "lr {}"}  # fmt: skip

Family = Mapping[str, Any]


def family(run: Run) -> dict[str, Any]:
    """The settings of `run` but for its batch and its number of GPUs; those at the trainer's defaults are left out."""
    values = _changed_settings(run)
    if run.settings.get("amp") is False:
        values["precision"] = "fp32"
    for name in ("model", "dataset", "strategy", "precision"):
        values.setdefault(name, _defaults()[name])
    if values["strategy"] == "auto":
        values["strategy"] = "ddp"  # with several ranks, and one rank shares nothing
    if precision := run.last.get("precision"):  # what auto was resolved to
        values["precision"] = precision
    for name in OPTIONS:
        if run.options.get(name):
            values[name] = run.options[name]
    values["backend"] = run.backend
    if device := run.last.get("device"):
        values["device_name"] = device
    return {name: _plain(value) for name, value in values.items()}


def _changed_settings(run: Run) -> dict[str, Any]:
    """The settings that tell families apart and are not at their defaults."""
    changed = {}
    for name, value in run.settings.items():
        if name not in APART | BATCH and _plain(value) != _plain(_defaults().get(name)):
            changed[name] = value
    return changed


def key(of: Family) -> str:
    """The same for the same family."""
    return repr(sorted(of.items()))


def without(of: Family, names: Iterable[str]) -> dict[str, Any]:
    left_out = set(names)
    return {name: value for name, value in of.items() if name not in left_out}


def labels(families: Sequence[Family]) -> dict[str, str]:
    """A label for each family by its key: what tells it from the others."""
    names = sorted({name for one in families for name in one} - set(NAMED))
    usual = {name: Counter(_texts(families, name)).most_common(1)[0][0] for name in names}
    differ = [name for name in NAMED if len(set(_texts(families, name))) > 1]
    return {key(one): _label(one, differ, usual) for one in families}


def _texts(families: Sequence[Family], name: str) -> list[str]:
    return [str(one.get(name)) for one in families]


def _label(one: Family, differ: Sequence[str], usual: Mapping[str, str]) -> str:
    """differ: names of values to show; usual: of each other name, the value that is not worth showing."""
    parts = [str(one[name]) for name in differ if name in one]
    parts += [in_words(name, one.get(name)) for name, value in usual.items() if str(one.get(name)) != value]
    return ", ".join(part for part in parts if part) or plainly(one)


def plainly(one: Family) -> str:
    """The name of a family that nothing tells from others."""
    return f"{one.get('strategy')}, {one.get('precision')}"


def in_words(name: str, value: Any) -> str:
    """A setting in words: ('comm_hook', 'fp16') -> 'fp16 hook'; '' for one that is not set."""
    if value in (None, "none") or (value is False and name not in _defaults()):
        return ""
    if isinstance(value, bool):
        return f"{'' if value else 'no '}{name.replace('_', ' ')}"
    return WORDS.get(name, name.replace("_", " ") + " {}").format(value)


def shared(names: Iterable[str]) -> str:
    """The parts that all these labels have: ('ddp', 'ddp, lr 0.2') -> 'ddp'; '' where they have none."""
    first, *others = [name.split(", ") for name in names]
    return ", ".join(part for part in first if all(part in parts for parts in others))


def counted(count: int, unit: str) -> str:
    """(2, 'GPU') -> '2 GPUs'."""
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


def unit(runs: Iterable[Run]) -> str:
    """GPU, or CPU rank where no run used a GPU."""
    devices = {str(run.last.get("device")) for run in runs if run.epochs}
    return "CPU rank" if devices == {"CPU"} else "GPU"


def short(unit: str) -> str:
    """'CPU rank' -> 'rank', for where there is little room."""
    return unit.split()[-1]


def _plain(value: Any) -> Any:
    """The same value whether it came from YAML, JSON or a command line."""
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
