"""What is recorded while a rehearsal runs."""

from dataclasses import replace
from itertools import count

import pytest

from launch.rehearse.receipt.page import as_html
from launch.rehearse.recording import Recorder
from tests.launch.rehearse.fake_backend import FakeBackend
from tests.launch.rehearse.receipt.receipts import RECEIPT
from trainer.contract import METRIC_PREFIX


def test_each_change_of_a_node_is_a_line() -> None:
    backend = FakeBackend(places={"i-1": 0})
    recorder = Recorder(backend.as_backend, 5, now=count().__next__)
    run = backend.start("i-1")

    said = [line.text for line in recorder.update()]
    said += [line.text for line in recorder.update()]
    run.state = "trains"
    said += [line.text for line in recorder.update()]
    run.state, run.how = "off", "Server.InternalError"
    said += [line.text for line in recorder.update()]

    assert said == [
        "node i-1, rank 0 at 172.31.0.4: boots",
        "node i-1, rank 0: trains",
        "node i-1, rank 0: off, Server.InternalError",
    ]
    assert [change.state for change in recorder.changes] == ["boots", "trains", "off"]
    assert [line.by for line in recorder.lines] == ["node"] * 3


def test_a_replaced_node_keeps_its_rank() -> None:
    backend = FakeBackend(places={"i-1": 1})
    recorder = Recorder(backend.as_backend, 5)
    backend.start("i-1").state = "off"
    recorder.update()

    backend.places = {"i-2": 1}
    backend.start("i-2")
    recorder.update()

    assert {name: change.rank for name, change in recorder.latest_changes().items()} == {"i-1": 1, "i-2": 1}


def test_an_epoch_is_shown_once_and_at_once() -> None:
    backend = FakeBackend()
    recorder = Recorder(backend.as_backend, 5)
    backend.train(1)

    assert [line.text for line in recorder.update()] == ["epoch 1/5: loss 1.5000, eval accuracy 75.0%, 1,234 images/s"]
    assert recorder.update() == []
    assert recorder.launcher_line("[0] epoch 1/5  loss 1.5000  accuracy 41.1%") is None
    assert recorder.launcher_line("[0] [METRIC] epoch=1 train_loss=1.5") is None
    assert recorder.launcher_line("[0] epoch 2/5  loss 1.2000  accuracy 51.1%") is not None
    assert recorder.launcher_line("[0] done") is not None


def test_an_epoch_that_is_trained_again_is_shown_again() -> None:
    backend = FakeBackend()
    recorder = Recorder(backend.as_backend, 5)
    for epoch in (1, 2, 2, 3):
        backend.train(epoch)
        recorder.update()

    assert [epoch.number for epoch in recorder.epochs] == [1, 2, 2, 3]


def test_a_torn_metric_line_is_accepted() -> None:
    backend = FakeBackend(lines={"job/node-0": ["[METRIC] epoch=3 train_lo"]})

    assert [line.text for line in Recorder(backend.as_backend, 5).update()] == ["epoch 3/5"]


def test_a_scripts_records_show_its_own_metrics_and_count_as_steps() -> None:
    backend = FakeBackend(lines={"job/node-0": ["[METRIC] loss=0.25 acc=0.5", "hello", "[METRIC] step=20 loss=0.125"]})
    recorder = Recorder(backend.as_backend, None)

    assert [line.text for line in recorder.update()] == ["loss 0.25, acc 0.5", "step 20, loss 0.125"]
    assert [epoch.number for epoch in recorder.epochs] == [1, 20]


def test_faults_at_an_epoch_wait_for_a_scripts_records_where_it_names_no_epoch() -> None:
    steps = FakeBackend(lines={"job/node-0": ["[METRIC] loss=0.5", "[METRIC] loss=0.25"]})
    epochs = FakeBackend(lines={"job/node-0": ["[METRIC] epoch=3 loss=0.5", "[METRIC] epoch=3 acc=0.5"]})

    for backend, reached in ((steps, 2), (epochs, 3)):
        recorder = Recorder(backend.as_backend, None)
        recorder.update()
        assert recorder.reached == reached


@pytest.mark.parametrize("said", ["step=2 loss=nan", "epoch=inf loss=2", "step=nan loss=2"])
def test_a_scripts_non_finite_numbers_are_left_out(said: str) -> None:
    backend = FakeBackend(lines={"job/node-0": ["[METRIC] step=1 epoch=1 loss=0.5", f"[METRIC] epoch=1 {said}"]})
    recorder = Recorder(backend.as_backend, None)
    recorder.update()

    assert recorder.reached == 1
    page = as_html(replace(RECEIPT, epochs=recorder.epochs))
    assert "0.5" in page
    assert "nan" not in page.partition('<table id="nodes">')[0]


def test_where_the_first_record_names_an_epoch_a_later_one_without_is_torn() -> None:
    said = [f"{METRIC_PREFIX} epoch=1 train_loss=0.5"]
    recorder = Recorder(FakeBackend(lines={"job/node-0": said}).as_backend, 5)
    recorder.update()
    said += [f"{METRIC_PREFIX} loss=0.5", f"{METRIC_PREFIX} epoch=2 train_loss=0.25"]
    recorder.update()

    assert [epoch.number for epoch in recorder.epochs] == [1, 2]
