"""One run of a sweep: how it ended, what it measured, and its results."""

import io
import json
import signal
import subprocess
from pathlib import Path

import pytest

from launch.core import backend as backends
from launch.core import runs
from launch.core.job import check_job_name
from launch.sweep.end import End
from launch.sweep.folder import collect_results, job_name, write_records
from launch.sweep.runner import Output, end_left_over
from tests.processes import begun_with, left_of
from trainer.outcome import Outcome


def output_of(*lines: str) -> Output:
    output = Output(io.StringIO())
    for line in lines:
        output.add(line)
    return output


def test_metric_lines_become_records_whichever_process_wrote_them() -> None:
    output = output_of("[0] [METRIC] epoch=1 epoch_s=2.5 world_size=2", "[METRIC] epoch=2 train_loss=nan", "epoch 2/2")

    assert output.records == [{"epoch": 1, "epoch_s": 2.5, "world_size": 2}, {"epoch": 2, "train_loss": None}]
    assert output.last == "epoch 2/2"


FAILED = Outcome("failed", 4, "no capacity.")
STOPPED = "stopped; the same command resumes it"


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (End(0, None, 1.0), ("done", "")),
        (End(0, signal.SIGINT, 1.0), ("done", "")),
        (End(4, None, 1.0, outcome=FAILED), ("failed", "no capacity.")),
        (End(5, None, 1.0, outcome=Outcome("failed", 5), trainer_reason="not finite."), ("failed", "not finite.")),
        (End(6, None, 1.0, "it was killed by SIGKILL."), ("failed", "it was killed by SIGKILL.")),
        (End(75, None, 1.0, outcome=Outcome("interrupted", 75, "12 h are over.")), ("interrupted", "12 h are over.")),
        (End(75, signal.SIGTERM, 1.0, outcome=Outcome("interrupted", 75, "SIGTERM.")), ("interrupted", STOPPED)),
        (End(143, None, 1.0, outcome=Outcome("stopped", 143)), ("interrupted", STOPPED)),
        (End(4, signal.SIGINT, 1.0, outcome=FAILED), ("interrupted", "no capacity.")),
    ],
)
def test_state_and_reason_are_those_of_the_outcome(end: End, expected: tuple[str, str]) -> None:
    assert (end.state, end.reason) == expected


def test_a_launcher_without_an_outcome_has_failed_and_its_last_line_is_named_without_tokens() -> None:
    end = End(1, None, 1.0, last="ValueError: nonsense")
    token = "hf_" + "aB" * 17

    assert end.state == "failed"
    assert all(words in end.reason for words in ("exit code 1", "outcome.json", "ValueError: nonsense", "log.txt"))
    assert token not in End(1, None, 1.0, last=f"logged in with {token}").reason
    assert "hf_" not in End(1, None, 1.0, last=f"{'x' * 280} {token}").reason  # not its beginning either
    assert len(End(1, None, 1.0, last="x" * 10**6).reason) < 500


def test_jobs_have_names_that_aws_takes_and_no_other_sweep_has() -> None:
    long = "gpus-2-strategy-fsdp-precision-bf16-batch-size-2048"

    names = {job_name("weak-scaling", run, sweep) for run in (long, long + "0") for sweep in ("a", "b")}

    assert len(names) == 4
    assert all(check_job_name(name) for name in names)


def test_results_that_a_launcher_fetched_come_into_the_runs_folder(tmp_path: Path) -> None:
    for name, text in (("job", "old"), ("job--2", "new"), ("job-3", "somebody's")):
        (tmp_path / "runs" / name / "checkpoints").mkdir(parents=True)
        (tmp_path / "runs" / name / "metrics.jsonl").write_text(text)
    (tmp_path / "here").mkdir()

    collect_results("job", tmp_path / "runs", tmp_path / "here")

    assert (tmp_path / "here" / "metrics.jsonl").read_text() == "new"
    assert [place.name for place in (tmp_path / "runs").iterdir()] == ["job-3"]


def test_no_result_says_for_the_sweep_how_its_run_ended(tmp_path: Path) -> None:
    fetched, here = tmp_path / "runs" / "job", tmp_path / "here"
    (fetched / "launcher").mkdir(parents=True)
    here.mkdir()
    for name in ("run.json", "log.txt", "launcher/outcome.json", "model.pt"):
        (fetched / name).write_text("theirs")
    (here / "run.json").write_text("ours")

    collect_results("job", tmp_path / "runs", here)

    assert sorted(path.name for path in here.iterdir()) == ["model.pt", "run.json"]
    assert (here / "run.json").read_text() == "ours"


def test_records_of_a_log_are_added_to_those_of_earlier_starts(tmp_path: Path) -> None:
    write_records(tmp_path, [{"epoch": 1, "epoch_s": 1.0}, {"epoch": 2, "epoch_s": 1.0}], {"device": "A10G"})
    write_records(tmp_path, [{"epoch": 2, "epoch_s": 7.0}], {"device": "A10G"})

    assert runs.read_epochs(tmp_path) == (
        {"device": "A10G", "epoch": 1, "epoch_s": 1.0}, {"device": "A10G", "epoch": 2, "epoch_s": 7.0},
    )  # fmt: skip
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])["epoch"] == 1


def test_a_run_on_slurm_costs_what_it_had_its_nodes_for(tmp_path: Path) -> None:
    starts = [
        {"job": "1", "began": 100, "ended": 160, "code": 75, "then": "requeue"},
        {"job": "2", "began": 900, "ended": 930, "code": 0, "then": "done"},
    ]
    (tmp_path / "starts.jsonl").write_text("".join(json.dumps(start) + "\n" for start in starts))

    assert backends.find("slurm").held_s(tmp_path) == 90
    assert backends.find("local").held_s(tmp_path) is None


def test_only_what_was_started_for_a_run_is_ended_not_for_its_neighbour(tmp_path: Path) -> None:
    ours, other = (
        subprocess.Popen(["sleep", "60"], env={"PATH": "/usr/bin:/bin", "LAUNCH_SWEEP_RUN": str(tmp_path / name)})
        for name in ("gpus-1", "gpus-16")
    )
    try:
        for name in ("gpus-1", "gpus-16"):
            assert begun_with(f"LAUNCH_SWEEP_RUN={tmp_path / name}", 1) != []
        end_left_over(tmp_path / "gpus-1")

        assert ours.wait(5) == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert left_of(f"LAUNCH_SWEEP_RUN={tmp_path / 'gpus-1'}") == []
