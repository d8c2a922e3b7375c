"""What a GPU makes of it: CIFAR-10 speed against random data on the device, accuracy, memory, torch.compile.

Runs anywhere; on a CPU with --small it shows only that it works.

    python -m tests.bench.gpu --data-dir DIR [--batch-size 512] [--epochs 5]
    python -m tests.bench.gpu --data-dir DIR --batch-size 16 --epochs 1 --small
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

from tests.bench.report import machine, say
from trainer.config import TrainConfig
from trainer.distributed.ranks import Ranks
from trainer.metrics.log import read_records
from trainer.run import run

Record = dict[str, Any]


def train(settings: TrainConfig, **changes: object) -> list[Record]:
    """The records of one training."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        config = settings.model_copy(update={"run_dir": Path(folder), **changes})
        run(config, Ranks(), lambda: Path(folder), lambda line: None, interactive=False)
        return read_records(Path(folder) / "metrics.jsonl")


def row(name: str, records: list[Record]) -> None:
    """Prints the last epoch, in which everything is warm."""
    last = records[-1]
    accuracy = "      " if last["eval_top1"] is None else f"{last['eval_top1']:6.1%}"
    say(
        f"{name:<28}{last['images_per_s']:10,.0f} images/s {last['epoch_s']:8.2f} s/epoch  accuracy {accuracy}  "
        f"peak {last['peak_memory_mib']:7,.0f} MiB  step {last['step_ms']:7.2f} ms "
        f"(data {last['data_wait_ms']:.2f}, forward {last['forward_ms']:.2f}, backward {last['backward_ms']:.2f}, "
        f"optimizer {last['optimizer_ms']:.2f})"
    )


def settings_from(given: argparse.Namespace) -> TrainConfig:
    """ResNet-18 on CIFAR-10 in few epochs."""
    small = {"image_size": 8, "max_steps": 4, "synthetic_images": 4 * given.batch_size} if given.small else {}
    return TrainConfig(
        model="resnet18", dataset="imagefolder", data_dir=given.data_dir, epochs=given.epochs,
        batch_size=given.batch_size, lr=0.4, schedule="onecycle", label_smoothing=0.1, plot=False, **small,
    )  # fmt: skip


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True, help="CIFAR-10 as an image folder")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a few steps of 8 px images, for a CPU")
    given = parser.parse_args()
    settings = settings_from(given)
    say(f"{machine()}, batch {given.batch_size}, {given.epochs} epochs")
    real = train(settings)
    row("CIFAR-10", real)
    synthetic = train(settings, dataset="synthetic")
    row("synthetic on the device", synthetic)
    say(f"CIFAR-10 / synthetic: {real[-1]['images_per_s'] / synthetic[-1]['images_per_s']:.3f}")
    if not given.small:
        row("CIFAR-10, torch.compile", train(settings, compile=True))
        row("CIFAR-10, fp32 (TF32)", train(settings, precision="fp32"))


if __name__ == "__main__":
    main()
