"""Jobs in a real Slurm.  Where the training does not matter, ranks are a few lines of shell."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch.slurm import __main__ as command_line
from launch.slurm.script import render
from tests.launch.slurm.cluster import Cluster
from tests.launch.slurm.jobs import EVERY_KIND, placed

Say = Callable[..., None]
FLAGS = ("--nodes", "2", "--device", "cpu", "--time", "10", "--cpus-per-task", "1", "--job-name", "job")

WAIT_FOR_SIGNAL = """
trap 'echo saved $SLURM_PROCID; exit 75' USR1 TERM
echo ready $SLURM_PROCID
sleep 300 >/dev/null 2>&1 &
wait
"""


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Makes the trainer a few lines of bash."""

    def say(text: str) -> None:
        stub = tmp_path / "python"
        stub.write_text(f"#!/bin/bash\n{text}\n")
        stub.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(stub))

    return say


def launch(*flags: str) -> int:
    return command_line.main([*FLAGS, *flags])


def starts() -> list[dict[str, Any]]:
    path = Path("runs/job/starts.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(condition: Callable[[], object], within_s: float = 60) -> None:
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, Path("runs/job/job.log").read_text()
        time.sleep(0.05)


def log() -> str:
    path = Path("runs/job/job.log")
    return path.read_text() if path.exists() else ""


pytestmark = pytest.mark.usefixtures("cluster")


def test_every_rank_runs_and_finds_its_place(ranks: Say, capsys: pytest.CaptureFixture[str]) -> None:
    ranks('echo "rank $SLURM_PROCID of $SLURM_NTASKS at $MASTER_ADDR:$((MASTER_PORT - 15000 - SLURM_JOB_ID % 17000))"')

    assert launch("--nproc-per-node", "2", "--wait") == 0

    said = capsys.readouterr().out
    assert sorted(line for line in said.splitlines() if line.startswith("rank ")) == [
        f"rank {rank} of 4 at 127.0.0.1:0" for rank in range(4)
    ]
    assert [(start["code"], start["then"], start["nodes"]) for start in starts()] == [(0, "done", "n[0-1]")]


def test_what_failed_on_one_rank_is_the_jobs_exit_code_and_sentence(
    ranks: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks("""
if [ "$SLURM_PROCID" = 1 ]; then echo "error: no folder nowhere; point --data-dir at it." >&2; exit 3; fi
exit 6  # as who lost a rank
""")

    assert launch("--wait") == 3

    assert capsys.readouterr().err == "error: no folder nowhere; point --data-dir at it.\n"
    assert [(start["code"], start["then"]) for start in starts()] == [(3, "failed")]
    assert command_line.main(["attach", "job"]) == 3


def test_a_start_that_says_nothing_is_not_explained_by_an_earlier_one(
    ranks: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks("echo error: no folder nowhere.; exit 3")
    assert launch("--wait") == 3
    ranks("exit 1")
    capsys.readouterr()

    assert launch("--wait") == 1

    assert capsys.readouterr().err.startswith("error: it failed with exit code 1; see python -m launch.slurm logs job")


def test_ranks_that_lose_each_other_start_again_and_not_for_ever(
    ranks: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks('if [ "$SLURM_PROCID" = 1 ]; then kill -KILL $$; fi; exit 6')

    code = launch("--wait", "--max-restarts", "1")

    assert [(start["restarts"], start["then"]) for start in starts()] == [(0, "requeue"), (1, "spent")]
    assert code == starts()[-1]["code"] == 137
    assert "after 1 restarts; submit with the same command to go on" in capsys.readouterr().err


def test_what_stop_ends_saves_and_does_not_come_back(
    ranks: Say, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks(WAIT_FOR_SIGNAL)
    assert launch() == 0
    wait_for(lambda: log().count("ready") == 2)

    assert command_line.main(["stop", "job"]) == 0

    assert cluster.tell("squeue", "-h") == ""
    assert log().count("saved") == 2
    assert [start["then"] for start in starts()] == ["stopped"]
    assert command_line.main(["stop", "job"]) == 0
    capsys.readouterr()
    assert command_line.main(["status", "job"]) == 0
    assert "job job is over: it was stopped, and its ranks saved" in capsys.readouterr().out


def test_what_is_cancelled_does_not_come_back(ranks: Say, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    ranks(WAIT_FOR_SIGNAL)
    assert launch() == 0
    wait_for(lambda: log().count("ready") == 2)

    cluster.tell("scancel", "--name=job")

    assert command_line.main(["attach", "job"]) == 130
    assert "error: it was cancelled (CANCELLED)" in capsys.readouterr().err
    assert cluster.tell("squeue", "-h") == ""


def test_a_job_that_slurm_takes_the_nodes_from_goes_on(ranks: Say, cluster: Cluster) -> None:
    ranks('if [ "${SLURM_RESTART_COUNT-0}" = 1 ]; then exit 0; fi' + WAIT_FOR_SIGNAL)
    assert launch() == 0
    wait_for(lambda: log().count("ready") == 2)

    cluster.tell("scontrol", "requeue", cluster.tell("squeue", "-h", "-o", "%i").strip())

    assert command_line.main(["attach", "job"]) == 0
    assert [start["then"] for start in starts()] == ["slurm", "done"]


def test_a_waiting_job_can_be_stopped(ranks: Say, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    ranks("exit 0")
    assert launch("--sbatch=--hold") == 0
    capsys.readouterr()
    assert command_line.main(["status"]) == 0
    assert "waits to be released: `scontrol release` lets it go on (JobHeldUser)" in capsys.readouterr().out

    assert command_line.main(["stop"]) == 0

    assert cluster.tell("squeue", "-h") == ""


def test_the_same_command_again_joins_the_job_in_the_queue(
    ranks: Say, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks(WAIT_FOR_SIGNAL)
    assert launch() == 0
    capsys.readouterr()

    assert launch() == 0
    assert "is in the queue already" in capsys.readouterr().out
    assert launch("--epochs", "9") == 2
    assert "with other settings" in capsys.readouterr().err
    assert len(cluster.tell("squeue", "-h").splitlines()) == 1


def test_a_job_that_is_done_is_not_run_again(ranks: Say, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    ranks("exit 0")
    assert launch("--wait") == 0

    assert launch("--wait") == 0

    assert "job job is done" in capsys.readouterr().out.splitlines()[-1]
    assert len(starts()) == 1


def test_a_job_of_our_own_with_a_comment_of_two_lines_is_no_trouble(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.tell("sbatch", "--hold", "--comment=a\nb", "--output=/dev/null", "--wrap=true")

    assert command_line.main(["status"]) == 0
    assert "no job of yours" in capsys.readouterr().out


def test_jobs_of_others_are_neither_shown_nor_stopped(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    other = cluster.tell("sbatch", "--parsable", "--job-name=job", "--output=/dev/null", "--wrap=sleep 60").strip()

    assert command_line.main(["status"]) == 0
    assert "no job of yours" in capsys.readouterr().out
    assert command_line.main(["stop", other]) == 2
    assert f"job {other} is none of this toolkit's" in capsys.readouterr().err
    assert command_line.main(["stop", "job"]) == 2
    assert cluster.tell("squeue", "-h", "-o", "%i").split() == [other]


def test_slurms_own_word_before_the_time_limit_reaches_every_rank(ranks: Say) -> None:
    ranks(WAIT_FOR_SIGNAL)

    assert launch("--wait", "--time", "1", "--save-before-s", "59", "--max-restarts", "0") == 75

    assert log().count("saved") == 2
    assert [start["then"] for start in starts()] == ["spent"]


@pytest.mark.parametrize("fails", ["module load cuda", "exit 9"])
def test_a_setup_that_fails_ends_the_job_before_a_rank_starts(
    fails: str, ranks: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks("exit 0")

    assert launch("--wait", "--setup", f"echo loading 'a b'; {fails}") == 2

    assert "loading a b" in log()
    assert capsys.readouterr().err == "error: --setup failed; its own output is above\n"


def test_a_folder_with_blanks_quotes_and_percents_is_written_to(
    ranks: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "50% 'of' \"it\" #1"
    folder.mkdir()
    monkeypatch.chdir(folder)
    ranks('printf "%s\\n" "$@"')

    assert launch("--wait") == 0

    assert str(folder / "runs" / "job") in (folder / "runs/job/job.log").read_text().splitlines()


def test_a_job_in_another_folder_is_found_by_its_name(ranks: Say, capsys: pytest.CaptureFixture[str]) -> None:
    ranks("exit 0")
    assert launch("--wait", "--run-dir", "runs/sweep/a_1") == 0

    for job in ("job", "runs/sweep/a_1"):
        assert command_line.main(["status", job]) == 0
        assert "job job is over: it is done" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--partition", "mian"], "error: the cluster has no partition mian; did you mean 'main'?"),
        (["--time", "10:00:00"], "error: --time 10:00:00 is over the limit of partition main, which is 0:30:00"),
        (["--nodes", "3"], "error: --nodes 3 is more than partition main has of such nodes: 2"),
        (["--cpus-per-task", "9"], "error: the processes of a node ask for 9 CPUs, and nodes of partition main have 8"),
        (["--constraint", "slow"], "error: no node has --constraint slow"),
        (["--nodelist", "n7"], "error: the cluster does not know all of --nodelist n7"),
        (["--mem", "100G"], "error: --mem 100G is more than nodes of partition main have: 4,000 MiB"),
        (["--sbatch=--gres=gpu:9"], "error: no 2 nodes of partition"),
    ],
)
def test_what_slurm_would_refuse_is_said_before_anything_is_written(
    flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(*flags) == 2

    assert capsys.readouterr().err.startswith(sentence)
    assert not Path("runs").exists()


def test_more_gpus_than_there_are_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    gpus = ["--time", "10", "--cpus-per-task", "1", "--gpus-per-node"]

    assert command_line.main([*gpus, "3"]) == 2
    assert "--gpus-per-node 3 is more than partition main has: its nodes have at most 2" in capsys.readouterr().err
    assert command_line.main([*gpus, "1", "--gpu-type", "h100"]) == 2
    assert "Types there: a100." in capsys.readouterr().err
    assert command_line.main([*gpus, "2", "--gpu-type", "a100", "--dry-run"]) == 0
    assert "expected by Slurm at 20" in capsys.readouterr().out


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_slurm_takes_every_kind_of_script(kind: str, cluster: Cluster, tmp_path: Path) -> None:
    ended = subprocess.run(
        ["sbatch", "--test-only"], input=render(placed(kind, tmp_path)), env=cluster.env, capture_output=True, text=True
    )

    assert ended.returncode == 0, ended.stderr


def test_a_controller_that_does_not_answer_is_named(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = Path(os.environ["SLURM_CONF"]).read_text()
    dead = tmp_path / "slurm.conf"
    dead.write_text(
        "\n".join(line for line in conf.splitlines() if "SlurmctldPort" not in line)
        + "\nSlurmctldPort=1\nMessageTimeout=2"
    )
    monkeypatch.setenv("SLURM_CONF", str(dead))

    assert command_line.main(["status"]) == 6

    assert capsys.readouterr().err.startswith("error: Slurm's controller does not answer squeue")
