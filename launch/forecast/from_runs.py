"""Times from earlier runs: the built-in trainer's measurements, and durations of scripts.  Reads only."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from posixpath import isabs, normpath, relpath
from statistics import median
from typing import Any, Literal

from launch.core import backend as backends
from launch.core import catalog, runs
from launch.core.catalog import SAGEMAKER_PREFIX
from launch.core.earlier import COUNTING, took
from launch.core.estimate.calibrate import Measured
from launch.core.estimate.formulas import AGAIN, Layout
from launch.core.estimate.laws import amdahl
from launch.core.estimate.rates import data_set
from launch.core.estimate.training import FOLDER_PX, SYNTHETIC_PX
from launch.core.runs import Run, number
from launch.forecast.options import ScriptOptions
from trainer import outcome as outcomes
from trainer.contract import PACE
from trainer.errors import SettingsError, one_line
from trainer.script.pace import Pace, parse

NEEDED = ("step_ms", "images_per_s", "global_batch")
Basis = Literal["measured", "fitted", "range"]
# Options in the kind of a run.  Nodes, types and ranks per node are not, as they are in its layout.
OPTIONS = tuple(name for name in (*COUNTING, "gpu_type", "partition") if name != "nproc_per_node")
SHOWN = 5
Refused = list[tuple[str, str]]


def measurements(places: Sequence[Path]) -> list[Measured]:
    """The measurements of the runs in and below `places`.  Raises SettingsError if none has a timed epoch.

    Runs of one epoch, whose time includes the start of workers, tuning and compilation, count only if all runs are.
    """
    if not places:
        return []
    measured = [run for run in runs.find(places) if _is_measured(run)]
    if not measured:
        raise SettingsError(f"--from-run {places[0]}: no run there has a whole epoch; train one first.")
    warm = [run for run in measured if len(run.epochs) > 1]
    return [measurement(run) for run in warm or measured]


def _is_measured(run: Run) -> bool:
    return all(run.typical(name) for name in NEEDED) and bool(number(run.last, "global_batch"))


def measurement(run: Run) -> Measured:
    """The medians of a run's steady epochs; with a batch ramp, of those at the last batch."""
    settings, last = run.settings, run.last
    accumulate, replicas = _count(settings, "accumulate"), max(1, run.replicas)
    nodes, per_update = min(_count(last, "nodes"), replicas), _count(last, "global_batch")
    steady = _at_last_batch(run, per_update)
    all_reduce = steady.typical("all_reduce_gb_per_s")
    return Measured(
        name=run.name if len(run.epochs) > 1 else f"{run.name} (its warm-up: train two epochs or more)",
        model=str(settings.get("model", "")),
        px=_count(settings, "image_size", _px(str(settings.get("dataset", "")))),
        device=str(last.get("device") or "CPU"),
        half=last.get("precision") in ("fp16", "bf16"),
        layout=Layout(nodes, replicas // nodes),
        batch=max(1, per_update // replicas // accumulate),
        accumulate=accumulate,
        step_s=_typical(steady, "step_ms") / 1e3,
        wait_s=_typical(steady, "data_wait_ms") / 1e3,
        communication_s=_typical(steady, "communication_ms") / 1e3,
        images_per_s=_typical(steady, "images_per_s"),
        all_reduce_per_s=all_reduce * 1e9 if all_reduce else None,
        instance_type=plain(_instance_type(run)) or None,
        threads=_count(settings, "threads", 0) or None,
        precision=str(last.get("precision") or ""),
        dataset=str(settings.get("dataset") or ""),
        sharing=(str(last.get("strategy") or ""), str(settings.get("comm_hook") or "none")),
    )


def _at_last_batch(run: Run, per_update: int) -> Run:
    """The run with only its steady epochs at that batch; the first is repeated, as a run's first epoch never counts."""
    alike = tuple(epoch for epoch in run.steady if number(epoch, "global_batch") == per_update)
    return replace(run, epochs=alike[:1] + alike)


def _count(record: Mapping[str, Any], name: str, otherwise: int = 1) -> int:
    """A count of at least 1; `otherwise` if it is missing or invalid."""
    found = number(record, name)
    return otherwise if found is None or found < 1 else int(found)


def _typical(run: Run, name: str) -> float:
    return run.typical(name) or 0.0


def _px(dataset: str) -> int:
    """The data set's image size, unless --image-size set another."""
    if known := data_set(dataset):
        return known.px
    return SYNTHETIC_PX if dataset == "synthetic" else FOLDER_PX


def _instance_type(run: Run) -> str:
    """The type as given, the first of several; empty if the backend's options name none."""
    types = run.options.get("instance_type")
    first = types[0] if isinstance(types, (list, tuple)) and types else types
    return str(first or "")


@dataclass(frozen=True)
class Sample:
    """How long a run took."""

    run: str
    name: str  # of its instance type, as given; of its backend if it has none
    layout: Layout  # counts ranks as GPUs
    seconds: float
    kind: Mapping[str, Any] = field(default_factory=dict)  # other settings that its time depends on
    done: float = 1.0  # the measured share; below 1 if it was cut short

    @property
    def machine(self) -> str:
        """The type's EC2 name, as SageMaker's machines are the same."""
        return plain(self.name)


@dataclass(frozen=True)
class Samples:
    """Samples of one script with the same arguments."""

    script: str
    known: tuple[Sample, ...]
    refused: tuple[tuple[str, str], ...] = ()  # runs without a known time, each with the reason
    unread: tuple[str, ...] = ()  # an error message for each run that could not be read


@dataclass(frozen=True)
class Expected:
    """Expected seconds."""

    basis: Basis
    value: float | None  # None if only the bounds are known
    best: float
    worst: float


def plain(name: str) -> str:
    return name.removeprefix(SAGEMAKER_PREFIX)


def expect(layout: Layout, samples: Sequence[Sample]) -> Expected | None:
    """The expected time on a layout.  None if only as many GPUs on another number of nodes were measured."""
    own = [sample.seconds for sample in samples if sample.layout == layout]
    if own:
        usual = median(own)
        return Expected("measured", usual, min(*own, usual * (1 - AGAIN)), max(*own, usual * (1 + AGAIN)))
    times = times_of(samples)
    bounds = _bounds(layout.replicas, times)
    if bounds is None:
        return None
    best, worst = bounds
    law = amdahl(times)
    if law is None or not law.describes:
        return Expected("range", None, best, worst)
    value = law.value(layout.replicas)
    return Expected("fitted", value, min(value, best), max(value, worst))


def times_of(samples: Sequence[Sample]) -> list[tuple[int, float]]:
    """The median of each layout."""
    layouts = dict.fromkeys(sample.layout for sample in samples)
    return [
        (layout.replicas, median(sample.seconds for sample in samples if sample.layout == layout))
        for layout in layouts
    ]  # fmt: skip


def _bounds(count: int, times: Sequence[tuple[int, float]]) -> tuple[float, float] | None:
    """The least and the most seconds, assuming no gain to perfect scaling from each measured number of GPUs.

    None without measurements on another number of GPUs.
    """
    others = [(n / count, seconds) for n, seconds in times if n != count]
    if not others:
        return None
    best = max(seconds * min(1.0, share) for share, seconds in others)
    worst = min(seconds * max(1.0, share) for share, seconds in others)
    return min(best, worst), max(best, worst)  # they are reversed if more GPUs took longer, or scaled better


def samples_of(script: ScriptOptions, arguments: Sequence[str], places: Sequence[Path]) -> Samples:
    """The samples of the script's runs in and below `places`.  Raises SettingsError if there is none.

    arguments: of the script; empty: those of its runs, which must be equal.
    """
    called = f"-m {script.module}" if script.module else _normalized(str(script.script))
    if not places:
        raise SettingsError(f"how {called} scales is not known before it has run; {_remedy(script)}")
    found, unread = runs.readable(places)
    own = _with_arguments(_of_script(found, called, script, places[0]), called, arguments)
    refused: Refused = []
    samples = [sample for run in own if (sample := _sample(run, refused))]
    if not samples:
        run, why = refused[0]
        raise SettingsError(
            f"no run of {called} below {places[0]} shows how long it takes: {run} {why}; complete a run once."
        )
    return Samples(f"{called} {_arguments_of(own[0])}".rstrip(), _without_cut(samples), tuple(refused), tuple(unread))


def _normalized(path: str) -> str:
    """Normalize a script's path as runs record it: ./train.py is train.py."""
    return normpath(relpath(path) if isabs(path) else path)


def _remedy(script: ScriptOptions) -> str:
    name = f"module: {script.module}" if script.module else f"script: {script.script}"
    return (
        "put this into scaling.yaml, run `python -m launch.sweep scaling.yaml`, and add --from-run "
        f"runs/sweep-scaling:\nbackend: ec2\n{name}\ngrid: {{instance_type: [g5.2xlarge], nodes: [1, 2]}}"
    )


def _of_script(found: Sequence[Run], called: str, script: ScriptOptions, place: Path) -> list[Run]:
    known = [run for run in found if run.is_script and isinstance(run.settings.get("args"), list)]
    own = [run for run in known if _script_of(run) == called]
    if own:
        return own
    others = sorted({one_line(_script_of(run), 60) for run in known})[:SHOWN]
    if others:
        raise SettingsError(f"{place} has no run of {called}; its runs are of {', '.join(others)}: name one of these.")
    raise SettingsError(
        f"{place} has no run of a script that says on what machines it ran, as those of sweeps do; {_remedy(script)}"
    )


def _script_of(run: Run) -> str:
    name = str(run.settings["script"])
    return name if name.startswith("-m ") else _normalized(name)


def _with_arguments(own: Sequence[Run], called: str, arguments: Sequence[str]) -> list[Run]:
    """The runs with these arguments; without arguments all runs, which must have equal ones."""
    by_words: dict[str, list[Run]] = {}
    for run in own:
        by_words.setdefault(_arguments_of(run), []).append(run)
    shown = ", or ".join(one_line(words, 100) or "none" for words in list(by_words)[:SHOWN])
    asked = shlex.join(arguments)
    if not arguments and len(by_words) > 1:
        raise SettingsError(
            f"the runs of {called} there have different arguments: {shown}; name those of one after --, or its folder "
            "with --from-run."
        )
    found = by_words.get(asked) if arguments else own
    if not found:
        raise SettingsError(f"no run of {called} there has the arguments {asked}; they have {shown}.")
    return list(found)


def _arguments_of(run: Run) -> str:
    return shlex.join(map(str, run.settings["args"]))


def _sample(run: Run, refused: Refused) -> Sample | None:
    """The time of a run; None if that is not known, with the reason added to `refused`."""
    seconds, done = _seconds(run)
    layout = _layout(run)
    if run.rehearsed:
        refused.append((run.name, f"was rehearsed on this machine, and not run on {_name(run)}"))
    elif layout is None:
        refused.append((run.name, "does not record how many GPUs its nodes had"))
    elif seconds <= 0:
        refused.append((run.name, f"is {run.state}, and recorded no pace"))
    else:
        kind = {"variables": run.settings.get("variables"), "processes": run.settings.get("processes")}
        kind |= {name: run.options[name] for name in OPTIONS if name in run.options}
        return Sample(run.name, _name(run), layout, seconds, kind, done)
    return None


def _seconds(run: Run) -> tuple[float, float]:
    """Seconds from launch to end, without a queue, and the share done; by its pace if it was cut short."""
    if run.state == "done":
        held_s = backends.find(run.backend).held_s(run.folder) if run.backend in backends.BACKENDS else None
        return held_s or run.seconds or 0.0, 1.0
    return took(outcomes.read(run.folder), _pace(run.folder / PACE))


def _pace(path: Path) -> Pace | None:
    try:
        return parse(path.read_bytes())
    except OSError:
        return None


def _name(run: Run) -> str:
    """The type as given; the backend's name if it has no types."""
    return _instance_type(run) or run.backend


def _layout(run: Run) -> Layout | None:
    """Nodes, and ranks per node, or GPUs if one process uses them all; None if not known."""
    instance = catalog.load().get(plain(_name(run)))
    gpus = max(1, instance.gpus) if instance else number(run.options, "gpus_per_node")
    if run.settings.get("processes") == "one":
        each = gpus
    else:
        each = number(run.options, "nproc_per_node") or gpus or (None if run.options.get("instance_type") else 1)
    return Layout(int(number(run.options, "nodes") or 1), int(each)) if each else None


def _without_cut(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Drop runs that were cut short, if a run on the same machines was completed."""
    whole = {(sample.machine, sample.layout) for sample in samples if sample.done == 1}
    return tuple(sample for sample in samples if sample.done == 1 or (sample.machine, sample.layout) not in whole)


def nothing_from(refused: Sequence[tuple[str, str]]) -> list[str]:
    """The runs that could not be used, by reason.  refused: names of runs, each with its reason."""
    by_reason: dict[str, list[str]] = {}
    for run, why in refused:
        by_reason.setdefault(why, []).append(run)
    sentences = []
    for why, names in by_reason.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        sentences.append(f"nothing from {names[0]}{others}, which {why}")
    return sentences


def counted(counts: Collection[int], unit: str) -> str:
    """Numbers in words: ({1, 4, 2}, 'GPU') -> '1, 2 and 4 GPUs'."""
    *others, last = sorted(counts)
    several = others or last != 1
    return f"{', '.join(map(str, others))}{' and ' if others else ''}{last:,} {unit}{'s' if several else ''}"
