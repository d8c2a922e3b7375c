"""Trackers elsewhere: an MLflow server, of which this has as much as the trainer asks, and one that is slow."""

import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import warm
from tests.conftest import trainer_words
from trainer import run
from trainer.__main__ import read_settings
from trainer.config import TrainConfig
from trainer.distributed import failure, heartbeat
from trainer.distributed.ranks import Ranks
from trainer.errors import TrainerError
from trainer.metrics.log import Journal, open_journal

# ---- mlflow server


EXPERIMENT = {"experiment_id": "1", "name": "experiment", "lifecycle_stage": "active", "artifact_location": "/nowhere"}
INFO = {"run_id": "r1", "run_uuid": "r1", "run_name": "known", "experiment_id": "1", "status": "RUNNING",
        "lifecycle_stage": "active", "artifact_uri": "/nowhere", "start_time": 1}  # fmt: skip
ANSWERS = {
    "experiments/get-by-name": {"experiment": EXPERIMENT},
    "runs/create": {"run": {"info": INFO, "data": {}}},
    "runs/get": {"run": {"info": INFO, "data": {}}},
    "runs/update": {"run_info": INFO},
}


class Server(ThreadingHTTPServer):
    asked: list[str]


class Answers(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = self.path.partition("?")[0].rpartition("/mlflow/")[2]
        self.server.asked.append(call)
        body = json.dumps(ANSWERS.get(call, {})).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815  # http.server calls it so

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    mlflow = pytest.importorskip("mlflow")
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    monkeypatch.setattr(os, "environ", os.environ.copy())
    with Server(("127.0.0.1", 0), Answers) as made:
        made.asked = []
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()
    mlflow.set_tracking_uri(before)


@pytest.mark.parametrize(("user", "is_shown"), [("ann:pl4nt3d@", False), ("", True)])
def test_no_password_of_mlflows_server_is_in_the_log(
    server: Server, user: str, is_shown: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As --secret MLFLOW_TRACKING_URI=ssm:/... gives it; without one, where to see the run is worth a line."""
    import mlflow

    mlflow.set_tracking_uri(f"http://{user}127.0.0.1:{server.server_port}")

    open_journal(TrainConfig(mlflow="experiment"), tmp_path, 0).close()

    said = capfd.readouterr()
    assert "runs/update" in server.asked
    assert "pl4nt3d" not in said.out + said.err
    assert ("View run known at: http://127.0.0.1:" in said.out) is is_shown


# ---- slow tracker


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
