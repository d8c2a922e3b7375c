"""The accuracy that the defaults reach: data set x model x optimizer, nothing else given.

python -m tests.bench.defaults [--models cnn resnet18] [--optimizers sgd adamw lars muon] [-- --image-size 16 ...]
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.report import machine, say
from trainer.config import TrainConfig
from trainer.contract import METRICS, SETTINGS
from trainer.metrics.log import read_records
from trainer.optimizers import NAMES
from trainer.settings.flags import read_yaml


def train(dataset: str, model: str, optimizer: str, more: list[str]) -> str:
    """Trains and returns what came out of it, in a line."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "--dataset",
            dataset,
            "--model",
            model,
            "--optimizer",
            optimizer,
            "--no-plot",
            "--run-dir",
            folder,
            *more,
        ]
        ended = subprocess.run([sys.executable, "-m", "trainer", *words], capture_output=True, text=True, check=False)
        if ended.returncode:
            return ended.stderr.strip()
        last = read_records(Path(folder, METRICS))[-1]
        chosen = read_yaml(Path(folder, SETTINGS), [TrainConfig])
    return f"{last['eval_top1']:6.1%} after {last['updates']} updates, learning rate {chosen['lr']}"


def main() -> None:
    """Trains each and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["digits"])
    parser.add_argument("--models", nargs="+", default=["cnn", "resnet18"])
    parser.add_argument("--optimizers", nargs="+", default=list(NAMES))
    parser.add_argument("more", nargs="*", help="further settings of the trainer, after --")
    given = parser.parse_args()
    for dataset in given.datasets:
        for model in given.models:
            for optimizer in given.optimizers:
                say(f"{dataset:<12}{model:<10}{optimizer:<7}{train(dataset, model, optimizer, given.more)}")
    say(f"({machine()})")


if __name__ == "__main__":
    main()
