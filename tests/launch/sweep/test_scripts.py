"""Sweeps over the arguments of a script of the user's own: how they are written, and what their runs are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launch.core import runs
from launch.core.clock import Clock
from launch.core.runs import Run
from launch.core.training.script import Script
from launch.report import findings
from launch.sweep import table
from launch.sweep.cli import read
from launch.sweep.end import Watched
from launch.sweep.grid import parse
from launch.sweep.planned import Planned, command_line, named, plan_runs
from launch.sweep.runner import Context, command
from tests import needs
from tests.launch.sweep.sweeps import rows, sweep, written
from trainer.errors import SettingsError


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """train.py in the folder where the user stands."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('hello')\n")


def planned(overrides: Mapping[str, Any] | None = None, **content: Any) -> dict[str, Planned]:
    file = parse({"name": "mine", "script": "train.py", **content}, "mine.yaml")
    return {run.name: run for run in plan_runs(file, overrides or {}, ())}


def words(run: Planned, tmp_path: Path, *, rehearsed: bool = False) -> list[str]:
    context = Context("mine", "id", Path("out"), tmp_path, {}, Clock(), rehearsed, print)
    given = command(run, context)
    return given[given.index("-m") + 2 :]


def test_a_grid_over_arguments_names_runs_by_values_and_gives_them_after_all_flags(tmp_path: Path) -> None:
    found = planned(args="--steps 30", grid={"args.batch-size": [8, 16], "gpus": [1, 2]})

    assert list(found) == [f"batch-size-{size}-gpus-{gpus}" for size in (8, 16) for gpus in (1, 2)]
    run = found["batch-size-16-gpus-2"]
    assert isinstance(run.train, Script)
    assert run.train.arguments == ("train.py", "--steps", "30", "--batch-size=16")
    assert (run.point, run.replicas) == ({"args.batch-size": 16, "gpus": 2}, 2)
    given = words(run, tmp_path)
    assert given[:2] == ["--nproc-per-node=2", "--script=train.py"]
    assert given[-4:] == ["--", "--steps", "30", "--batch-size=16"]
    assert "--outcome" in given[: given.index("--")]


@pytest.mark.parametrize("backend", ["ec2", "sagemaker", "slurm"])
def test_on_every_backend_the_arguments_stand_last_also_in_a_rehearsal(backend: str, tmp_path: Path) -> None:
    found = planned(backend=backend, runs=[{"args.lr": 0.1}])

    given = words(found["lr-0.1"], tmp_path, rehearsed=True)

    assert given[-3:] == ["--rehearse", "--", "--lr=0.1"]
    assert "--job-name" in given
    assert found["lr-0.1"].train.source is not None


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("lr", -1, ["--lr=-1"]),
        ("amp", True, ["--amp"]),
        ("amp", False, []),
        ("data", None, []),
        ("sizes", [1, 2], ["--sizes", "1", "2"]),
        ("-l", 0.5, ["-l", "0.5"]),
        ("-lr", 0.5, ["-lr=0.5"]),
        ("model.lr=", 0.5, ["model.lr=0.5"]),
        ("amp=", True, ["amp=true"]),
        ("note", "two words", ["--note=two words"]),
    ],
)
def test_a_value_becomes_the_words_that_programs_take(name: str, value: Any, expected: list[str]) -> None:
    assert list(command_line((), named({f"args.{name}": value}))) == expected


def test_a_runs_own_argument_replaces_that_of_all_runs() -> None:
    found = planned(fixed={"args.lr": 0.1, "args.seed": 3}, runs=[{"name": "usual"}, {"name": "fast", "args.lr": 1}])

    assert found["usual"].arguments == ("--lr=0.1", "--seed=3")
    assert found["fast"].arguments == ("--lr=1", "--seed=3")


def test_words_at_the_end_of_the_command_line_replace_the_files(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("script: train.py\nargs: --steps 30\ngrid: {args.lr: [1]}\n")

    request = read(["mine.yaml", "--gpus", "2", "--", "--steps", "5"])

    (run,) = plan_runs(request.file, request.overrides, request.options.gpus)
    assert run.arguments == ("--steps", "5", "--lr=1")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"fixed": {"epochs": 3}}, "epochs is a setting of our trainer, which the script replaces; if the script has "
                                   "one of that name, write args.epochs."),
        ({"args": {"lr": 1}}, "mine.yaml, args: must be a text or a list"),
        ({"args": "--lr 1", "fixed": {"args.lr": 2}}, "args.lr and args: --lr 1 both give the script --lr; leave one"),
        ({"args": "--lr=1", "fixed": {"args.lr": 2}}, "both give the script --lr"),
        ({"fixed": {"script": "a.py"}}, "gives script twice, also under `fixed`"),
        ({"module": "a.b"}, "script and module both say what to run"),
        ({"script": None, "fixed": {"args.lr": 1}}, "args.lr is for a script of your own; give `script: FILE`"),
        ({"script": None, "processes": "one"}, "processes is for a script of your own; give `script: FILE`"),
        ({"fixed": {"args.": 1}}, "args. names no argument"),
        ({"fixed": {"args.a b": 1}}, "names no argument"),
        ({"fixed": {"args.lr": {"a": 1}}}, "is no argument; give a text, a number"),
        ({"processes": "one", "fixed": {"gpus": 2}}, "gpus: 2 is a number of processes, and with `processes: one`"),
        ({"script": "no.py"}, "there is no file no.py"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused_in_a_sentence(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as error:
        planned(**{"runs": [{"name": "one"}], **content})
    assert sentence in str(error.value)


def script_run(name: str, *records: dict[str, Any], **more: Any) -> Run:
    return Run(name, Path(name), {"script": "train.py"}, records, seconds=12.0, **more)


def test_the_table_of_a_script_has_its_own_metrics_newest_and_best() -> None:
    run = script_run(
        "lr-1", {"step": 1, "loss": 0.5, "seconds": 9}, {"step": 2, "loss": 0.7}, {"epoch": 1, "accuracy": 0.9},
        point={"args.lr": 1},
    )  # fmt: skip

    found = table.row(run)

    assert (found["args.lr"], found["step"], found["loss"], found["best_loss"]) == (1, 2, 0.7, 0.5)
    assert (found["accuracy"], found["best_accuracy"]) == (0.9, 0.9)
    assert (found["seconds"], found["metric.seconds"]) == (12.0, 9)
    assert not {"images_per_s", "seconds_per_epoch", "best_top1", "best_step"} & found.keys()
    assert table.outcome(run) == "done after 12 s: step 2, epoch 1, loss 0.7, seconds 9, accuracy 0.9"
    assert "step  loss" in table.closing_table([run, script_run("lr-2")])


def test_a_scripts_loss_is_watched_only_where_somebody_asks() -> None:
    (run,) = planned(runs=[{"name": "one"}]).values()
    assert run.train.diverged_at == 0.0
    ended: list[int] = []
    watched = Watched(2.0, ended.append)
    watched.begin(7)

    for loss in (1.0, 0.5, 3.0):
        watched.check({"step": 4, "loss": loss})

    assert ended == [7]
    assert watched.diverged.startswith("it diverged: training loss 3 in step 4 after 0.5")


def test_a_run_that_is_resumed_has_its_first_and_its_lowest_loss_behind_it() -> None:
    """Below its first it learns, however low it once was; and what came before its start still counts."""
    ended: list[int] = []
    watched = Watched(2.0, ended.append, [{"loss": 10.0}, {"loss": 1.0}])
    watched.begin(7)

    watched.check({"loss": 9.0})
    assert ended == []
    watched.check({"loss": 11.0})
    assert ended == [7]
    assert "training loss 11 after 1;" in watched.diverged


LEARNS = """\
import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--steps", type=int)
given = parser.parse_args()
weight = 4.0
for step in range(1, given.steps + 1):
    weight -= given.lr * 2 * weight
    if os.environ["RANK"] == "0":
        print(f"[METRIC] step={step} loss={weight * weight} world={os.environ['WORLD_SIZE']}")
"""


@needs.ec2_nodes()
@pytest.mark.timeout(500)  # two runs here, and a rehearsal
@pytest.mark.slow("a script's arguments are swept on this machine and on rehearsed EC2 nodes, and reported alike")
def test_a_sweep_over_arguments_ends_alike_on_two_backends_and_its_report_names_the_best(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "learn.py").write_text(LEARNS)
    path = written(
        tmp_path, script="code/learn.py", args="--steps 4", grid={"args.lr": [0.01, 0.2]}, fixed={"gpus": 1},
        options={"ec2": {"instance_type": "g5.xlarge"}},
    )  # fmt: skip

    here = sweep(tmp_path, path, "--out", "here")
    there = sweep(tmp_path, path, "--out", "there", "--only", "lr-0.2", "--backend", "ec2", "--rehearse", within_s=300)

    assert here.returncode == 0, here.stdout + here.stderr
    assert there.returncode == 0, there.stdout + there.stderr
    epochs = [runs.read(tmp_path / out / "lr-0.2").epochs for out in ("here", "there")]
    assert epochs[0] == epochs[1]
    assert [record["world"] for record in epochs[0]] == [1, 1, 1, 1]
    assert [row["state"] for row in rows(tmp_path / "here").values()] == ["done", "done"]
    results = findings.find([runs.read(tmp_path / "here" / name) for name in ("lr-0.01", "lr-0.2")])
    assert findings.title(results) == "2 runs: lowest loss 0.2687, by lr-0.2"
