"""Measurements of runs, from their folders, in launch.core.estimate's terms."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.core import runs
from launch.core.estimate.calibrate import Measured
from launch.core.estimate.formulas import Layout
from launch.core.estimate.tables import data_set
from launch.core.estimate.training import FOLDER_PX, SYNTHETIC_PX
from launch.core.run import Run, number
from trainer.errors import SettingsError

NEEDED = ("step_ms", "images_per_s", "global_batch")


def read(places: Sequence[Path]) -> list[Measured]:
    """The measurements of the runs in and below `places`.  Raises SettingsError where none has a timed epoch.

    Runs of one epoch, which has the start of workers, tuning and compilation in it, count where there are no others.
    """
    if not places:
        return []
    measured = [run for run in runs.find(places) if _is_measured(run)]
    if not measured:
        raise SettingsError(f"--from-run {places[0]}: no run there has a whole epoch; train one first.")
    warm = [run for run in measured if len(run.epochs) > 1]
    return [of(run) for run in warm or measured]


def _is_measured(run: Run) -> bool:
    return all(run.typical(name) for name in NEEDED) and bool(number(run.last, "global_batch"))


def of(run: Run) -> Measured:
    """The medians of a run's steady epochs; of a batch ramp, of those at its last batch."""
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
        instance_type=_instance_type(run),
        threads=_count(settings, "threads", 0) or None,
        precision=str(last.get("precision") or ""),
        dataset=str(settings.get("dataset") or ""),
        sharing=(str(last.get("strategy") or ""), str(settings.get("comm_hook") or "none")),
    )


def _at_last_batch(run: Run, per_update: int) -> Run:
    """The run with its steady epochs at that batch only, after one that takes the place of the first."""
    alike = tuple(epoch for epoch in run.steady if number(epoch, "global_batch") == per_update)
    return replace(run, epochs=alike[:1] + alike)


def _count(record: Mapping[str, Any], name: str, otherwise: int = 1) -> int:
    """How many, at least one; what is no such number is as if it were missing: a run may be a stranger's."""
    found = number(record, name)
    return otherwise if found is None or found < 1 else int(found)


def _typical(run: Run, name: str) -> float:
    return run.typical(name) or 0.0


def _px(dataset: str) -> int:
    """The data set's image size, unless --image-size set another."""
    if known := data_set(dataset):
        return known.px
    return SYNTHETIC_PX if dataset == "synthetic" else FOLDER_PX


def _instance_type(run: Run) -> str | None:
    """EC2's name of the type, where the backend's options name one."""
    types = run.options.get("instance_type")
    first = types[0] if isinstance(types, (list, tuple)) and types else types
    return str(first).removeprefix("ml.") if first else None
