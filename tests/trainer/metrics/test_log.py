"""What a run leaves for people and machines to read."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import Run
from trainer.config import TrainConfig
from trainer.errors import MachineError, SettingsError
from trainer.metrics.log import JsonLines, MetricLines, open_journal, read_records
from trainer.metrics.trackers import OptionalSink, Sink, Wandb

RECORD = {"epoch": 1, "train_loss": 0.5, "eval_top1": None, "peak_memory_mib_by_rank": [1.0], "images_per_s": 1234.5678}


def test_a_run_leaves_metrics_a_picture_weights_and_its_settings(
    start_trainer: Run, train: Run, tmp_path: Path
) -> None:
    done = start_trainer("--plot")
    assert done.returncode == 0, done.stderr
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"metrics.jsonl", "curves.png", "model.pt", "config.yaml", "checkpoints"} <= files
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert str(tmp_path / "run" / "curves.png") in done.stdout
    again = train("--config", tmp_path / "run" / "config.yaml", "--run-dir", tmp_path / "again")
    assert again.returncode == 0, again.stderr


def test_the_phases_of_an_update_add_up_to_the_update(train: Run, tmp_path: Path) -> None:
    done = train("--synthetic-images", "640", "--accumulate", "2", ranks=2)
    assert done.returncode == 0, done.stderr
    for record in read_records(tmp_path / "run" / "metrics.jsonl"):
        phases = [record[f"{name}_ms"] for name in ("data_wait", "forward", "backward", "communication", "optimizer")]
        assert all(phase >= 0 for phase in phases)
        assert 0.5 * record["step_ms"] < sum(phases) <= 1.05 * record["step_ms"]
        assert record["all_reduce_gb_per_s"] > 0
        assert len(record["peak_memory_mib_by_rank"]) == 2


def test_one_metric_line_an_epoch_with_every_number(train: Run) -> None:
    lines = [line for line in train(ranks=2).stdout.splitlines() if line.startswith("[METRIC] ")]
    assert len(lines) == 2
    found = dict(re.findall(r" (\w+)=(\S+)", lines[1]))
    assert found["epoch"] == "2"
    assert {"train_loss", "eval_top1", "eval_top5", "images_per_s", "communication_ms", "peak_memory_mib"} <= set(found)


def test_a_metric_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[str] = []
    monkeypatch.setattr("sys.stdout.write", writes.append)
    MetricLines().write(RECORD)
    assert writes == ["[METRIC] epoch=1 train_loss=0.5 images_per_s=1234.57\n"]


def test_json_lines_hold_the_record_and_null_where_json_has_no_number(tmp_path: Path) -> None:
    path, warnings = tmp_path / "metrics.jsonl", list[str]()
    path.write_bytes(b'{"epoch": 1}\n{"epoch": 2, "train')  # the last line was cut off, which is no damage
    sink = JsonLines(path, 1, warnings.append)
    sink.write(RECORD | {"epoch": 2, "train_loss": float("nan"), "by_rank": [1.0, float("inf")]})
    assert read_records(path)[1] == RECORD | {"epoch": 2, "train_loss": None, "by_rank": [1.0, None]}
    assert (warnings, list(tmp_path.iterdir())) == ([], [path])


def records_of(path: Path) -> list[int]:
    return [record["epoch"] for record in read_records(path)]


@pytest.mark.parametrize("odd", [b"null", b'{"epoch": true}', b"\xff\xfe"], ids=range(3))
def test_lines_that_are_no_records_cost_no_other(odd: bytes, tmp_path: Path) -> None:
    path, warnings = tmp_path / "metrics.jsonl", list[str]()
    content = b'{"epoch": 1}\n' + odd + b'\n{"epoch": 2}\n{"epoch": 3}\n{"epoch": 4, "train'
    path.write_bytes(content)
    assert records_of(path) == [1, 2, 3]

    JsonLines(path, 2, warnings.append).write({"epoch": 3, "train_loss": 0.5})

    assert records_of(path) == [1, 2, 3]
    assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == content
    assert len(warnings) == 1


def test_tensorboard_gets_every_number(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    journal = open_journal(TrainConfig(tensorboard=True), tmp_path, 0)
    journal.write(RECORD)
    journal.close()
    found = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in found.Scalars("train_loss")] == [(1, 0.5)]


@pytest.mark.slow("Weights & Biases without a key stays offline")
def test_wandb_without_a_key_stays_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # no ~/.netrc with a key of the developer's
    monkeypatch.setenv("WANDB_SILENT", "true")
    journal = open_journal(TrainConfig(wandb="project"), tmp_path, 0)
    journal.write(RECORD)
    journal.close()
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


@pytest.mark.slow("MLflow without a server stays in the run folder")
def test_mlflow_without_a_server_stays_in_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    journal = open_journal(TrainConfig(mlflow="experiment"), tmp_path, 0)
    journal.write(RECORD)
    journal.close()
    (run,) = mlflow.search_runs(experiment_names=["experiment"], output_format="list")
    assert run.data.metrics["train_loss"] == 0.5
    assert (tmp_path / "mlflow.db").exists()


@pytest.mark.slow("trackers change no bit of the weights, and a training leaves their keys nowhere")
def test_trackers_change_nothing_and_their_keys_are_nowhere(start_trainer: Run, train: Run, tmp_path: Path) -> None:
    """wandb and MLflow for real, offline; a key of wandb's has 40 characters."""
    key = "0f3c9a7e51" * 4
    env = {"WANDB_API_KEY": key, "WANDB_MODE": "offline", "MLFLOW_TRACKING_PASSWORD": key, "HF_TOKEN": key,
           "MLFLOW_TRACKING_URI": ""}  # an earlier test's may be left: MLflow sets it  # fmt: skip
    train("--epochs", "1", "--run-dir", tmp_path / "plain")

    done = start_trainer("--wandb", "project", "--mlflow", "experiment", "--tensorboard", "--epochs", "1", env=env)

    assert done.returncode == 0, done.stderr
    assert key not in done.stdout + done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"mlflow.db", "config.yaml"} <= {path.name for path in files}, done.stdout + done.stderr
    assert any(path.suffix == ".wandb" for path in files)
    assert [path.name for path in files if key.encode() in path.read_bytes()] == []
    assert (tmp_path / "run" / "model.pt").read_bytes() == (tmp_path / "plain" / "model.pt").read_bytes()


def test_a_missing_package_is_named_with_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)  # importing it now raises ModuleNotFoundError
    with pytest.raises(SettingsError, match=r"--mlflow needs .* pip install -c constraints.txt -e '\.\[mlflow\]'"):
        open_journal(TrainConfig(mlflow="experiment"), tmp_path, 0)


class Failing:
    """TensorBoard, wandb or MLflow on a bad day: fails when it is opened, or at its first write or close."""

    fails_at = "open"
    calls: list[str]

    def __init__(self, *settings: object) -> None:
        self.calls.append("open")
        self._fail("open")

    def write(self, record: object) -> None:
        self.calls.append("write")
        self._fail("write")

    def close(self) -> None:
        self.calls.append("close")
        self._fail("close")

    def _fail(self, at: str) -> None:
        if self.fails_at == at:
            raise ConnectionError("no route to host\nand a long story")


@pytest.mark.parametrize(
    ("fails_at", "calls"),
    [("open", ["open"]), ("write", ["open", "write"]), ("close", ["open", "write", "write", "close"])],
)
def test_a_sink_that_fails_is_dropped_with_one_warning(
    fails_at: str, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Failing, "fails_at", fails_at)
    monkeypatch.setattr(Failing, "calls", [], raising=False)
    monkeypatch.setattr("trainer.metrics.trackers.TensorBoard", Failing)
    warnings: list[str] = []

    journal = open_journal(TrainConfig(tensorboard=True), tmp_path, 0, warnings.append)
    for epoch in (1, 2):
        journal.write({"epoch": epoch})
    journal.close()

    assert [warning.startswith("tensorboard failed (no route to host)") for warning in warnings] == [True]
    assert Failing.calls == calls
    assert [record["epoch"] for record in read_records(tmp_path / "metrics.jsonl")] == [1, 2]


def test_a_server_of_a_tracker_writes_neither_escapes_nor_a_password(tmp_path: Path) -> None:
    def fails() -> Sink:
        raise ConnectionError("https://ann:hunter2@mlflow.example refused: \x1b[2J\x1b[31m" + "long " * 1000)

    warnings: list[str] = []
    OptionalSink("mlflow", fails, warnings.append)

    assert "hunter2" not in warnings[0]
    assert warnings[0].isprintable()
    assert len(warnings[0]) < 400


@pytest.mark.parametrize(
    ("api_key", "netrc", "mode"),
    [
        (None, "", "offline"),
        ("key", "", None),
        (None, "machine api.wandb.ai login user password key", None),
        (None, "machine example.com login user password key", "offline"),
    ],
    ids=["no key", "key", "wandb login", "login elsewhere"],
)
def test_wandb_is_online_for_whom_it_knows(
    api_key: str | None, netrc: str, mode: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[str | None] = []
    settings = SimpleNamespace(api_key=api_key, base_url="https://api.wandb.ai")
    fake = SimpleNamespace(
        setup=lambda: SimpleNamespace(settings=settings), init=lambda **given: modes.append(given["mode"])
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text(netrc)
    (tmp_path / ".netrc").chmod(0o600)
    Wandb("project", TrainConfig(), tmp_path)
    assert modes == [mode]


def test_a_full_disk_still_ends_the_run_with_what_to_do(tmp_path: Path) -> None:
    journal = open_journal(TrainConfig(), tmp_path / "nowhere", 0)
    with pytest.raises(MachineError, match=r"cannot write .*metrics.jsonl"):
        journal.write(RECORD)


def test_metric_lines_are_for_programs_and_not_for_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    MetricLines().write({"epoch": 1})
    assert capsys.readouterr().out == "[METRIC] epoch=1\n"

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    MetricLines().write({"epoch": 2})
    assert capsys.readouterr().out == "[METRIC] epoch=2\n"  # a rank below mpirun

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    MetricLines().write({"epoch": 3})
    assert capsys.readouterr().out == ""
