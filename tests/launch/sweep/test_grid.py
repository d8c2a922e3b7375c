"""A sweep's file and its grid: which runs it has, and what is refused before any begins."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.core import backend as backends
from launch.core.backend import Demand, Place
from launch.sweep import grid
from launch.sweep.grid import SweepFile, points
from launch.sweep.planned import Planned, place_run, plan_runs
from tests.launch.sweep.sweeps import PRESETS, TINY, written
from trainer.errors import SettingsError


def parsed(is_small: bool = False, **content: Any) -> SweepFile:
    return grid.parse({"name": "tiny", **content}, "sweep.yaml", small=is_small)


def planned(file: SweepFile, overrides: dict[str, Any] | None = None, gpus: tuple[int, ...] = ()) -> dict[str, Planned]:
    return {run.name: run for run in plan_runs(file, overrides or {}, gpus)}


# ---- expansion


def test_a_grid_is_every_combination_and_runs_are_added() -> None:
    file = parsed(grid={"gpus": [1, 2], "strategy": ["ddp", "fsdp"]}, runs=[{"name": "alone", "strategy": "single"}])

    assert [(point.name, dict(point.values)) for point in points(file)] == [
        ("gpus-1-strategy-ddp", {"gpus": 1, "strategy": "ddp"}),
        ("gpus-1-strategy-fsdp", {"gpus": 1, "strategy": "fsdp"}),
        ("gpus-2-strategy-ddp", {"gpus": 2, "strategy": "ddp"}),
        ("gpus-2-strategy-fsdp", {"gpus": 2, "strategy": "fsdp"}),
        ("alone", {"strategy": "single"}),
    ]


def test_what_is_to_be_skipped_is_left_out_by_one_value_or_several() -> None:
    grid = {"gpus": [1, 2, 4], "strategy": ["dp", "ddp"]}
    file = parsed(fixed={"epochs": 2}, grid=grid, skip=[{"strategy": "dp", "gpus": [1, 4]}, {"gpus": 2, "epochs": 2}])

    assert [point.name for point in points(file)] == ["gpus-1-strategy-ddp", "gpus-4-strategy-ddp"]


def test_small_replaces_values_and_leaves_the_rest() -> None:
    content: dict[str, Any] = {
        "backend": "ec2", "fixed": {"model": "resnet18", "epochs": 9}, "grid": {"gpus": [1, 8]},
        "small": {"fixed": {"epochs": 1}, "grid": {"gpus": [1, 2]}},
    }  # fmt: skip
    whole, small = parsed(**content), parsed(is_small=True, **content)

    assert (whole.backend, whole.grid) == ("ec2", {"gpus": [1, 8]})
    assert (small.backend, small.grid, small.fixed) == ("local", {"gpus": [1, 2]}, {"model": "resnet18", "epochs": 1})


def test_overrides_hold_for_every_run_and_win_over_the_file() -> None:
    found = planned(parsed(fixed=TINY, grid={"gpus": [1, 2]}), {"epochs": "3", "global_batch_size": "16"})

    assert {(run.settings["epochs"], run.settings["global_batch_size"]) for run in found.values()} == {(3, 16)}
    assert "batch_size" not in found["gpus-1"].given


def test_gpus_of_the_command_line_replace_those_of_the_file() -> None:
    assert list(planned(parsed(fixed=TINY, grid={"gpus": [4, 8]}), gpus=(1, 2))) == ["gpus-1", "gpus-2"]
    one = planned(parsed(fixed={**TINY, "gpus": 4}, runs=[{"name": "a"}, {"name": "b", "gpus": 2}]), gpus=(1,))
    assert {run.replicas for run in one.values()} == {1}


def test_a_batch_given_for_a_run_replaces_the_one_of_all_runs() -> None:
    fixed = {**{k: v for k, v in TINY.items() if k != "batch_size"}, "global_batch_size": 64}
    found = planned(parsed(fixed=fixed, runs=[{"name": "ramp", "batch_ramp": "0:8,1:16"}, {"batch_size": 4}]))

    assert found["ramp"].settings["batch_ramp"] == {"0": 8, "1": 16}
    settings = found["batch-size-4"].settings
    assert (settings["batch_size"], settings["global_batch_size"]) == (4, None)


def test_runs_of_long_or_like_values_have_names_of_their_own() -> None:
    long = {"optimizer": ["sgd"], "lr_scaling": ["linear"], "warmup_epochs": [1], "precision": ["bf16"], "lr": ["0.1"],
            "strategy": ["ddp"], "batch_size": [128], "weight_decay": [1, 2]}  # fmt: skip

    names = [
        point.name for file in (parsed(grid=long), parsed(grid={"lr": ["1e-3", "1e+3"]})) for point in points(file)
    ]

    assert len(set(names)) == 4
    assert max(map(len, names)) <= 80


def test_a_value_may_begin_with_hyphens_or_end_like_a_number() -> None:
    file = parsed(backend="slurm", fixed=TINY, options={"slurm": {"sbatch": "--nice=5"}}, grid={"gpus": [1]})
    assert "--sbatch=--nice=5" in planned(file)["gpus-1"].argv

    file = parsed(
        backend="sagemaker", fixed=TINY, options={"sagemaker": {"environment": ["A=2.0"]}}, grid={"gpus": [1]}
    )
    assert "--environment=A=2.0" in planned(file)["gpus-1"].argv


# ---- how many GPUs mean which machines


def place(backend: str, options: dict[str, Any], strategy: str, gpus: int | None, on_cpu: bool = False) -> Place:
    return place_run(backends.find(backend), Demand(options, strategy, gpus, on_cpu))


@pytest.mark.parametrize(
    ("backend", "options", "strategy", "gpus", "expected"),
    [
        ("local", {}, "ddp", 2, {"nproc_per_node": 2}),
        ("local", {}, "dp", 4, {"nproc_per_node": 1}),
        ("ec2", {"instance_type": "g5.12xlarge"}, "auto", 2, {"nodes": 1, "nproc_per_node": 2}),
        ("ec2", {"instance_type": "g5.12xlarge"}, "auto", 8, {"nodes": 2}),
        ("ec2", {"instance_type": "g5.2xlarge"}, "auto", 8, {"nodes": 8}),
        ("ec2", {"instance_type": "g5.12xlarge", "nodes": "2"}, "auto", 8, {"nodes": 2}),  # of a command line
        ("ec2", {"instance_type": "g5.12xlarge"}, "dp", 4, {"nodes": 1, "nproc_per_node": 1}),
        ("sagemaker", {"instance_type": "ml.g5.12xlarge"}, "auto", 8, {"nodes": 2}),
        ("sagemaker", {"instance_type": "ml.g5.12xlarge"}, "auto", 1, {"instance_type": "ml.g5.xlarge", "nodes": 1}),
        ("sagemaker", {"instance_type": "ml.g5.48xlarge"}, "auto", 4, {"instance_type": "ml.g5.12xlarge", "nodes": 1}),
        ("slurm", {"nodes": 2}, "auto", 8, {"gpus_per_node": 4}),
    ],
)
def test_gpus_are_what_the_backend_calls_them(
    backend: str, options: dict[str, Any], strategy: str, gpus: int, expected: dict[str, Any]
) -> None:
    placed = place(backend, options, strategy, gpus)

    assert placed.options == {**options, **expected}
    assert placed.replicas == gpus
    assert placed.visible == (4 if (backend, strategy) == ("local", "dp") else None)


@pytest.mark.parametrize(
    ("backend", "options", "strategy", "gpus", "sentence"),
    [
        ("ec2", {"instance_type": "g5.12xlarge"}, "auto", 6, "g5.12xlarge"),
        ("ec2", {"instance_type": "g5.12xlarge"}, "dp", 2, "strategy dp"),
        ("ec2", {"instance_type": "g5.2xlarge,g5.12xlarge"}, "auto", 1, "give only one|give one type"),
        ("sagemaker", {}, "dp", 4, "strategy dp"),
        ("slurm", {"nodes": 2}, "auto", 3, "gpus: 3 do not divide among 2 nodes"),
        ("local", {"nproc_per_node": 2}, "ddp", 2, "gpus and nproc_per_node both"),
        ("local", {}, "single", 2, "strategy single trains on one GPU, not on 2"),
    ],
)
def test_numbers_that_a_backend_does_not_have_are_refused(
    backend: str, options: dict[str, Any], strategy: str, gpus: int, sentence: str
) -> None:
    with pytest.raises(SettingsError, match=sentence):
        place(backend, options, strategy, gpus)


# ---- refusals


def test_a_grid_that_no_machine_holds_is_refused_before_it_is_made() -> None:
    """A file of five lines names ten billion runs."""
    grid = {f"args.{axis}": list(range(100)) for axis in "abcde"}
    with pytest.raises(SettingsError, match=r"a grid of 10,000,000,000 runs, .* at most 10,000; give fewer values"):
        points(parsed(grid=grid))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"gird": {"gpus": [1]}}, "unknown key 'gird' in sweep.yaml; did you mean 'grid'"),
        ({"backend": "ec3"}, "unknown backend 'ec3'; did you mean 'ec2'"),
        ({"options": {"nodes": 2}}, "options are given by backend, .* there is no backend 'nodes'"),
        ({"grid": [1, 2]}, "sweep.yaml, grid must hold `name: value` lines"),
        ({"runs": {"a": 1}}, "sweep.yaml, runs must be a list"),
        ({"small": {"name": "x"}}, "unknown key 'name' in sweep.yaml, small"),
        ({"rehearse": "yes"}, "sweep.yaml, rehearse must be true or false, not 'yes'"),
        ({"name": "no spaces, please"}, "must be letters, digits and hyphens"),
    ],
)
def test_a_file_of_the_wrong_shape_is_refused_with_what_is_meant(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        parsed(**content)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({}, "tiny has no run"),
        ({"grid": {"gpus": [1]}, "skip": [{"gpus": 1}]}, "tiny has no run"),
        ({"grid": {"batchsize": [1]}}, "run batchsize-1: unknown setting 'batchsize' .* did you mean 'batch_size'"),
        ({"grid": {"nodes": [1]}}, "run nodes-1: unknown setting 'nodes' for the trainer and launch.local"),
        ({"grid": {"model": ["resnt18"]}}, "run model-resnt18: unknown model 'resnt18'; did you mean 'resnet18'"),
        ({"grid": {"epochs": ["many"]}}, "run epochs-many: --epochs many: must be a whole number"),
        (
            {"grid": {"gpus": [3]}, "fixed": {"global_batch_size": 64}},
            "run gpus-3: a global batch of 64 does",
        ),
        ({"grid": {"gpus": [0]}}, "run gpus-0: gpus: 0 must be a whole number"),
        ({"grid": {"run_dir": ["a"]}}, "'run_dir' is set by the sweep"),
        ({"runs": [{"name": "a"}, {"name": "a"}]}, "tiny has several runs 'a'"),
        ({"grid": {"seed": [1, 1]}}, "tiny has several runs 'seed-1'"),
        ({"runs": [{"name": "Runs.csv"}]}, "'Runs.csv' is the name of one of the sweep's files"),
        (
            {"backend": "slurm", "options": {"slurm": {"nodes": "two"}}, "grid": {"gpus": [2]}},
            "run gpus-2: nodes: two must be a whole number",
        ),
        ({"runs": [{"comm_hook": "fp16", "strategy": "fsdp"}]}, "--comm-hook fp16 works with --strategy ddp only"),
    ],
)
def test_runs_that_cannot_work_are_refused_by_name(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        planned(parsed(**content))


def test_what_a_sweep_compares_cannot_be_given_for_all_runs() -> None:
    with pytest.raises(SettingsError, match="--precision is what tiny compares"):
        planned(parsed(grid={"precision": ["fp32", "bf16"]}), {"precision": "fp32"})


def test_a_sweeps_numbers_and_booleans_are_those_of_settings_files(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text("rehearse: false\ngrid: {lr: [0.1, 2], amp: [true], day: [2026-02-30]}\n")
    file = grid.read(str(path))
    assert (file.rehearse, file.grid) == (False, {"lr": [0.1, 2], "amp": [True], "day": ["2026-02-30"]})
    path.write_text("fixed: {lr: 1, lr: 2}")
    with pytest.raises(SettingsError, match=r"lr is set twice"):
        grid.read(str(path))


def test_a_file_that_is_no_sweep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [")
    without_small = str(written(tmp_path))
    for name, small, message in (
        ("weak-scalin", False, "unknown sweep 'weak-scalin'; did you mean 'weak-scaling'"),
        (str(tmp_path / "none.yaml"), False, "no such file"),
        (str(tmp_path / "bad.yaml"), False, "is not YAML"),
        (without_small, True, "has no `small:` version"),
    ):
        with pytest.raises(SettingsError, match=message):
            grid.read(name, small=small)


# ---- presets


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_expands_and_its_settings_hold(name: str) -> None:
    whole, small = grid.read(name), grid.read(name, small=True)

    assert (whole.name, bool(whole.about)) == (name, True)
    assert len(planned(whole)) >= 2
    assert max(run.replicas or 0 for run in planned(small).values()) <= 2
    for backend in ("sagemaker", "local") if name not in ("dp-ddp-fsdp", "single-vs-multi-node") else ():
        assert len(planned(replace(whole, backend=backend))) == len(planned(whole))
