"""One run of a sweep: what is read from its launcher's words, and brought from where it left its results."""

import io
import json
import subprocess
from pathlib import Path

from launch.core import runs
from launch.core.names import check_job_name
from launch.sweep.folder import bring, job_name, keep_records, on_nodes_s
from launch.sweep.one import end_left_over
from launch.sweep.output import Listener, numbers
from tests.processes import left_of


def heard(*lines: str) -> Listener:
    listener = Listener(io.StringIO())
    for line in lines:
        listener.hear(line)
    return listener


def test_metric_lines_become_records_whoever_says_them() -> None:
    told = heard("[0] [METRIC] epoch=1 epoch_s=2.5 world_size=2", "[METRIC] epoch=2 train_loss=nan", "epoch 2/2")

    assert told.records == {1: {"epoch": 1, "epoch_s": 2.5, "world_size": 2}, 2: {"epoch": 2, "train_loss": None}}


def test_a_word_that_is_no_number_is_left_out() -> None:
    assert numbers(" epoch=3 device=CPU broken epoch_s=1e-3") == {"epoch": 3, "epoch_s": 0.001}


def test_the_last_error_is_the_reason_of_launchers_nodes_and_rehearsals() -> None:
    assert heard("error: first", "error: last").reason == "last"
    assert heard("[1] error: rank 3 is lost").reason == "rank 3 is lost"
    assert heard(" 12.5 s  | error: no capacity").reason == "no capacity"
    assert heard("a warning: error: is no error").reason == ""


def test_the_bill_is_the_launchers() -> None:
    assert heard("3 resources removed, none is left; the job cost about 1,234.56 USD").usd == 1234.56
    assert heard("done; 3 min billed, about 0.10 USD").usd == 0.10
    assert heard("  expected    2.51 USD in 1.0 h").usd is None


def test_jobs_have_names_that_aws_takes_and_no_other_sweep_has() -> None:
    long = "gpus-2-strategy-fsdp-precision-bf16-batch-size-2048"

    names = {job_name("weak-scaling", run, sweep) for run in (long, long + "0") for sweep in ("a", "b")}

    assert len(names) == 4
    assert all(check_job_name(name) for name in names)


def test_what_jobs_leave_elsewhere_comes_into_the_runs_folder(tmp_path: Path) -> None:
    for name, text in (("job", "old"), ("job--2", "new"), ("job-3", "somebody's")):
        (tmp_path / "runs" / name / "checkpoints").mkdir(parents=True)
        (tmp_path / "runs" / name / "metrics.jsonl").write_text(text)
    (tmp_path / "here").mkdir()

    bring("job", tmp_path / "runs", tmp_path / "here")

    assert (tmp_path / "here" / "metrics.jsonl").read_text() == "new"
    assert [place.name for place in (tmp_path / "runs").iterdir()] == ["job-3"]


def test_records_that_were_heard_are_added_to_those_of_earlier_starts(tmp_path: Path) -> None:
    keep_records(tmp_path, {1: {"epoch": 1, "epoch_s": 1.0}, 2: {"epoch": 2, "epoch_s": 1.0}}, {"device": "A10G"})
    keep_records(tmp_path, {2: {"epoch": 2, "epoch_s": 7.0}}, {"device": "A10G"})

    assert runs.read_epochs(tmp_path) == (
        {"device": "A10G", "epoch": 1, "epoch_s": 1.0}, {"device": "A10G", "epoch": 2, "epoch_s": 7.0},
    )  # fmt: skip
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])["epoch"] == 1


def test_a_run_on_slurm_costs_what_it_had_its_nodes_for(tmp_path: Path) -> None:
    starts = [{"job": "1", "began": 100, "ended": 160, "code": 75}, {"job": "2", "began": 900, "ended": 930, "code": 0}]
    (tmp_path / "starts.jsonl").write_text("".join(json.dumps(start) + "\n" for start in starts))

    assert on_nodes_s(tmp_path) == 90


def test_only_what_was_started_for_a_run_is_ended_not_for_its_neighbour(tmp_path: Path) -> None:
    ours, other = (
        subprocess.Popen(["sleep", "60"], env={"PATH": "/usr/bin:/bin", "LAUNCH_SWEEP_RUN": str(tmp_path / name)})
        for name in ("gpus-1", "gpus-16")
    )
    try:
        end_left_over(tmp_path / "gpus-1")

        assert ours.wait(5) == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert left_of(f"LAUNCH_SWEEP_RUN={tmp_path / 'gpus-1'}") == []
