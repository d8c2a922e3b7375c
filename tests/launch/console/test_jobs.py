"""What the console shows of a job, and what it does with it: the same on every backend."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from moto.core.models import botocore_stubber

from launch.console import logs
from launch.console.world import HERE, LastingClient
from launch.core import runs
from launch.core.runs import Run
from tests.launch.console.desk import Desk
from tests.launch.job_worlds import EPOCH, WORLDS, World

METRICS, SETTINGS = "metrics.jsonl", "config.yaml"
HOSTILE = "<script>alert(1)</script>\"'&\u202e"


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with WORLDS[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture
def desk(world: World, tmp_path: Path) -> Desk:
    return Desk(tmp_path / "none", world)


def test_a_running_job_is_a_row_with_its_progress_and_cost(world: World, desk: Desk) -> None:
    world.put(METRICS, json.dumps(EPOCH).encode() + b"\n")

    listing = desk.ask("jobs")

    (row,) = listing["jobs"]
    assert (row["on"], row["name"], row["status"]) == (world.backend, "demo", "running")
    assert "epoch 3" in row["progress"]
    assert listing["left_out"] == []
    if world.is_cloud:
        assert row["usd_at_most"] > row["usd"] >= 0
        assert listing["usd_per_hour"] == row["usd_per_hour"] > 0


def test_a_job_has_its_facts_records_settings_and_the_commands_of_its_actions(world: World, desk: Desk) -> None:
    world.put(METRICS, json.dumps(EPOCH).encode() + b"\n")
    world.put(SETTINGS, b"epochs: 4\nwandb_api_key: planted\n")

    job = desk.ask("job", on=world.backend, name="demo")
    records = desk.ask("curves", on=world.backend, name="demo")

    assert job["job"]["facts"]
    assert job["job"]["commands"]["stop"] == f"python -m launch.{world.backend} stop demo"
    assert records["records"] == [EPOCH]
    assert records["pictures"][0]["src"].startswith("data:image/svg+xml;base64,")
    assert records["settings"]["epochs"] == "4"
    assert "planted" not in json.dumps(records)


def test_the_log_grows_and_is_searched(world: World, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "EVERY_S", 0.0)
    for number in range(3):
        world.log(f"epoch {number}/3 {HOSTILE}")

    first = desk.ask("log", on=world.backend, name="demo")
    world.log("the LOSS is 0.25")
    later = desk.ask("log", on=world.backend, name="demo", after=first["end"] - 1)
    found = desk.ask("log", on=world.backend, name="demo", q="loss")

    assert [text.partition(" <")[0] for *_, text in first["lines"]] == ["epoch 0/3", "epoch 1/3", "epoch 2/3"]
    assert [text for *_, text in later["lines"]] == ["the LOSS is 0.25"]
    assert [text for *_, text in found["lines"]] == ["the LOSS is 0.25"]
    assert (found["found"], found["end"]) == (1, 4)


def test_stop_is_the_command_that_is_shown(world: World, desk: Desk) -> None:
    shown = desk.ask("job", on=world.backend, name="demo")["job"]["commands"]["stop"]

    number = desk.act(verb="stop", on=world.backend, name="demo")["number"]

    assert f"python -m {desk.typed[0]}" == shown
    (action,) = desk.ask("actions", id=number)
    assert (action["command"], action["code"]) == (shown, 0)
    assert action["lines"]
    assert not [row for row in desk.ask("jobs")["jobs"] if row["status"] == "running"]


def test_what_a_job_still_costs_is_listed_with_the_command_that_removes_it(tmp_path: Path) -> None:
    with WORLDS["ec2"](tmp_path) as world:
        desk = Desk(tmp_path, world)
        (leak,) = desk.ask("leaks")["jobs"]

        assert (leak["job"], leak["is_leak"]) == ("demo", False)
        assert leak["remove"] == "python -m launch.ec2 stop demo --region us-east-1"
        assert {one["kind"] for one in leak["resources"]} >= {"node"}

        desk.act(verb="stop", on="ec2", name="demo", region="us-east-1")
        assert desk.ask("leaks")["jobs"] == []


@pytest.mark.parametrize(
    "content",
    [
        {"verb": "ssh", "on": "ec2", "name": "demo"},
        {"verb": "stop", "on": "ec2", "name": ""},
        {"verb": "stop", "on": "ec2", "name": "--all"},
        {"verb": "stop", "on": "nothing", "name": "demo"},
        {"verb": "doctor", "on": "../x"},
    ],
)
def test_no_other_command_can_be_started(tmp_path: Path, content: dict[str, str]) -> None:
    with WORLDS["ec2"](tmp_path) as world:
        desk = Desk(tmp_path, world)
        assert desk.act(400, **content)["error"]
        assert desk.typed == []


def test_a_running_job_has_its_phases_as_a_timeline(world: World, desk: Desk) -> None:
    timeline = desk.ask("job", on=world.backend, name="demo")["timeline"]

    assert re.search(r'<svg class="gantt".*aria-label="[A-Za-z]+ \d', timeline)
    assert " so far</dd>" in timeline


def test_jobs_of_ec2_that_have_ended_stay_in_the_list(tmp_path: Path) -> None:
    with WORLDS["ec2"](tmp_path) as world:
        desk = Desk(tmp_path, world)
        desk.act(verb="stop", on="ec2", name="demo")

        listing = desk.ask("jobs")

        assert [(row["on"], row["name"], row["status"]) for row in listing["jobs"]] == [("ec2", "demo", "stopped")]
        assert listing["usd_per_hour"] == 0


# ---- expired credentials


def test_expired_credentials_are_one_sentence_and_new_ones_are_used_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, expired = tmp_path / "credentials", set[bytes]()
    to_moto = botocore_stubber.process_request

    def process(request: Any) -> Any:
        if request.headers.get("X-Amz-Security-Token") not in expired:
            return to_moto(request)
        if urlsplit(request.url).netloc.startswith(("ec2.", "s3.")):
            return 400, {}, "<Response><Errors><Error><Code>RequestExpired</Code></Error></Errors></Response>"
        return 400, {"x-amzn-errortype": "ExpiredTokenException"}, '{"__type": "ExpiredTokenException"}'

    def sign_in(token: str) -> None:
        keys.write_text(f"[default]\naws_access_key_id=a\naws_secret_access_key=b\naws_session_token={token}\n")

    with WORLDS["ec2"](tmp_path) as world:
        world.log("the first line")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
        monkeypatch.setattr(botocore_stubber, "process_request", process)
        monkeypatch.setattr(logs, "EVERY_S", 0.0)
        sign_in("old")
        desk = Desk(tmp_path, clients=[LastingClient("launch.ec2"), LastingClient("launch.sagemaker")])
        one = {"on": "ec2", "name": "demo"}
        assert [row["name"] for row in desk.ask("jobs")["jobs"]] == ["demo"]
        assert desk.ask("log", **one)["end"] == 1

        expired.add(b"old")
        (sentence,) = desk.ask("jobs")["left_out"]
        assert "expired" in sentence
        assert {desk.ask(what, 400, **one)["error"] for what in ("job", "log")} == {sentence.partition(": ")[2]}

        sign_in("new")
        world_again = desk.ask("jobs")
        assert ([row["name"] for row in world_again["jobs"]], world_again["left_out"]) == (["demo"], [])
        assert desk.ask("job", **one)["job"]["row"]["status"] == "running"
        assert desk.ask("log", **one)["end"] == 1


# ---- runs of this machine


def run_in(folder: Path, **values: object) -> Run:
    run = Run(folder.name, folder, {"epochs": 3}, **values)  # type: ignore[arg-type]
    runs.write(run)
    (folder / METRICS).write_text("".join(json.dumps({**EPOCH, "epoch": one}) + "\n" for one in (1, 2)))
    return run


def test_without_credentials_it_shows_the_runs_of_this_machine(tmp_path: Path) -> None:
    run_in(tmp_path / "sweep" / "a", started="2026-11-28T10:00:00+00:00", seconds=60.0, usd=0.5)
    run_in(tmp_path / HOSTILE.replace("/", "|"), state="failed", reason="the loss is not finite")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / METRICS).write_text("1\n")

    listing = Desk(tmp_path).ask("jobs")

    first, second = listing["jobs"]
    assert (first["on"], first["name"], first["status"], first["usd"]) == (HERE, "sweep/a", "done", 0.5)
    assert first["ended"].startswith("2026-11-28T10:01:00")
    assert first["progress"].startswith("epoch 2/3, loss 1.2500")
    assert second["reason"] == "the loss is not finite"


def test_a_run_that_was_fetched_from_a_backend_is_the_same_job(tmp_path: Path) -> None:
    with WORLDS["ec2"](tmp_path) as world:
        run_in(tmp_path / "runs" / "demo")
        assert [row["on"] for row in Desk(tmp_path / "runs", world).ask("jobs")["jobs"]] == ["ec2"]


@pytest.mark.parametrize("name", ["../secret", "/etc", "none", ""])
def test_only_runs_of_the_folder_can_be_opened(tmp_path: Path, name: str) -> None:
    run_in(tmp_path / "secret")
    run_in(tmp_path / "runs" / "mine")
    desk = Desk(tmp_path / "runs")

    for what in ("job", "curves", "log"):
        assert "there is no run" in desk.ask(what, 400, on=HERE, name=name)["error"]
    assert desk.browser.get("/receipt", params={"on": HERE, "name": name}).status_code == 400


def test_a_receipt_cannot_reach_the_console(tmp_path: Path) -> None:
    run_in(tmp_path / "mine")
    (tmp_path / "mine" / "receipt.html").write_text("<p>a receipt")
    desk = Desk(tmp_path)

    answer = desk.browser.get("/receipt", params={"on": HERE, "name": "mine"})

    assert answer.text == "<p>a receipt"
    assert answer.headers["content-security-policy"] == "sandbox allow-scripts"
    assert desk.ask("job", on=HERE, name="mine")["job"]["receipt"] is True


def test_a_hostile_name_is_escaped_in_the_page(tmp_path: Path) -> None:
    page = Desk(tmp_path).browser.get("/job", params={"on": HERE, "name": HOSTILE}).text

    assert HOSTILE not in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page
