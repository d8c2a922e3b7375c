"""The page that plans a job: every setting with its description, the launcher's own plan, a start after a yes."""

import html
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from launch.console.actions import Actions
from launch.console.plan import LEFT_OUT
from launch.core import backend
from launch.core.backend import BACKENDS
from launch.core.plan import short_text
from launch.core.training.options import TRAINS
from tests.launch.console.desk import Ended

HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture
def started(opened: TestClient) -> list[str]:
    """The commands that the console starts."""
    commands: list[str] = []

    def start(command: Sequence[str], output: Path) -> Ended:
        commands.append(shlex.join(command[command.index("-m") + 1 :]))
        return Ended(0)

    opened.app.state.world.actions = Actions(start_alone=start)  # type: ignore[attr-defined, arg-type]
    return commands


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        (tmp_path / name).touch()
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.mark.parametrize("name", BACKENDS)
def test_the_form_has_every_setting_with_its_own_description(name: str, opened: TestClient) -> None:
    text = opened.get("/plan", params={"on": name}).text

    models = (backend.find(name).options, *TRAINS)
    fields = {key: field for model in models for key, field in model.model_fields.items()}
    assert sorted(re.findall(r'name="(\w+)"', text.partition("<main")[2])) == sorted({*fields} - {*LEFT_OUT})
    for key in {*fields} - {*LEFT_OUT}:
        described = html.escape((fields[key].description or "").partition(" (default")[0], quote=False)
        assert described.replace('"', "&#34;").replace("'", "&#39;") in text


def test_the_form_shows_defaults_choices_and_what_the_address_fills_in(opened: TestClient) -> None:
    text = opened.get("/plan", params={"on": "ec2", "nodes": "2", "model": HOSTILE, "strategy": "fsdp"}).text

    assert re.search(r'<input id="set-epochs" [^>]*value="" placeholder="5"', text)
    assert re.search(r'<input id="set-nodes" [^>]*value="2" placeholder="1"', text)
    spot = re.search(r'<select id="set-spot" .*?</select>', text, re.DOTALL)
    assert spot is not None
    assert re.findall(r"<option[^>]*>", spot[0]) == ['<option value="">', "<option>"]  # false by default, or true
    assert "<option selected>fsdp</option>" in text
    assert HOSTILE not in text


def test_the_plan_is_that_of_a_dry_run_with_price_time_and_command(opened: TestClient) -> None:
    from launch.api import ec2

    asked = {"on": "ec2", "nodes": "2", "dataset": "cifar10", "job_name": "demo", "seed": " "}
    plan = opened.get("/data/plan", params=asked).json()

    dry_run = ec2.plan(nodes="2", dataset="cifar10", job_name="demo").places[0].plan  # type: ignore[attr-defined]
    assert plan["text"].split("price:")[1] == short_text(dry_run).split("price:")[1]
    assert plan["quote"]["expected_s"] > 0
    assert plan["most_usd"] > plan["quote"]["expected_usd"] > 0
    assert plan["command"] == "python -m launch.ec2 --nodes 2 --dataset cifar10 --job-name demo"
    assert plan["rehearsal"] == f"{plan['command']} --rehearse"
    assert "no AWS region" in plan["problem"]


def test_a_wrong_setting_is_a_sentence_with_its_flag(opened: TestClient) -> None:
    answer = opened.get("/data/plan", params={"on": "ec2", "nodes": "0"})

    assert answer.status_code == 400
    assert answer.json()["error"].startswith("--nodes 0: must be greater than or equal to 1")


def test_a_start_is_the_command_that_was_shown_and_bounded_by_the_approved_price(
    opened: TestClient, started: list[str]
) -> None:
    plan = opened.get("/data/plan", params={"on": "ec2", "dataset": "cifar10"}).json()
    asked: dict[str, Any] = {"on": "ec2", "values": {"dataset": "cifar10"}, "most_usd": plan["most_usd"]}

    assert opened.post("/data/plan/start", json=asked).json() == {"number": 0}
    assert started == [plan["start"].removeprefix("python -m ")]
    assert "--detach --max-usd " in started[0]
    limit = float(started[0].rpartition(" ")[2])
    assert plan["most_usd"] <= limit < plan["most_usd"] + 0.011


def test_a_rehearsal_and_a_free_job_start_with_their_own_words(opened: TestClient, started: list[str]) -> None:
    opened.post("/data/plan/start", json={"on": "ec2", "values": {"nodes": "2"}, "rehearse": True})
    opened.post("/data/plan/start", json={"on": "slurm", "values": {"args": "--lr 1", "script": "a.py"}})

    assert started == [
        "launch.ec2 --nodes 2 --rehearse", "launch.slurm '--args=--lr 1' --script a.py --detach --yes"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "asked",
    [
        {"on": "ec2", "values": {"inject": "x"}},
        {"on": "ec2", "values": {"help": "true"}},
        {"on": "local", "values": {}, "rehearse": True},
        {"on": "nowhere", "values": {}},
    ],
    ids=["no setting of a job", "another flag", "no rehearsal", "no backend"],
)
def test_nothing_else_is_started(asked: dict[str, Any], opened: TestClient, started: list[str]) -> None:
    assert opened.post("/data/plan/start", json=asked).status_code == 400
    assert started == []
