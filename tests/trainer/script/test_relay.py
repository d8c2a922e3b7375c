"""What a script prints is passed on byte for byte, up to a limit, and its last lines are kept."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.script.relay import ERR, KEPT_LINES, OUT, MetricLines, Relay, Tail, values_of


def texts(tail: Tail) -> list[str]:
    tail.close()
    return [line.text for line in tail.lines()]


def test_the_last_lines_are_kept_however_they_arrive() -> None:
    whole, bytewise = Tail(), Tail()
    printed = "".join(f"line {number}\n" for number in range(100)).encode() + b"no end"

    whole.add(OUT, printed)
    for byte in printed:
        bytewise.add(OUT, bytes([byte]))

    assert texts(whole) == [*(f"line {number}" for number in range(71, 100)), "no end"]
    assert texts(bytewise) == texts(whole)
    assert len(texts(whole)) == KEPT_LINES


@pytest.mark.parametrize(
    ("out", "err", "kept"), [(5, 9, (5, 9)), (99, 5, (25, 5)), (99, 99, (10, 20)), (5, 99, (5, 25))]
)
def test_why_a_script_failed_is_not_lost_among_its_output(out: int, err: int, kept: tuple[int, int]) -> None:
    tail = Tail()
    tail.add(ERR, b"error\n" * err)
    tail.add(OUT, b"line\n" * out)

    assert (texts(tail).count("line"), texts(tail).count("error")) == kept


class Pipes:
    """Two files in the place of this process's own streams."""

    def __init__(self, folder: Path) -> None:
        self.files = {stream: folder / str(stream) for stream in (OUT, ERR)}
        self.opened = {stream: os.open(file, os.O_WRONLY | os.O_CREAT) for stream, file in self.files.items()}

    def write(self, stream: int, data: bytes) -> int:
        return os_write(self.opened[stream], data)

    def read(self, stream: int) -> bytes:
        return self.files[stream].read_bytes()


os_write = os.write


@pytest.fixture
def pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipes]:
    pipes = Pipes(tmp_path)
    monkeypatch.setattr("trainer.script.relay.os.write", pipes.write)
    yield pipes
    monkeypatch.undo()
    for opened in pipes.opened.values():
        os.close(opened)


def pass_on(relay: Relay, stream: int, data: bytes) -> None:
    out, into = os.pipe()
    thread = relay.start(out, stream)
    writer = threading.Thread(target=lambda: [os_write(into, data), os.close(into)])
    writer.start()
    writer.join()
    thread.join()
    os.close(out)


@pytest.mark.parametrize(
    ("first", "passed_on"),
    [
        (b"a" * 2000, b"a" * 999 + b"\n"),  # the line that is cut off has an end
        (b"a" * 1000, b"a" * 1000),
    ],
)
def test_beyond_the_limit_nothing_is_passed_on_but_everything_is_heard(
    first: bytes, passed_on: bytes, pipes: Pipes
) -> None:
    heard = list[bytes]()
    relay = Relay(1000, "too much", pytest.fail, heard.append)

    pass_on(relay, OUT, first)
    pass_on(relay, ERR, b"b" * 2000)
    pass_on(relay, OUT, b"\nlast line\n")

    assert pipes.read(OUT) == passed_on
    assert pipes.read(ERR) == b"\ntoo much\n"
    assert b"".join(heard) == first + b"\nlast line\n"
    assert "last line" in [line.text for line in relay.tail.lines()]


def test_a_reader_that_has_ended_is_one_warning_and_the_script_goes_on(
    pipes: Pipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(stream: int, data: bytes) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("trainer.script.relay.os.write", broken)
    warnings = list[str]()
    relay = Relay(10**6, "too much", warnings.append)

    for text in (b"one\n", b"two\n"):
        pass_on(relay, OUT, text)

    assert warnings == ["standard output is lost (Broken pipe); the training goes on without it."]
    assert [line.text for line in relay.tail.lines()] == ["one", "two"]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("[METRIC] step=10 loss=0.25 acc=1e-3", {"step": 10, "loss": 0.25, "acc": 0.001}),
        ("  [METRIC] loss=nan best=-inf\r", {"loss": None, "best": None}),
        ("[METRIC] name=resnet lr=0.1, eval/top-1=0.5", {"lr": 0.1, "eval/top-1": 0.5}),
        ("[METRIC] n=99999999999999999999 signed=-3", {"n": 1e20, "signed": -3}),
        ("[METRIC]", {}),
        ("see [METRIC] loss=1", {}),
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


def test_where_metrics_cannot_be_written_the_training_goes_on_and_says_so_once(tmp_path: Path) -> None:
    warnings = list[str]()
    lines = MetricLines(tmp_path / "none" / "metrics.jsonl", warnings.append)

    lines.feed(b"[METRIC] loss=1\n")
    lines.feed(b"[METRIC] loss=2\n")

    assert len(warnings) == 1
    assert warnings[0].endswith("(No such file or directory); the training goes on without it.")
