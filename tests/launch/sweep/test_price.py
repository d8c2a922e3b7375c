"""What a sweep says before it starts: what it costs, who refuses it, and what is asked."""

import json
from pathlib import Path

import pytest

from launch.core import shell
from launch.core.shell import Captured
from launch.sweep.planned import plan_runs
from launch.sweep.price import prices, read
from launch.sweep.spec import parse
from tests.launch.sweep.sweeps import sweep, written
from trainer.errors import SettingsError

ON_EC2 = {"backend": "ec2", "options": {"ec2": {"instance_type": "g5.12xlarge", "max_hours": 1}},
          "fixed": {"model": "resnet18", "dataset": "cifar10", "epochs": 1}}  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            {"g5.2xlarge": "2.46 USD per hour on demand", "  expected": "2.51 USD in 1.0 h: 663 s per epoch",
             "  at most": "1,029.48 USD in 12 h; then the time limit ends it"},
            (2.46, 2.51, 3600.0, 1029.48, 43200.0),
        ),
        (
            {"ml.g5.2xlarge": "1.52 USD per hour on demand", "  expected": "no estimate for cnn on digits with x",
             "  at most": "86.26 USD: 12 h until the time limit, 10 min to end"},
            (1.52, None, None, 86.26, 43200.0),
        ),
        ({}, (None, None, None, None, None)),
    ],
)  # fmt: skip
def test_prices_are_read_from_what_launchers_say(lines: dict[str, str], expected: tuple[float | None, ...]) -> None:
    price = read({"price": lines, "problems": []})

    told = (price.usd_per_hour, price.expected_usd, price.expected_s, price.most_usd, price.most_s)
    assert told == expected


@pytest.fixture
def no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("no_region")
def test_the_plan_shows_each_runs_price_and_the_sum_and_starts_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, **ON_EC2, grid={"gpus": [4, 8]})

    text, told = sweep(tmp_path, path, "--dry-run"), sweep(tmp_path, path, "--dry-run=json")

    assert (text.returncode, told.returncode) == (0, 0), text.stderr + told.stderr
    prices = [run["price"] for run in json.loads(told.stdout)["runs"]]
    assert prices[1]["most_usd"] == pytest.approx(2 * prices[0]["most_usd"], rel=0.01)
    assert prices[0]["expected_usd"] > 0
    assert f"{sum(price['most_usd'] for price in prices):.2f}" in text.stdout
    assert [place.name for place in tmp_path.iterdir()] == ["sweep.yaml"]


@pytest.mark.usefixtures("no_region")
def test_more_than_max_usd_is_refused_and_so_is_what_nobody_confirmed(tmp_path: Path) -> None:
    path = written(tmp_path, **ON_EC2, grid={"gpus": [4]})

    too_much = sweep(tmp_path, path, "--max-usd", "1")
    without_account = sweep(tmp_path, path, "--yes")

    assert too_much.returncode == 2
    assert "the sweep may cost 5.69 USD, over --max-usd 1" in too_much.stderr
    assert without_account.returncode == 2
    assert "no AWS region" in without_account.stderr
    assert not (tmp_path / "runs").exists()


def test_a_refusal_that_is_in_the_plan_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = json.dumps({"facts": {}, "problems": ["the cluster has no partition mian."]})
    monkeypatch.setattr(shell, "run_captured", lambda command, env: Captured(2, plan, ""))
    (run,) = plan_runs(parse({"name": "tiny", "backend": "slurm", "grid": {"gpus": [2]}}, ""), {}, ())

    with pytest.raises(SettingsError, match="run gpus-2: the cluster has no partition mian"):
        prices([run], {}, rehearsed=False, usd_per_hour=None)


def test_each_node_has_the_price_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "run_captured", lambda command, env: Captured(0, "{}", ""))
    (run,) = plan_runs(parse({"name": "tiny", "backend": "slurm", "grid": {"nodes": [4]}}, ""), {}, ())

    assert prices([run], {}, rehearsed=False, usd_per_hour=2.0)["nodes-4"].usd_per_hour == 8.0


def test_a_limit_that_nothing_holds_is_refused(tmp_path: Path) -> None:
    refused = sweep(tmp_path, written(tmp_path, grid={"gpus": [1]}), "--max-usd", 1, "--usd-per-hour", 9, "--dry-run")

    assert refused.returncode == 2
    assert "--max-usd 1 holds for ec2 and sagemaker" in refused.stderr


def test_a_run_that_its_launcher_refuses_is_told_before_any_begins(tmp_path: Path) -> None:
    path = written(tmp_path, **{**ON_EC2, "options": {"ec2": {"instance_type": "c7i.large"}}}, grid={"epochs": [1, 2]})

    refused = sweep(tmp_path, path, "--rehearse")

    assert refused.returncode == 2
    assert "error: run epochs-1: --instance-type c7i.large has no GPU; give --allow-cpu" in refused.stderr
    assert not (tmp_path / "runs").exists()
