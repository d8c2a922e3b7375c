"""Which runs are the same training but for the number of GPUs and the batch, and what they are called.  Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from launch.core.runs import Run

# Change nothing about what is trained or how fast; a seed makes a repetition.
APART = frozenset({
    "seed", "run_dir", "checkpoint_dir", "data_dir", "cache_dir", "download", "checkpoint_every_s",
    "keep_checkpoints", "resume", "progress", "log_every", "probe_steps", "plot", "tensorboard", "wandb", "mlflow",
    "timeout_s", "device", "amp", "max_bad_images",
})  # fmt: skip
BATCH = frozenset({"batch_size", "global_batch_size"})
# How the GPUs of a run share their work: of no effect on one.
SHARING = frozenset({
    "strategy", "comm_hook", "powersgd_rank", "bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "layout",
})  # fmt: skip
# What is learnt is the same, but for rounding, whatever these are.
SPEED = SHARING - {"comm_hook", "powersgd_rank"} | {
    "threads", "workers", "channels_last", "compile", "compile_mode", "fused", "cudnn_benchmark", "deterministic",
    "eval_batch_size", "device_name", "instance_type", "backend",
}  # fmt: skip
OPTIONS = ("instance_type",)  # of a backend, those that change how fast it is
# Say themselves what they are, and are said where they differ.
NAMED = ("model", "dataset", "strategy", "precision", "backend", "instance_type", "device_name")
WORDS = {"comm_hook": "{} hook", "lr_scaling": "{} lr scaling", "optimizer": "{}",
         "layout": "{}", "batch_ramp": "ramp {}", "lr": "lr {}"}  # fmt: skip

Family = Mapping[str, Any]


def family(run: Run) -> dict[str, Any]:
    """What `run` is, with neither batch nor number of GPUs; settings that are the trainer's defaults are left out."""
    given = {name: value for name, value in run.settings.items() if name not in APART | BATCH}
    found = {name: value for name, value in given.items() if _plain(value) != _plain(_defaults().get(name))}
    if run.settings.get("amp") is False:
        found["precision"] = "fp32"
    for name in ("model", "dataset", "strategy", "precision"):
        found[name] = found.get(name, _defaults()[name])
    if found["strategy"] == "auto":
        found["strategy"] = "ddp"  # with several ranks, and with one there is nothing to share
    if precision := run.last.get("precision"):  # what auto came to
        found["precision"] = precision
    found |= {name: run.options[name] for name in OPTIONS if run.options.get(name)}
    found["backend"] = run.backend
    if device := run.last.get("device"):
        found["device_name"] = device
    return {name: _plain(value) for name, value in found.items()}


def key(of: Family) -> str:
    """The same for the same family."""
    return repr(sorted(of.items()))


def without(of: Family, names: Iterable[str]) -> dict[str, Any]:
    left_out = set(names)
    return {name: value for name, value in of.items() if name not in left_out}


def labels(families: Sequence[Family]) -> dict[str, str]:
    """A name for each, by its key: what sets it apart from the others."""
    names = sorted({name for one in families for name in one} - set(NAMED))
    usual = {name: Counter(str(one.get(name)) for one in families).most_common(1)[0][0] for name in names}
    differ = [name for name in NAMED if len({str(one.get(name)) for one in families}) > 1]
    found = {}
    for one in families:
        parts = [str(one[name]) for name in differ if name in one]
        parts += [said(name, one.get(name)) for name in names if str(one.get(name)) != usual[name]]
        found[key(one)] = ", ".join(part for part in parts if part) or _plainly(one)
    return found


def said(name: str, value: Any) -> str:
    """A setting in words: ('comm_hook', 'fp16') -> 'fp16 hook'; '' for one that is not set."""
    if value in (None, "none") or (value is False and name not in _defaults()):
        return ""
    if isinstance(value, bool):
        return f"{'' if value else 'no '}{name.replace('_', ' ')}"
    return WORDS.get(name, name.replace("_", " ") + " {}").format(value)


def counted(count: int, unit: str) -> str:
    """(2, 'GPU') -> '2 GPUs'."""
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


def unit(runs: Iterable[Run]) -> str:
    """What is counted: GPUs, or the CPU's ranks where no run has seen a GPU."""
    devices = {run.last.get("device") for run in runs if run.epochs}
    return "CPU rank" if devices == {"CPU"} else "GPU"


def short(unit: str) -> str:
    """'CPU rank' -> 'rank', for where there is little room."""
    return unit.split()[-1]


def _plainly(one: Family) -> str:
    return f"{one.get('strategy')}, {one.get('precision')}"


def _plain(value: Any) -> Any:
    """The same whether it came from YAML, JSON or a command line."""
    if isinstance(value, Mapping):
        return ",".join(f"{start}:{images}" for start, images in value.items()) or None
    if isinstance(value, (list, tuple)):
        return ",".join(f"{item:g}" if isinstance(item, float) else str(item) for item in value) or None
    if isinstance(value, str) and value.lower() in ("", "none", "null"):
        return None if value != "none" else "none"
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


@cache
def _defaults() -> Mapping[str, Any]:
    from trainer.config import TrainConfig

    return {name: field.default for name, field in TrainConfig.model_fields.items()}
