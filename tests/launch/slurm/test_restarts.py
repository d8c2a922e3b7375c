"""When the script asks for another start: the script itself, with Slurm's commands as a few lines of bash."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from launch.slurm.script import render
from tests.launch.slurm.jobs import planned

FAKES = {"srun": "{}", "squeue": "echo RUNNING", "scontrol": "echo asked to requeue"}


def start(folder: Path, step: str, restarts: int, most: int = 10, **commands: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of a start whose step does that, and how all starts so far ended.  commands: in place of FAKES."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, does in {**FAKES, **commands}.items():
        (tools / name).write_text(f"#!/bin/bash\n{does.format(step)}\n")
        (tools / name).chmod(0o755)
    job = planned({"job_name": "x", "max_restarts": most}, folder, device="cpu").payload.job
    job.folder.mkdir(parents=True, exist_ok=True)
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "LANG": "C",
           "SLURM_JOB_NODELIST": "n0", "SLURM_JOB_NAME": "x", "SLURM_RESTART_COUNT": str(restarts)}  # fmt: skip
    with (job.folder / "job.log").open("a") as log:
        ended = subprocess.run(
            ["bash", "-c", render(job)], env=env, stdout=log, stderr=log, timeout=30, check=False, cwd=folder
        )
    return ended.returncode, [json.loads(line) for line in (job.folder / "starts.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("step", "code"), [("kill -SEGV $$", 139), ("exit 6", 6)])
def test_a_crash_at_the_start_ends_after_two_starts_without_progress(tmp_path: Path, step: str, code: int) -> None:
    assert start(tmp_path, step, 0)[0] == code

    ended, starts = start(tmp_path, step, 1)

    assert ended == code
    assert [(one["then"], one["progress"]) for one in starts] == [("requeue", False), ("failed", False)]
    outcome = json.loads((tmp_path / "runs/x/outcome.json").read_text())
    assert (outcome["state"], outcome["exit_code"]) == ("failed", code)
    assert "two starts in a row" in outcome["reason"]


@pytest.mark.parametrize(("code", "then"), [(3, "failed"), (6, "requeue")])
def test_how_a_script_ended_decides_whether_it_is_started_again_and_its_sentence_is_the_jobs(
    code: int, then: str, tmp_path: Path
) -> None:
    sentence = f"rank 1: train.py ended with exit code {code}: no data"

    ended, starts = start(tmp_path, f"echo 'error: {sentence}' >&2; echo '  Traceback' >&2; exit {code}", 0)

    assert (ended if then == "failed" else code, [one["then"] for one in starts]) == (code, [then])
    if then == "failed":
        outcome = json.loads((tmp_path / "runs/x/outcome.json").read_text())
        assert (outcome["state"], outcome["exit_code"], outcome["reason"]) == ("failed", code, sentence)


@pytest.mark.parametrize("saves", ["touch runs/x/epoch-0001-step-000010.pt; exit 6", "exit 75"])
def test_a_start_that_saved_is_progress(tmp_path: Path, saves: str) -> None:
    steps = ["exit 6", saves, "exit 6", "exit 6"]

    for restarts, step in enumerate(steps):
        _, starts = start(tmp_path, step, restarts)
        for saved in (tmp_path / "runs/x").glob("epoch-*.pt"):
            os.utime(saved, (1, 1))  # some starts ago

    assert [one["then"] for one in starts] == ["requeue", "requeue", "requeue", "failed"]


def test_the_restarts_that_the_user_allows_come_first(tmp_path: Path) -> None:
    start(tmp_path, "exit 6", 0, most=1)

    _, starts = start(tmp_path, "exit 6", 1, most=1)

    assert [one["then"] for one in starts] == ["requeue", "spent"]


def test_a_start_knows_how_many_were_before_it(tmp_path: Path) -> None:
    start(tmp_path, 'echo "this is restart $DDP_RESTARTS"', 2)

    assert "this is restart 2\n" in (tmp_path / "runs/x/job.log").read_text()


@pytest.mark.parametrize(
    ("saves", "counts"),
    [
        ("last.ckpt", True),  # Lightning
        ("shards/__0_0.distcp", True),  # torch.distributed.checkpoint
        ("source/0123/weights.pt", False),  # of the source
    ],
)
def test_what_a_script_saves_in_any_usual_form_is_progress(tmp_path: Path, saves: str, counts: bool) -> None:
    file = f"runs/x/{saves}"

    _, starts = start(tmp_path, f"mkdir -p $(dirname {file}); touch {file}; exit 6", 0)

    assert [one["progress"] for one in starts] == [counts]


def test_output_of_an_earlier_start_is_no_error_of_this_one(tmp_path: Path) -> None:
    start(tmp_path, "echo 'error: no data'; exit 3", 0)

    start(tmp_path, "exit 3", 0)

    assert "no data" not in json.loads((tmp_path / "runs/x/outcome.json").read_text())["reason"]


@pytest.mark.parametrize(("scontrol", "then"), [("exit 1", ["requeue", "spent"]), ("kill -TERM $$", ["requeue"])])
def test_a_requeue_that_ends_scontrol_is_no_refusal(tmp_path: Path, scontrol: str, then: list[str]) -> None:
    """Slurm ends the processes of the job once it has accepted, scontrol among them: seen with Slurm 22.05."""
    ended, starts = start(tmp_path, "exit 75", 0, scontrol=scontrol)

    assert (ended, [one["then"] for one in starts]) == (75, then)
