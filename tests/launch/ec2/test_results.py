"""The results of a job that is followed to its end."""

import json
from types import SimpleNamespace

import pytest

from launch.ec2.verbs import Ec2Jobs
from tests.launch.ec2.known import NAME
from tests.launch.ec2.world import Stage, idle


def test_a_followed_job_leaves_its_results_here(stage: Stage) -> None:
    stage.events = iter([*idle(3), stage.end_nodes()])
    assert stage.launch() == 0
    fetched = stage.account.results / NAME
    assert (fetched / "model.pt").is_file()
    assert json.loads((fetched / "outcome.json").read_text())["usd"] > 0  # as the launcher knows it
    assert f"results: {fetched}" in stage.said


def test_without_fetch_they_stay_in_s3_and_the_command_is_shown(stage: Stage) -> None:
    stage.where = {"fetch": False}
    stage.events = iter([*idle(3), stage.end_nodes()])
    assert stage.launch() == 0
    assert list(stage.account.results.iterdir()) == []
    assert stage.said[-1] == f"  python -m launch.ec2 fetch {NAME} --region us-east-1"


@pytest.mark.parametrize("fetch", [True, False])
def test_attachs_own_fetch_flag_decides(stage: Stage, fetch: bool) -> None:
    stage.where = {"detach": True, "fetch": not fetch}
    assert stage.launch() == 0
    stage.events = iter([*idle(3), stage.end_nodes()])
    Ec2Jobs(stage.runtime()).attach(SimpleNamespace(job=NAME, bucket=None, region=(), fetch=fetch))
    assert (stage.account.results / NAME / "model.pt").is_file() is fetch


def test_results_that_cannot_be_fetched_are_a_warning_and_no_failed_job(stage: Stage) -> None:
    stage.account.results.rmdir()
    stage.account.results.write_text("a file in the way")
    stage.events = iter([*idle(3), stage.end_nodes()])
    assert stage.launch() == 0
    assert "warning: the results are not all here: cannot write to " in stage.said[-1]
    assert stage.said[-1].endswith(f"\n  python -m launch.ec2 fetch {NAME} --region us-east-1")
    stage.account.results.unlink()
    stage.account.results.mkdir()


def test_ctrl_c_while_they_are_fetched_does_not_stop_a_job_that_is_done(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("launch.aws.client.Aws.download", interrupted)
    stage.events = iter([*idle(3), stage.end_nodes()])
    assert stage.launch() == 0
    assert stage.account.s3(f"jobs/{NAME}/outcome.json")["state"] == "done"
