"""Promises of the verbs that every backend keeps."""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pydantic import TypeAdapter

from launch.core.job_verbs import job_verbs
from launch.core.jobs import LARGE_BYTES, Leak, Overview, Summary, without_checkpoints
from launch.core.terminal import say
from launch.core.verbs import run_verb
from tests.conftest import ROOT
from tests.launch.core.listed import ListedJobs
from tests.launch.job_worlds import EPOCH, WORLDS, World, on_ec2

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


def test_the_results_of_a_running_job_are_fetched_and_their_place_is_shown(world: World) -> None:
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


def test_the_results_of_a_job_that_has_ended_are_fetched_with_its_metrics(world: World) -> None:
    world.put(METRICS, b"{}\n")
    world.end()

    assert world.type("fetch", "demo") == 0

    assert files_in(world.results).items() >= {METRICS: b"{}\n", "model.pt": b"the weights"}.items()


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


def test_a_file_that_the_user_has_changed_is_kept(cloud: World) -> None:
    cloud.put(METRICS, b"1")
    cloud.type("fetch", "demo")
    mine = cloud.results / METRICS
    mine.write_text("with my notes")
    os.utime(mine, (2e9, 2e9))

    assert cloud.type("fetch", "demo") == 0
    assert mine.read_text() == "with my notes"


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


def test_a_misspelt_job_is_refused_by_every_verb(world: World) -> None:
    for verb in ("status", "logs", "stop", "attach", "fetch"):
        assert world.type(verb, "dmeo") == 2, verb


def test_checkpoints_are_left_by_their_folders_name_if_they_are_large_together() -> None:
    small, large = LARGE_BYTES // 2, LARGE_BYTES
    files = {"model.pt": large, "checkpoints/a.pt": small, "checkpoint-500/b.bin": small, "checkpoint.md": 1}

    assert set(without_checkpoints(files)) == set(files)
    assert set(without_checkpoints({**files, "lightning_logs/checkpoints/c.ckpt": 1})) == {"model.pt", "checkpoint.md"}


# ---- ssh, forward, tensorboard


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Sequence[str]]:
    """What this process becomes, where the programs that a session needs are installed."""
    commands = list[Sequence[str]]()

    def record(command: Sequence[str]) -> NoReturn:
        commands.append(command)
        raise SystemExit(0)

    for name in ("aws", "session-manager-plugin"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("launch.core.shell.become", record)
    return commands


def test_ssh_runs_the_command_that_it_prints(cloud: World, become: list[Sequence[str]]) -> None:
    assert cloud.type("ssh", "demo", "--print") == 0
    command, *notes = cloud.text.splitlines()
    assert command.startswith("aws ssm start-session --target ")
    assert all(note.startswith("# ") for note in notes)
    assert become == []

    with pytest.raises(SystemExit):
        cloud.type("ssh", "demo")
    assert [shlex.join(words) for words in become] == [command]


def test_without_the_plugin_ssh_says_how_to_install_it(
    cloud: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert cloud.type("ssh", "demo") == 2

    error = capsys.readouterr().err
    assert "\n  pip install awscli\n" in error
    assert "\n  sudo dpkg -i session-manager-plugin.deb\n" in error


def test_forward_makes_a_port_of_a_node_one_of_localhost(tmp_path: Path, become: list[Sequence[str]]) -> None:
    """https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-specify-session-document.html"""
    with on_ec2(tmp_path) as world:
        for words in (("8888",), ("8888", "--local-port", "9999")):
            with pytest.raises(SystemExit):
                world.type("forward", "demo", *words)
        assert world.type("forward", "demo") == 2  # without a port

    assert [words[words.index("--document-name") + 1] for words in become] == ["AWS-StartPortForwardingSession"] * 2
    assert [words[-1] for words in become] == [
        "portNumber=8888,localPortNumber=8888",
        "portNumber=8888,localPortNumber=9999",
    ]


def test_tensorboard_shows_the_events_and_fetches_nothing_else(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it runs it fetches new ones."""
    ran, first, second = list[Sequence[str]](), "tensorboard/events.out.tfevents.1", "tensorboard/events.out.tfevents.2"

    def run_beside(command: Sequence[str], every_s: float, act: Callable[[], object]) -> int:
        ran.append(command)
        world.put(second, b"more")
        act()
        return 0

    monkeypatch.setattr("launch.core.shell.run_beside", run_beside)
    world.put(WEIGHTS, b"large")
    world.put(first, b"events")

    assert world.type("tensorboard", "demo", "7007") == 0

    assert [words[-5:] for words in ran] == [["tensorboard.main", "--logdir", str(world.results), "--port", "7007"]]
    assert {first, second} <= files_in(world.results).keys()
    if world.is_cloud:
        assert WEIGHTS not in files_in(world.results)


def test_tensorboard_without_events_says_which_flag_writes_them(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.put(METRICS, b"{}\n")

    assert world.type("tensorboard", "demo") == 2
    assert "train with --tensorboard" in capsys.readouterr().err


def test_where_tensorboard_is_not_installed_its_command_is_shown(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("launch.core.job_verbs.find_spec", lambda name: None)
    world.put("events.out.tfevents.1", b"events")

    assert world.type("tensorboard", "demo") == 2
    assert f"  tensorboard --logdir {world.results}" in capsys.readouterr().err


# ---- --json, which infra/README.md describes


def documented(verb: str) -> set[str]:
    """The fields in the table of a verb's JSON."""
    page = (ROOT / "infra/README.md").read_text()
    table = page.partition(f"| `{verb} --json`")[2].partition("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def check(summary: Mapping[str, Any]) -> Summary:
    """The job that an object describes.  Fails unless it has the documented fields, each of its type."""
    assert summary.keys() == documented("status")
    return TypeAdapter(Summary).validate_json(json.dumps(summary))


def test_status_is_an_object_for_a_job_and_a_list_for_all(world: World) -> None:
    world.put(METRICS, json.dumps(EPOCH).encode() + b"\n")

    (one,) = world.json("status", "demo")
    (all_jobs,) = world.json("status")

    job = check(one)
    assert (job.job, job.status, job.exit_code) == ("demo", "running", None)
    assert job.metrics == EPOCH
    assert f"python -m launch.{world.backend} stop demo" in " ".join(job.next)
    assert [(found.job, found.status, found.metrics) for found in map(check, all_jobs["jobs"])] == [
        ("demo", "running", None)
    ]
    if world.is_cloud:
        assert job.usd_per_hour
        assert job.started
        assert job.region == "us-east-1"


def test_a_job_that_has_ended_has_its_exit_code(world: World) -> None:
    world.end()

    (one,) = world.json("status", "demo")

    job = check(one)
    assert (job.status, job.exit_code, job.reason) == ("done", 0, "")


def test_logs_are_an_object_a_line(world: World) -> None:
    world.log("epoch 1/3")
    world.log('with "quotes" and \x1b[31mcolour')

    first, second = world.json("logs", "demo")

    assert first.keys() == documented("logs")
    assert (first["text"], "quotes" in second["text"]) == ("epoch 1/3", True)
    if world.is_cloud:
        assert first["node"] in (0, 1)
        assert datetime.fromisoformat(first["time"]).utcoffset() == timedelta(0)


def test_logs_that_are_followed_are_nothing_but_lines(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.log("epoch 1/3")
    world.end()

    assert [line["text"] for line in world.json("logs", "demo", "--follow")] == ["epoch 1/3"]


def test_leaks_are_a_list_with_what_they_cost(cloud: World) -> None:
    (found,) = cloud.json("leaks")

    assert found["is_complete"] is True
    (job,) = found["jobs"]
    assert job.keys() == documented("leaks")
    assert (job["job"], job["is_leak"], job["is_removable"]) == ("demo", False, True)
    assert job["usd_per_hour"] > 0
    assert job["ids"]


def test_the_json_of_leaks_removes_nothing(cloud: World) -> None:
    assert cloud.type("leaks", "--json", "--delete", "--yes") == 2
    assert cloud.json("leaks")[0]["jobs"]


def test_fetch_names_the_files_that_are_here_and_those_that_are_not(
    cloud: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.core.jobs.LARGE_BYTES", 3)
    cloud.put(METRICS, b"{}\n")
    cloud.put(CHECKPOINT, b"four")

    (found,) = cloud.json("fetch", "demo")

    assert found.keys() == documented("fetch")
    assert (found["folder"], found["files"], found["left"]) == (str(cloud.results), {METRICS: 3}, {CHECKPOINT: 4})
    assert found["rest"].endswith("fetch demo --all --region us-east-1")


def test_warnings_do_not_disturb_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    class Warned(ListedJobs):
        def overview(self, options: Any) -> list[Overview]:
            say("warning: a region could not be searched")
            return super().overview(options)

    jobs = Warned([Leak("one", "here", is_leak=False, why="", usd_per_hour=0.0, rows=())])
    jobs.say = say
    command = "python -m launch.tests"

    assert run_verb(command, job_verbs(command, lambda _: jobs), "status", ["--json"]) == 0

    out, err = capsys.readouterr()
    assert [job["job"] for job in json.loads(out)["jobs"]] == ["one"]
    assert err == "warning: a region could not be searched\n"
