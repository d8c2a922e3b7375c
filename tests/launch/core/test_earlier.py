"""Time and restarts of a script's next job, from an earlier one."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.aws.lookup import earlier_jobs
from launch.core.earlier import Earlier, Setting, is_same_script, restarts, setting_in, setting_of, took, with_time
from launch.core.job import Job
from launch.core.plan import Plan
from launch.core.quote import Quote, price_lines
from launch.core.training.options import ScriptOptions, find_script
from launch.core.training.script import Script
from launch.ec2 import checks as ec2_checks
from launch.ec2 import planner as ec2_planner
from launch.ec2.facts import Facts as Ec2Facts
from launch.ec2.options import Ec2Options
from launch.sagemaker import checks as sagemaker_checks
from launch.sagemaker import planner as sagemaker_planner
from launch.sagemaker.facts import Facts as SageMakerFacts
from launch.sagemaker.options import SageMakerOptions
from launch.slurm import checks as slurm_checks
from launch.slurm import planner as slurm_planner
from launch.slurm.folder import JobFolder, details
from launch.slurm.folder import earlier_jobs as on_this_cluster
from launch.slurm.options import SlurmOptions
from tests.launch.ec2 import known as ec2
from tests.launch.ec2.account import Account
from tests.launch.sagemaker import known as sagemaker
from trainer.outcome import Outcome, State
from trainer.script.pace import Pace

SCRIPT = Script(("train.py", "--lr", "0.1"), digest=64 * "a", run_dir=Path("run")).sent(
    Path("source.tgz"), Path("source")
)
WHERE = {"nodes": 2, "instance_type": ["g5.2xlarge"], "nproc_per_node": None, "data_s3": None}
NOW = setting_of(SCRIPT, "2 x g5.2xlarge", WHERE)
QUOTE = Quote("g5.2xlarge", 2, usd_per_hour=2.0, on_demand_usd_per_hour=2.0, most_s=2 * 3600)


def job(name: str = "train-20261121-101500", setting: Setting = NOW, seconds: float = 4320.0, **more: Any) -> Earlier:
    return Earlier(name, setting, seconds, **more)


def expected(*earlier: Earlier, quote: Quote = QUOTE, script: Script = SCRIPT) -> tuple[float | None, str]:
    """The expected USD, and the plan's sentence."""
    found = with_time(quote, script, NOW, earlier)
    return found.expected_usd, dict(price_lines([found]))["  expected"]


def test_the_same_source_and_arguments_on_the_same_machines_give_the_time_and_the_price() -> None:
    usd, sentence = expected(job())

    assert usd == pytest.approx(2.4)
    assert sentence.startswith("2.40 USD in 1.2 h: as train-20261121-101500 took, ")
    assert with_time(QUOTE, SCRIPT, NOW, [job()]).as_json()["expected_from"].startswith("as train-20261121-101500 took")


@pytest.mark.parametrize(
    ("then", "difference"),
    [
        (replace(NOW, digest=64 * "b"), "other files in its source"),
        (replace(NOW, record={**NOW.record, "args": ["--lr", "1"]}), "other arguments (--lr 1)"),
        (replace(NOW, record={**NOW.record, "args": []}), "other arguments (none)"),
        (replace(NOW, machines="1 x g5.12xlarge"), "other machines (1 x g5.12xlarge)"),
        (replace(NOW, machines=""), "other machines (of one of several types)"),
        (replace(NOW, options={**NOW.options, "data_s3": "s3://other/data"}), "other settings"),
        (replace(NOW, digest=64 * "b", machines="1 x p4d"), "other files in its source and other machines (1 x p4d)"),
    ],
)
@pytest.mark.parametrize("done", [1.0, 0.4])
def test_an_earlier_job_with_other_settings_is_mentioned_but_gives_no_price(
    done: float, then: Setting, difference: str
) -> None:
    usd, sentence = expected(job(setting=then, done=done))

    assert usd is None
    assert f"with {difference}; give an estimate with --expected-hours" in sentence


def test_of_several_jobs_the_most_alike_counts_then_one_that_is_done_then_the_newest() -> None:
    other = replace(NOW, machines="1 x g5.2xlarge")

    assert "as alike took, " in expected(job("newest", other), job("alike"), job("old", seconds=1.0))[1]
    assert "as whole took, " in expected(cut_short(), job("whole"))[1]


# ---- one that was cut short, with its progress in its metrics

ENDED = "2026-11-21T13:15:00Z"
AT = datetime(2026, 11, 21, 13, 14, tzinfo=UTC).timestamp()
PACE = Pace(done=0.4, since=0.1, seconds=9000.0, at=AT)  # a minute before its end


def cut_short(state: State = "interrupted", seconds: float | None = 10_860.0, pace: Pace | None = PACE) -> Earlier:
    took_s, done = took(Outcome(state, 75, seconds=seconds, ended=ENDED), pace)
    return job(seconds=took_s, done=done)


@pytest.mark.parametrize("state", ["interrupted", "stopped", "failed"])
def test_of_a_job_that_was_cut_short_the_rest_is_added_at_its_pace(state: State) -> None:
    """Three hours until it reported 40%, of which 30% in two and a half: the rest takes five more."""
    assert cut_short(state).seconds == pytest.approx(8 * 3600)

    usd, sentence = expected(cut_short(state))

    assert usd == pytest.approx(16)
    assert "by its pace until it ended with 40% done" in sentence


def test_a_job_with_too_little_progress_gives_no_time() -> None:
    ended = Outcome("failed", 1, seconds=60.0)
    for outcome, pace in (
        (ended, None),
        (Outcome("failed", 1), PACE),
        (ended, replace(PACE, done=0.105)),
        (None, PACE),
    ):
        assert took(outcome, pace) == (0, 0)
    assert took(Outcome("done", 0, seconds=60.0), PACE) == (60, 1)
    assert took(Outcome("failed", 1, seconds=10_800.0, ended="soon"), PACE)[0] == pytest.approx(8 * 3600)


def test_the_user_knows_better_and_without_an_earlier_job_nobody_does() -> None:
    assert expected(job(), script=replace(SCRIPT, expected_s=1800.0)) == (
        1.0,
        "1.00 USD in 30 min: by --expected-hours",
    )
    usd, sentence = expected()
    assert usd is None
    assert "--expected-hours" in sentence


def test_a_time_limit_below_the_earlier_jobs_time_gives_a_note() -> None:
    for quote, earlier in ((replace(QUOTE, most_s=3600), job()), (QUOTE, cut_short())):
        (note,) = with_time(quote, SCRIPT, NOW, [earlier]).notes
        assert note.endswith("longer than this job's time limit; raise it")
    assert with_time(QUOTE, SCRIPT, NOW, [job()]).notes == ()


def test_a_time_with_a_wait_in_it_bounds_the_price_and_says_nothing_of_the_limit() -> None:
    found = with_time(replace(QUOTE, most_s=3600), SCRIPT, NOW, [job()], has_wait=True)

    assert dict(price_lines([found]))["  expected"].startswith("at most 2.40 USD in 1.2 h: ")
    assert found.notes == ()


def test_how_a_script_restarts_follows_from_what_the_newest_job_kept() -> None:
    by_kit = job(kept=("checkpoints/step-0000000100-0123456789abcdef.pt",))

    assert restarts([])[0] == "anew"
    assert restarts([by_kit, job()])[0] == "checkpoint"
    assert restarts([job(kept=("a.ckpt", "b", "c", "d"))])[0] == "kept"
    assert restarts([job()])[0] == "anew"


# ---- on each backend a job is recognized by its own job.json


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    (tmp_path / "train.py").write_text("print('hello')\n")
    monkeypatch.chdir(tmp_path)
    return find_script(
        ScriptOptions.model_validate({"script": "train.py"}), ["--lr", "0.1"], {}, tmp_path, is_sent=True
    )


def written(plan: Plan[Any]) -> Earlier:
    """The earlier job that this plan becomes."""
    (body,) = (one.params["Body"] for one in plan.requests if one.params.get("Key", "").endswith("/job.json"))
    found = setting_in(json.loads(body))
    assert found is not None
    return job(setting=found)


def test_on_ec2_a_job_of_the_same_words_is_the_same(script: Script) -> None:
    def plan(facts: Ec2Facts, **where: object) -> Plan[Any]:
        asked = Job(script, Ec2Options.model_validate({"nodes": 2, "job_name": "j", **where}))
        return ec2_planner.plan(asked, ec2_checks.resolve(asked), "j", facts)

    facts = replace(ec2.FACTS, earlier=(written(plan(ec2.FACTS)),))

    assert plan(facts).quotes[0].expected_s == 4320
    assert {fact.name: fact.value for fact in plan(facts).facts}["restarts"] == "anew"
    assert [quote.expected_s for quote in plan(facts, instance_type="g6.2xlarge,g5.2xlarge").quotes] == [None, 4320]
    assert plan(facts, nodes=1).quotes[0].expected_s is None
    assert plan(facts, data_s3="s3://aws-ddp-toolkit-data/a").quotes[0].expected_s is None


def test_on_sagemaker_a_job_of_the_same_words_is_the_same(script: Script) -> None:
    def plan(facts: SageMakerFacts, **where: object) -> Plan[Any]:
        asked = Job(script, SageMakerOptions.model_validate({"nodes": 2, "job_name": "j", **where}))
        return sagemaker_planner.plan(asked, sagemaker_checks.resolve(asked), "j", facts, "boto3")

    facts = replace(sagemaker.FACTS, earlier=(written(plan(sagemaker.FACTS)),))

    assert plan(facts).quotes[0].expected_s == 4320
    assert plan(facts).quotes[0].expected_is_bound
    for other in ({"nodes": 1}, {"environment": "EPOCHS=9"}, {"encrypt_traffic": True}):
        assert plan(facts, **other).quotes[0].expected_s is None


def test_on_slurm_a_job_of_the_same_words_is_the_same(script: Script) -> None:
    here = Path("/home/me")
    folder = JobFolder(here / "runs/j", exists=False, script=None, ids=(), starts=())

    def plan(*earlier: Earlier, **where: object) -> Plan[Any]:
        asked = Job(script, SlurmOptions.model_validate({"nodes": 2, "job_name": "j", **where}))
        options, processes = slurm_checks.resolve(asked)
        facts = slurm_planner.Facts(folder, here, "py", earlier=earlier)
        return slurm_planner.plan(asked, options, processes, "j", facts)

    setting = setting_in(json.loads(json.dumps(details(plan().payload.job))))
    assert setting is not None
    before = job(setting=setting)

    assert plan(before).quotes[0].expected_s == 4320
    for other in ({"nodes": 1}, {"cpus_per_task": 2}, {"setup": "export EPOCHS=9"}):
        assert plan(before, **other).quotes[0].expected_s is None


# ---- where they are found


def spec(**where: object) -> dict[str, Any]:
    return {"train": list(SCRIPT.words), "where": WHERE | where}


def test_a_jobs_setting_is_read_from_its_job_json_as_it_was_planned() -> None:
    assert setting_in(spec()) == NOW
    assert setting_in(spec(instance_type="ml.g5.2xlarge")) == setting_of(SCRIPT, "2 x ml.g5.2xlarge", WHERE)
    assert setting_in(spec(instance_type=["a", "b"])) == setting_of(SCRIPT, "", WHERE)


def test_a_script_of_the_same_name_in_another_folder_of_the_source_is_another_one() -> None:
    elsewhere = setting_in(spec() | {"train": list(replace(SCRIPT, cwd="other").words)})

    assert elsewhere is not None
    assert not is_same_script(elsewhere, SCRIPT)
    assert is_same_script(elsewhere, replace(SCRIPT, cwd="other"))
    assert "with other settings" in expected(job(setting=elsewhere))[1]


def test_a_job_json_without_a_script_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        {},
        {"train": 1, "where": {}},
        spec() | {"train": ["-m", "trainer"]},
        spec(nodes=2) | {"where": []},
        spec(nodes=["x"]),
        spec(instance_type=[["x"]]),
    ]
    for damaged in cases:
        assert setting_in(damaged) is None
        assert capsys.readouterr().out == ""


def test_jobs_that_were_done_in_one_go_are_found_in_the_bucket_the_newest_first(account: Account, aws: Aws) -> None:
    def put(day: int, file: str, content: object) -> None:
        account.put_json(f"jobs/{name(day)}/{file}", content)

    def name(day: int) -> str:
        return f"train-202611{day}-101500-k3v7q"

    def done(day: int, **more: object) -> None:
        put(day, "outcome.json", {"state": "done", "exit_code": 0, "seconds": 60.0})
        put(day, "job.json", spec() | more)

    for day in (11, 13, 15, 16, 30):
        done(day)
    put(11, "run/last.ckpt", {})
    put(11, "run/metrics.jsonl", {})
    put(13, "cluster.json", {"generation": 1})
    put(13, "exits/i-1.json", {"restarts": 0})
    done(14, starts=2)
    put(15, "cluster.json", {"generation": 2})
    put(16, "exits/i-1.json", {"restarts": 1})
    done(17)
    put(17, "outcome.json", {"state": "stopped", "exit_code": 130, "seconds": 60.0})
    put(17, "run/pace.json", {"done": 0.5, "since": 0.25, "seconds": 15.0, "at": 1})
    done(18)
    put(18, "outcome.json", {"state": "failed", "exit_code": 1, "seconds": 60.0})
    done(19, train=["-m", "trainer"])
    put(20, "outcome.json", {"state": "done", "exit_code": 0, "seconds": 60.0})
    put(20, "job.json", ["damaged"])
    other = Script(("gpt/train.py", "--lr", "0.1"), digest=64 * "a", run_dir=Path("run"))
    done(21, train=list(other.sent(Path("source.tgz"), Path("source")).words))

    found = earlier_jobs(aws, account.bucket, SCRIPT, name(30))

    cut = Earlier(name(17), NOW, 90.0, done=0.5)
    assert found == (cut, Earlier(name(13), NOW, 60.0), Earlier(name(11), NOW, 60.0, ("last.ckpt",)))
    assert earlier_jobs(aws, "no-such-bucket-anywhere", SCRIPT, name(30)) == ()


def test_on_a_cluster_they_are_found_below_runs(tmp_path: Path) -> None:
    def done(day: int, *then: str) -> Path:
        folder = tmp_path / f"runs/train-202611{day}-101500-k3v7q"
        folder.mkdir(parents=True)
        (folder / "job.json").write_text(json.dumps({"job": folder.name, **spec()}))
        starts = [{"job": "1", "code": 0, "then": one} for one in then or ("done",)]
        (folder / "starts.jsonl").write_text("".join(json.dumps(start) + "\n" for start in starts))
        Outcome("done", 0, seconds=60.0).write(folder)
        return folder

    kept, cut, again, own = done(21), done(22, "failed"), done(23, "requeue", "done"), done(24)
    for place in ("checkpoints/last.ckpt", ".in-use", "source/packages/one.py"):
        (kept / place).parent.mkdir(parents=True, exist_ok=True)
        (kept / place).touch()
    Outcome("failed", 1, seconds=60.0).write(cut)
    (cut / "pace.json").write_text('{"done": 0.5, "since": 0.25, "seconds": 15.0, "at": 1}')
    Outcome("stopped", 130, seconds=1.0).write(done(20))

    assert on_this_cluster(SCRIPT, own.name, tmp_path) == (
        Earlier(cut.name, NOW, 90.0, done=0.5), Earlier(kept.name, NOW, 60.0, ("checkpoints/last.ckpt",)),
    )  # fmt: skip
    assert again.exists()
