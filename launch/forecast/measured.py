"""What runs say of the machines they ran on: from their folders to launch.core.estimate's terms."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from launch.core import runs
from launch.core.estimate.calibrate import Measured
from launch.core.estimate.formulas import Layout
from launch.core.estimate.tables import data_set
from launch.core.estimate.training import FOLDER_PX, SYNTHETIC_PX
from launch.core.runs import Run, number
from trainer.errors import SettingsError

NEEDED = ("step_ms", "images_per_s", "global_batch")


def read(places: Sequence[Path]) -> list[Measured]:
    """What the runs in and below `places` measured.  Raises SettingsError where none has an epoch that was timed."""
    if not places:
        return []
    found = runs.find(places)
    measured = [
        of(run) for run in found if all(run.typical(name) for name in NEEDED) and number(run.last, "global_batch")
    ]
    if not measured:
        raise SettingsError(f"--from-run {places[0]}: no run there has a whole epoch; train one first.")
    return measured


def of(run: Run) -> Measured:
    """One run's steady epochs: their medians.  Of a batch ramp, those at its last batch."""
    settings, last = run.settings, run.last
    accumulate, replicas = int(settings.get("accumulate") or 1), max(1, run.replicas)
    nodes, per_update = int(number(last, "nodes") or 1), int(number(last, "global_batch") or 0)
    alike = tuple(epoch for epoch in run.steady if number(epoch, "global_batch") == per_update)
    # In place of the first, which is not steady, one that is: so all of them count.
    run = replace(run, epochs=alike[:1] + alike)
    all_reduce = run.typical("all_reduce_gb_per_s")
    return Measured(
        name=run.name,
        model=str(settings.get("model", "")),
        px=int(settings.get("image_size") or _px(str(settings.get("dataset", "")))),
        device=str(last.get("device") or "CPU"),
        half=last.get("precision") in ("fp16", "bf16"),
        layout=Layout(nodes, replicas // nodes),
        batch=per_update // replicas // accumulate,
        accumulate=accumulate,
        step_s=(run.typical("step_ms") or 0.0) / 1e3,
        wait_s=(run.typical("data_wait_ms") or 0.0) / 1e3,
        communication_s=(run.typical("communication_ms") or 0.0) / 1e3,
        images_per_s=run.typical("images_per_s") or 0.0,
        all_reduce_per_s=all_reduce * 1e9 if all_reduce else None,
        instance_type=_instance_type(run),
        threads=settings.get("threads"),
    )


def _px(dataset: str) -> int:
    """Of its images, unless --image-size said otherwise."""
    if known := data_set(dataset):
        return known.px
    return SYNTHETIC_PX if dataset == "synthetic" else FOLDER_PX


def _instance_type(run: Run) -> str | None:
    """By EC2's name, where the backend chose one."""
    asked = run.options.get("instance_type")
    first = asked[0] if isinstance(asked, (list, tuple)) and asked else asked
    return str(first).removeprefix("ml.") if first else None
