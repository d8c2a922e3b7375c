"""A tracker that takes long to send its last when the training has failed."""

import time
from pathlib import Path
from typing import Any

import torch

from tests import warm
from tests.conftest import trainer_words
from trainer import run
from trainer.__main__ import read_settings
from trainer.distributed import failure, heartbeat
from trainer.distributed.ranks import Ranks
from trainer.errors import TrainerError
from trainer.metrics.log import Journal


class SlowTracker:
    def __init__(self, sent: Path) -> None:
        self._sent = sent

    def write(self, record: object) -> None:
        pass

    def close(self) -> None:
        time.sleep(2)  # as to a server far away
        self._sent.touch()


def train_to_a_loss_that_explodes(ranks: Ranks, folder: Path, ended: Any) -> None:
    torch.set_num_threads(1)
    heartbeat.NOTICE_WITHIN_S = failure.LEAVE_FIRST_S = 0.2
    run._journal = lambda training, run_dir: Journal([SlowTracker(folder / "sent")])  # type: ignore[assignment]
    try:
        config = read_settings(trainer_words(folder, "--lr", "1e30"))
        run.run(config, ranks, lambda: folder / "run", lambda line: None, interactive=False)
    except TrainerError as error:
        ended.put((ranks.rank, str(error)))


def test_a_slow_tracker_is_not_cut_off_by_the_ranks_that_have_left(tmp_path: Path) -> None:
    ended, port = warm.queue(), warm.free_port()
    ranks = [Ranks(rank, 2, rank, 2, master_port=port, source="test") for rank in range(2)]
    processes = [warm.start(train_to_a_loss_that_explodes, rank, tmp_path, ended) for rank in ranks]
    said = dict(ended.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(timeout=30)
    assert [process.exitcode for process in processes] == [0, 0]
    assert "the loss is not finite" in said[0]
    assert (tmp_path / "sent").exists()
