"""A sweep before it starts: what it costs, which runs are refused, and what must be confirmed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from launch.core import runs, shell
from launch.core.quote import Quote
from launch.core.runs import Run
from launch.core.shell import Captured
from launch.sweep.cli import SweepRequest
from launch.sweep.cli import read as read_request
from launch.sweep.command import act
from launch.sweep.folder import job_name
from launch.sweep.grid import parse
from launch.sweep.planned import plan_runs
from launch.sweep.price import prices, read
from tests.launch.sweep.sweeps import sweep, written
from trainer.errors import SettingsError

ON_EC2 = {"backend": "ec2", "options": {"ec2": {"instance_type": "g5.12xlarge", "max_hours": 1}},
          "fixed": {"model": "resnet18", "dataset": "cifar10", "epochs": 1}}  # fmt: skip

ON_SAGEMAKER = {**ON_EC2, "backend": "sagemaker", "options": {"sagemaker": {"instance_type": "ml.g5.2xlarge"}}}

QUOTE = Quote("g5.2xlarge", usd_per_hour=2.46, on_demand_usd_per_hour=2.46, most_usd=1029.48)


@pytest.mark.parametrize(
    ("quote", "expected"),
    [
        (QUOTE, (2.46, None, None, 1029.48)),
        (replace(QUOTE, market="spot", usd_per_hour=0.8), (0.8, None, None, 1029.48)),
        (replace(QUOTE, market="spot", usd_per_hour=None), (2.46, None, None, 1029.48)),
        (None, (None, None, None, None)),
    ],
)
def test_a_price_is_the_quote_of_the_launchers_plan(quote: Quote | None, expected: tuple[float | None, ...]) -> None:
    price = read({"quotes": [quote.as_json()] if quote else []})

    found = (price.usd_per_hour, price.expected_usd, price.expected_s, price.most_usd)
    assert found == expected


@pytest.fixture
def no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("no_region")
def test_the_plan_shows_each_runs_price_and_the_sum_and_starts_nothing(tmp_path: Path) -> None:
    planned = sweep(tmp_path, written(tmp_path, **ON_EC2, grid={"gpus": [4, 8]}), "--dry-run=json")

    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    four, eight = (run["price"] for run in plan["runs"])
    assert eight["most_usd"] == pytest.approx(2 * four["most_usd"], rel=0.01)
    assert four["expected_usd"] > 0
    assert [place.name for place in tmp_path.iterdir()] == ["sweep.yaml"]


@pytest.mark.usefixtures("no_region")
def test_more_than_max_usd_is_refused_and_so_is_what_nobody_confirmed(tmp_path: Path) -> None:
    path = written(tmp_path, **ON_EC2, grid={"gpus": [4]})

    too_much = sweep(tmp_path, path, "--max-usd", "1")
    without_account = sweep(tmp_path, path, "--yes")

    assert [too_much.returncode, without_account.returncode] == [2, 2]
    assert "over --max-usd 1" in too_much.stderr
    assert "no AWS region" in without_account.stderr
    assert not (tmp_path / "runs").exists()
    with pytest.raises(SettingsError, match="--max-usd 1 works for ec2 and sagemaker"):
        act(read_request([str(written(tmp_path, grid={"gpus": [1]})), "--max-usd", "1", "--usd-per-hour", "9"]), {})


def test_a_problem_in_a_runs_plan_is_an_error_that_names_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = json.dumps({"problems": [{"exit_code": 2, "sentence": "the cluster has no partition mian."}]})
    monkeypatch.setattr(shell, "run_captured", lambda command, env: Captured(2, plan, ""))
    (run,) = plan_runs(parse({"name": "tiny", "backend": "slurm", "grid": {"gpus": [2]}}, ""), {}, ())

    with pytest.raises(SettingsError, match="run gpus-2: the cluster has no partition mian"):
        prices([run], {}, rehearsed=False, usd_per_hour=None)


def test_each_node_has_the_price_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "run_captured", lambda command, env: Captured(0, "{}", ""))
    (run,) = plan_runs(parse({"name": "tiny", "backend": "slurm", "grid": {"nodes": [4]}}, ""), {}, ())

    assert prices([run], {}, rehearsed=False, usd_per_hour=2.0)["nodes-4"].usd_per_hour == 8.0


def test_a_run_that_its_launcher_refuses_ends_the_sweep_before_any_begins(tmp_path: Path) -> None:
    path = written(tmp_path, **{**ON_EC2, "options": {"ec2": {"instance_type": "c7i.large"}}}, grid={"epochs": [1, 2]})

    refused = sweep(tmp_path, path, "--rehearse")

    assert refused.returncode == 2
    assert "error: run epochs-1: --instance-type c7i.large has no GPU" in refused.stderr
    assert not (tmp_path / "runs").exists()


def test_launchers_know_their_jobs_that_a_killed_sweep_left_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the machines of these jobs are somebody else's, and leave no quota to resume the sweep with."""
    path, out, words = written(tmp_path, **ON_EC2, grid={"gpus": [4, 8]}), tmp_path / "out", list[list[str]]()
    request = read_request([str(path), "--out", str(out), "--dry-run=json"])
    begun, _ = plan_runs(request.file, {}, ())
    folder_of(out, "ec2")
    runs.write(Run("gpus-4", out / "gpus-4", begun.settings, (), "ec2", begun.shown_options, begun.point, "running"))
    monkeypatch.setattr(shell, "run_captured", lambda command, env: words.append(command) or Captured(0, "{}", ""))

    assert act(request, {}) == 0

    named = [command[command.index("--job-name") + 1] for command in words if "--job-name" in command]
    assert (len(words), named) == (2, [job_name("tiny", "gpus-4", "x")])


def folder_of(path: Path, backend: str) -> Path:
    """Of a sweep that began."""
    path.mkdir()
    planned = {"name": "tiny", "backend": backend, "rehearse": False, "id": "x"}
    (path / "sweep.json").write_text(json.dumps(planned))
    return path


def test_what_runs_cost_that_the_file_names_no_more_counts_against_max_usd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = written(tmp_path, **ON_EC2, grid={"gpus": [4]}), folder_of(tmp_path / "out", "ec2")
    runs.write(Run("gpus-8", out / "gpus-8", {}, backend="ec2", usd=5.0))
    planned = json.dumps({"quotes": [replace(QUOTE, most_usd=1.0).as_json()]})
    monkeypatch.setattr(shell, "run_captured", lambda command, env: Captured(0, planned, ""))

    def asked(limit: str) -> SweepRequest:
        return read_request([str(path), "--out", str(out), "--dry-run", "--max-usd", limit])

    with pytest.raises(SettingsError, match=r"may cost 6\.00 USD, 5\.00 USD of it spent, over --max-usd 5\.5"):
        act(asked("5.5"), {})
    assert act(asked("6"), {}) == 0


@pytest.mark.filterwarnings('ignore:Field name "register"')  # as launch.sagemaker.options has it
def test_what_a_job_cost_while_no_sweep_followed_it_counts_against_max_usd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep was killed; on SageMaker its job went on to its limit, and the next start was given as much again."""
    path, out = written(tmp_path, **ON_SAGEMAKER, grid={"seed": [0]}), tmp_path / "out"

    def asked(limit: str) -> SweepRequest:
        return read_request([str(path), "--out", str(out), "--dry-run", "--max-usd", limit])

    (begun,) = plan_runs(asked("1").file, {}, ())
    folder_of(out, "sagemaker")
    options = begun.shown_options
    runs.write(Run("seed-0", out / "seed-0", begun.settings, (), "sagemaker", options, begun.point, "running"))
    planned = json.dumps({"quotes": [replace(QUOTE, most_usd=6.0).as_json()], "spent_usd": 5.0})
    monkeypatch.setattr(shell, "run_captured", lambda command, env: Captured(0, planned, ""))

    with pytest.raises(SettingsError, match=r"may cost 11\.00 USD, 5\.00 USD of it spent, over --max-usd 10"):
        act(asked("10"), {})
    assert act(asked("11"), {}) == 0
