"""Promises of the verbs that every backend keeps."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.core.jobs import LARGE_BYTES, without_checkpoints
from tests.launch.job_worlds import WORLDS, World

METRICS, WEIGHTS, CHECKPOINT = "metrics.jsonl", "model.pt", "checkpoints/step-7.pt"


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with WORLDS[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture(params=["ec2", "sagemaker"])
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A backend whose machines are rented: they have no folder in common with this one."""
    with WORLDS[request.param](tmp_path) as opened:
        yield opened


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- fetch


def test_the_results_of_a_running_job_are_fetched_and_said_where_they_are(world: World) -> None:
    files = {METRICS: b"{}\n", CHECKPOINT: b"small", "plots/a.png": b"a picture"}
    for name, content in files.items():
        world.put(name, content)

    assert world.type("fetch", "demo") == 0

    assert world.said[-1] == f"results: {world.results}"
    assert files_in(world.results).items() >= {
        (METRICS, b"{}\n"),
        (CHECKPOINT, b"small"),
        ("plots/a.png", b"a picture"),
    }


def test_large_checkpoints_are_left_with_the_command_that_fetches_them(
    cloud: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.core.jobs.LARGE_BYTES", 10)
    cloud.put(WEIGHTS, b"the weights, whatever their size")
    cloud.put(CHECKPOINT, b"a large checkpoint")

    assert cloud.type("fetch", "demo") == 0
    assert WEIGHTS in files_in(cloud.results)
    assert CHECKPOINT not in files_in(cloud.results)
    said, command = cloud.said[-1].splitlines()
    assert "without 1 file of 0 MB" in said

    assert cloud.type(*command.split()[3:]) == 0
    assert CHECKPOINT in files_in(cloud.results)


def test_what_is_here_already_is_not_fetched_again_and_what_changed_is(cloud: World) -> None:
    cloud.put(METRICS, b"1")
    cloud.put(WEIGHTS, b"old")
    cloud.type("fetch", "demo")
    place, before = cloud.results / METRICS, (cloud.results / METRICS).stat().st_ino
    cloud.put(WEIGHTS, b"newer")

    assert cloud.type("fetch", "demo") == 0

    assert place.stat().st_ino == before  # a file that is replaced is another one
    assert files_in(cloud.results)[WEIGHTS] == b"newer"


def test_no_name_in_the_job_folder_leads_out_of_the_results(cloud: World) -> None:
    cloud.put("../../escaped", b"x")
    cloud.put("a/../../escaped", b"x")
    cloud.put("ok", b"x")

    assert cloud.type("fetch", "demo", "--all") == 0

    assert "ok" in files_in(cloud.results)
    assert [path for path in cloud.results.parent.rglob("*") if path.name == "escaped"] == []


def test_a_job_without_results_is_no_error(cloud: World) -> None:
    assert cloud.type("fetch", "demo") == 0
    assert cloud.text == "there are no results yet"


def test_a_misspelt_job_is_refused(world: World) -> None:
    assert world.type("fetch", "dmeo") == 2


def test_checkpoints_are_left_by_their_folders_name_if_they_are_large_together() -> None:
    small, large = LARGE_BYTES // 2, LARGE_BYTES
    files = {"model.pt": large, "checkpoints/a.pt": small, "checkpoint-500/b.bin": small, "checkpoint.md": 1}

    assert set(without_checkpoints(files)) == set(files)
    assert set(without_checkpoints({**files, "lightning_logs/checkpoints/c.ckpt": 1})) == {"model.pt", "checkpoint.md"}
