"""Seconds until a data set is ready to train on: the first time, when it is decoded, and the second.

python -m tests.bench.data_start --data-dir DIR [--dataset imagefolder] [--rounds 3]
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.report import machine, say
from trainer import datasets
from trainer.config import TrainConfig
from trainer.distributed.ranks import Ranks
from trainer.distributed.session import Session
from trainer.errors import import_function
from trainer.process.machine import pick_device
from trainer.training import data_request


def ready_s(settings: TrainConfig, session: Session) -> float:
    """Seconds for one load, imports not counted."""
    loader = import_function(datasets.find(settings.dataset).load)
    began = time.perf_counter()
    loader(data_request(settings, session, channels_last=True))
    return time.perf_counter() - began


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--dataset", default="imagefolder")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    session = Session(Ranks(), pick_device("auto", Ranks()), 60.0)
    firsts, seconds = [], []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as cache:
            settings = TrainConfig(dataset=given.dataset, data_dir=given.data_dir, cache_dir=Path(cache))
            firsts.append(ready_s(settings, session))
            seconds.append(ready_s(settings, session))
    first, second = statistics.median(firsts), statistics.median(seconds)
    say(f"{given.dataset}: first start {first:.2f} s, second {second:.2f} s ({first / second:.0f}x)   ({machine()})")


if __name__ == "__main__":
    main()
