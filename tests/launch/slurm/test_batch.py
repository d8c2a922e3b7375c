"""Several jobs in one submission: arrays' scripts, and what is submitted and what not, with Slurm as lines of bash."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch.core.job import Batch, Job, Member
from launch.core.training.classifier import Classifier
from launch.slurm.batch import Array, divided, submit
from launch.slurm.explain import why_it_waits
from launch.slurm.folder import note
from launch.slurm.listing import parse_most_tasks, parse_queue
from launch.slurm.options import SlurmOptions
from launch.slurm.script import ResolvedJob, render
from tests.launch.slurm.jobs import planned
from trainer.config import TrainConfig

ROW = "{}\t{}\tNone\t0:01\t29:59\t1\tn0\tmain\tN/A\t{}/job.sbatch\t{}\t{}"


def job(name: str, cwd: Path = Path("/home/me"), **options: Any) -> ResolvedJob:
    return planned({"job_name": name, **options}, cwd, device="cpu").payload.job


def test_an_array_has_a_task_for_each_job_and_runs_so_many_at_a_time() -> None:
    array = Array("sweep-1", Path("/home/me/out/.arrays/ab12"), [job("a"), job("b"), job("c")], at_once=2)

    lines = array.script.splitlines()

    assert [line for line in lines if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=sweep-1", "#SBATCH --comment=aws-ddp-toolkit:sweep-1", "#SBATCH --array=0-2%2",
        "#SBATCH --output=/home/me/out/.arrays/ab12/array.log", "#SBATCH --nodes=1", "#SBATCH --ntasks-per-node=1",
        "#SBATCH --time=4:00:00", "#SBATCH --chdir=/home/me", "#SBATCH --open-mode=append", "#SBATCH --requeue",
        "#SBATCH --signal=B:USR1@120",
    ]  # fmt: skip
    assert "FOLDERS=(/home/me/runs/a /home/me/runs/b /home/me/runs/c) # job folders in the order of the tasks" in lines


def test_jobs_of_other_machines_or_times_and_those_beyond_the_clusters_limit_go_into_arrays_of_their_own() -> None:
    jobs = [job("a"), job("b", nodes=2), job("c"), job("d"), job("e", time="20"), job("f", nodes=2)]

    assert [[one.name for one in group] for group in divided(jobs, 2)] == [["a", "c"], ["d"], ["b", "f"], ["e"]]
    config = "MaxArraySize            = 1001\nMaxDBDMsgs = 1\n"
    assert parse_most_tasks(config) == 1001
    assert parse_most_tasks(f"{config}SchedulerParameters     = bf_continue,max_array_tasks=200,defer\n") == 200


def test_tasks_go_by_the_names_of_their_jobs_also_where_a_site_rewrites_comments() -> None:
    array, folders = Path("/home/me/out/.arrays/ab"), [Path("/home/me/out/a"), Path("/home/me/out/b")]
    text = "\n".join([
        ROW.format("7_1", "RUNNING", array, "sweep-1", "site: project 7"),
        ROW.format("7_0", "PENDING", array, "sweep-1", "aws-ddp-toolkit:sweep-1"),
        ROW.format("9_0", "RUNNING", "/home/other", "sweep-1", "site: project 7"),
    ])  # fmt: skip

    jobs = parse_queue(
        text, lambda folder, name: (folder, name) == (array, "sweep-1"), lambda _, task: ("ab"[task], folders[task])
    )

    assert [(one.id, one.name, one.folder, one.number) for one in jobs] == [
        ("7_1", "b", folders[1], (7, 1)), ("7_0", "a", folders[0], (7, 0)),
    ]  # fmt: skip
    assert jobs[0].array == ("sweep-1", array)
    assert why_it_waits("JobArrayTaskLimit", "7_0").startswith("waits for other runs of its sweep: --parallel")


Play = Callable[..., list[str]]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Submits runs a, b and c together, into out/, where Slurm's queue is these rows; its calls are in `calls`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    fakes = {
        "scontrol": """[ -z "$HIDDEN" ] || exit 1
            case "$1" in show) echo "MaxArraySize = ${MOST-1001}";; *) echo "$*" >>calls; exit 1;; esac""",
        "sinfo": """case "$*" in
            *%G*) printf 'main\\tup\\tinfinite\\t2\\t8\\t4000\\t(null)\\n';;
            *) printf 'main*\\tmain\\n';;
        esac""",
        "squeue": "cat queue",
        "sbatch": 'echo "sbatch $*" >>calls; echo $((100 + $(wc -l <calls)))',
    }
    for name, does in fakes.items():
        (tools / name).write_text(f"#!/bin/bash\n{does}\n")
        (tools / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)

    def play(queue: str = "", *, is_unseen: bool = False, nodes: tuple[int, ...] = (1, 1, 1), **env: str) -> list[str]:
        Path("queue").write_text(queue)
        train = TrainConfig(device="cpu", model="cnn")
        members = [
            Member(f"sweep-{name}", Path("out") / name, Job(Classifier(train), SlurmOptions(nodes=count)), is_unseen)
            for name, count in zip("abc", nodes, strict=True)
        ]
        path = {"PATH": f"{tools}:{os.environ['PATH']}"}
        return submit(members, Batch("sweep-all", Path("out"), 2, {**path, **env}, lambda line: None))

    return play


def calls() -> list[str]:
    return Path("calls").read_text().splitlines() if Path("calls").exists() else []


def ids(name: str) -> list[str]:
    found: list[str] = json.loads(Path("out", name, "job.json").read_text())["ids"]
    return found


def test_one_submission_takes_all_runs_and_each_knows_its_task(slurm: Play) -> None:
    assert slurm() == ["sweep-a", "sweep-b", "sweep-c"]

    (array,) = Path("out/.arrays").iterdir()
    assert calls() == [f"sbatch --parsable {array.resolve() / 'job.sbatch'}"]
    assert [ids(name) for name in "abc"] == [["101_0"], ["101_1"], ["101_2"]]
    assert [json.loads(Path("out", name, "job.json").read_text())["array"] for name in "abc"] == [array.name] * 3
    assert Path("out/b/job.sbatch").read_text().count("FOLDER=") == 1


def test_a_run_that_the_cluster_cannot_take_is_left_to_its_own_launcher_to_refuse(slurm: Play) -> None:
    assert slurm(nodes=(1, 9, 1)) == ["sweep-a", "sweep-c"]

    assert [ids(name) for name in "ac"] == [["101_0"], ["101_1"]]
    assert not Path("out/b").exists()


def submitted(names: str = "abc") -> str:
    """The queue after these were submitted: as an array, by a sweep that was killed before it noted its ids."""
    folder = Path("out/.arrays/0ld").resolve()
    folder.mkdir(parents=True)
    note(folder, "sweep-all", [], tasks=[str(Path("out", name).resolve()) for name in names])
    return "\n".join(
        ROW.format(f"7_{task}", "PENDING", folder, "sweep-all", "aws-ddp-toolkit:sweep-all")
        for task in range(len(names))
    )


def test_runs_in_the_queue_are_not_submitted_again_and_new_ones_wait_for_their_array(slurm: Play) -> None:
    slurm()
    Path("calls").unlink()
    for name in "abc":
        note(Path("out", name), f"sweep-{name}", [], array="0ld")

    assert slurm(submitted("ca")) == ["sweep-c", "sweep-a", "sweep-b"]

    assert calls()[0] == "update jobid=7 arraytaskthrottle=2"
    assert [line.split()[2] for line in calls()[1:]] == ["--dependency=afterany:7"]
    assert [ids(name) for name in "abc"] == [["7_1"], ["102_0"], ["7_0"]]


def test_runs_that_come_into_the_queue_just_then_are_left_to_that_array(slurm: Play) -> None:
    slurm()
    Path("calls").unlink()
    for name in "abc":
        Path("out", name, "job.json").unlink()
        note(Path("out", name), f"sweep-{name}", [])
    late = submitted("ab")
    Path("tools/squeue").write_text(f"#!/bin/bash\nif [ -e asked ]; then printf '%s' '{late}'; fi; touch asked\n")

    slurm()

    assert [line.split()[0] for line in calls()] == ["sbatch"]
    assert [ids(name) for name in "abc"] == [["7_0"], ["7_1"], ["101_0"]]
    assert json.loads(Path("out/a/job.json").read_text())["array"] == "0ld"


@pytest.mark.parametrize(("is_unseen", "attempts"), [(True, 1), (False, 2)])
def test_what_ended_while_nobody_looked_is_seen_before_it_is_tried_again(
    is_unseen: bool, attempts: int, slurm: Play
) -> None:
    slurm()
    Path("out/b/starts.jsonl").write_text('{"job": "101_1", "code": 5, "then": "failed"}\n')
    for name in "ac":
        Path("out", name, "starts.jsonl").write_text(f'{{"job": "{ids(name)[0]}", "code": 0, "then": "done"}}\n')

    assert set(slurm(is_unseen=is_unseen)) == {"sweep-a", "sweep-b", "sweep-c"}

    assert len(calls()) == attempts
    assert (len(ids("a")), len(ids("b"))) == (1, attempts)


def test_a_cluster_without_arrays_gets_one_job_after_the_other(slurm: Play) -> None:
    assert slurm(MOST="1") == []
    assert slurm(HIDDEN="1") == []
    assert calls() == []


def run_task(array: Array, task: int, folder: Path) -> str:
    """What the task says itself, where srun fails in a way that is worth another start."""
    fakes = {
        "srun": "exit 6",
        "squeue": 'echo "$*" >>asked; echo RUNNING',
        "scontrol": 'echo "$*" >>asked',
        "sleep": "",
    }
    for name, does in fakes.items():
        (folder / name).write_text(f"#!/bin/bash\n{does}\n")
        (folder / name).chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "40", "SLURM_ARRAY_JOB_ID": "40", "LANG": "C",
           "SLURM_ARRAY_TASK_ID": str(task), "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n0"}  # fmt: skip
    ended = subprocess.run(
        ["bash", "-c", array.script], env=env, capture_output=True, text=True, check=False, cwd=folder, timeout=30
    )
    return ended.stdout


def test_a_task_is_its_job_and_asks_slurm_for_itself_alone(tmp_path: Path) -> None:
    jobs = [job(name, tmp_path) for name in "ab"]
    array = Array("sweep", tmp_path / "ab12", jobs, 1)
    for one in jobs:
        one.folder.mkdir(parents=True)
        (one.folder / "job.sbatch").write_text(render(one))
        note(one.folder, one.name, [], array="ab12")

    assert run_task(array, 1, tmp_path) == ""

    (start,) = map(json.loads, (tmp_path / "runs/b/starts.jsonl").read_text().splitlines())
    assert (start["job"], start["then"]) == ("40_1", "requeue")
    assert (tmp_path / "asked").read_text().split() == [
        "--noheader",
        "--jobs",
        "40_1",
        "--format",
        "%T",
        "requeue",
        "40_1",
    ]
    assert "job 40_1, start 1" in (tmp_path / "runs/b/job.log").read_text()
    assert not (tmp_path / "runs/a/starts.jsonl").exists()


def test_a_task_whose_job_another_array_has_leaves_it_alone(tmp_path: Path) -> None:
    one = job("a", tmp_path)
    one.folder.mkdir(parents=True)
    (one.folder / "job.sbatch").write_text(render(one))
    note(one.folder, one.name, [], array="newer")

    said = run_task(Array("sweep", tmp_path / "older", [one], 1), 0, tmp_path)

    assert said == f"another submission has the job in {one.folder}; this one leaves it alone\n"
    assert not (one.folder / "starts.jsonl").exists()
