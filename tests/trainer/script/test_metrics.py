"""Metric lines on a script's standard output become lines of metrics.jsonl."""

import json
from pathlib import Path

import pytest

from trainer.script.metrics import MetricLines, values_of


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("[METRIC] step=10 loss=0.25 acc=1e-3", {"step": 10, "loss": 0.25, "acc": 0.001}),
        ("  [METRIC] loss=nan best=-inf\r", {"loss": None, "best": None}),
        ("[METRIC] name=resnet lr=0.1, eval/top-1=0.5", {"lr": 0.1, "eval/top-1": 0.5}),
        ("[METRIC] n=99999999999999999999 signed=-3", {"n": 1e20, "signed": -3}),
        ("[METRIC] " + "n=" + "9" * 400, {"n": None}),
        ("[METRIC]", {}),
        ("see [METRIC] loss=1", {}),
        ("loss=1", {}),
    ],
)
def test_the_numbers_of_a_metric_line(line: str, values: dict[str, float | None]) -> None:
    assert values_of(line) == values


def records(path: Path) -> list[object]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_line_is_one_record_however_it_arrives(tmp_path: Path) -> None:
    path, warnings = tmp_path / "metrics.jsonl", list[str]()
    lines = MetricLines(path, warnings.append)

    for byte in b"epoch 1\n[METRIC] loss=1\nbar 10%\rbar 100%\r[METRIC] loss=2\r\n[METRIC] loss":
        lines.feed(bytes([byte]))
    lines.feed(b"=3\n[METRIC] loss=4\n[METRIC] loss=5")

    assert records(path) == [{"loss": loss} for loss in (1, 2, 3, 4)]
    lines.close()
    assert records(path)[4:] == [{"loss": 5}]
    assert warnings == []


def test_records_of_an_earlier_start_stay(tmp_path: Path) -> None:
    for loss in (1, 2):
        MetricLines(tmp_path / "metrics.jsonl", pytest.fail).feed(f"[METRIC] loss={loss}\n".encode())

    assert records(tmp_path / "metrics.jsonl") == [{"loss": 1}, {"loss": 2}]


def test_where_metrics_cannot_be_written_the_training_goes_on_and_says_so_once(tmp_path: Path) -> None:
    warnings = list[str]()
    lines = MetricLines(tmp_path / "none" / "metrics.jsonl", warnings.append)

    lines.feed(b"[METRIC] loss=1\n")
    lines.feed(b"[METRIC] loss=2\n")

    assert len(warnings) == 1
    assert warnings[0].endswith("(No such file or directory); the training goes on without it.")


def test_a_line_without_an_end_takes_no_memory_without_end(tmp_path: Path) -> None:
    lines = MetricLines(tmp_path / "metrics.jsonl", pytest.fail)

    for _ in range(10):
        lines.feed(b"x" * 2**16)

    assert len(lines._rest) == 2**16
