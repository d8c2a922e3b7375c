"""Runs with numbers that can be checked by head, as a sweep and as a trainer leave them."""

import json
from pathlib import Path
from typing import Any

import yaml

from launch.core import runs
from launch.core.runs import Run
from trainer.contract import METRICS, SETTINGS

RATE = 1000.0  # images/s of one GPU
IMAGES = 10_000  # of an epoch


def run(  # noqa: PLR0913  # what tests vary
    name: str,
    gpus: int = 1,
    batch: int = 100,
    *,
    rate: float | None = None,
    epochs: int = 4,
    accuracy: float | None = 0.9,
    nodes: int = 1,
    device: str = "NVIDIA A10G",
    strategy: str = "ddp",
    precision: str = "bf16",
    usd_per_hour: float | None = None,
    **settings: Any,
) -> Run:
    """A run of 10,000 images an epoch; the first epoch takes twice as long, the others all the same."""
    rate = RATE * gpus if rate is None else rate
    settings = {"model": "resnet18", "dataset": "cifar10", "epochs": epochs, "batch_size": batch,
                "strategy": strategy, "precision": precision, **settings}  # fmt: skip
    records = [_record(n, gpus, batch, rate / (1 + (n == 1)), accuracy, nodes) for n in range(1, epochs + 1)]
    common = {"device": device, "strategy": strategy, "precision": precision}
    return Run(name, Path(name), settings, tuple({**record, **common} for record in records),
               usd_per_hour=usd_per_hour)  # fmt: skip


def _record(n: int, gpus: int, batch: int, rate: float, accuracy: float | None, nodes: int) -> dict[str, Any]:
    step_ms = 1e3 * batch * gpus / rate
    talking = 0.0 if gpus == 1 else 0.2 * step_ms
    return {
        "epoch": n, "updates": n, "global_batch": batch * gpus, "images_per_s": rate, "epoch_s": IMAGES / rate,
        "eval_s": 1.0, "train_loss": 2 / n, "eval_loss": None if accuracy is None else 1 / n,
        "eval_top1": None if accuracy is None else accuracy, "train_top1": 0.5, "step_ms": step_ms,
        "data_wait_ms": 0.1 * step_ms, "forward_ms": 0.3 * step_ms, "backward_ms": 0.5 * step_ms - talking,
        "communication_ms": talking, "optimizer_ms": 0.1 * step_ms,
        "all_reduce_gb_per_s": None if gpus == 1 else 5.0, "peak_memory_mib": 1000.0 + batch,
        "world_size": gpus, "replicas": gpus, "nodes": nodes, "parameters": 11_173_962,
    }  # fmt: skip


def kept(folder: Path, *made: Run) -> Path:
    """Writes the runs as a sweep does, a folder each."""
    for one in made:
        place = folder / one.folder.name
        place.mkdir(parents=True, exist_ok=True)
        (place / METRICS).write_text("".join(json.dumps(record) + "\n" for record in one.epochs))
        runs.write(Run(**{**vars(one), "folder": place}))
    return folder


def kept_bare(folder: Path, one: Run) -> Path:
    """Writes a run as the trainer alone does."""
    place = folder / one.name
    place.mkdir(parents=True)
    (place / METRICS).write_text("".join(json.dumps(record) + "\n" for record in one.epochs))
    (place / SETTINGS).write_text(yaml.safe_dump(dict(one.settings)))
    return place


# Amdahl's law with a serial part of 10 %: 1, 1.82, 3.08, 4.71.
SCALED = [run(f"ddp-{n}", n, rate=RATE / (0.1 + 0.9 / n), usd_per_hour=1.8 * n) for n in (1, 2, 4, 8)]
EVERYTHING = [
    *SCALED,
    run("fsdp-8", 8, strategy="fsdp", rate=4000.0, usd_per_hour=14.4),
    run("plain", 8, 1000, accuracy=0.7, usd_per_hour=14.4),
    *[run(f"strong-{n}", n, 100 // n, rate=RATE / (0.1 + 0.9 / n), accuracy=None) for n in (2, 4)],
    run("lars", 8, 1000, accuracy=0.85, optimizer="lars", usd_per_hour=14.4),
]
