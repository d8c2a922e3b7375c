"""The same command after an edit of the script: another job, and why."""

from dataclasses import replace
from pathlib import Path

from launch.aws.upload import edited
from launch.core.job import Job
from launch.core.plan import Plan
from launch.core.training.script import Script
from launch.ec2 import checks, planner, requests
from launch.ec2.facts import Facts as Ec2Facts
from launch.ec2.planner import Launch
from launch.slurm.folder import JobFolder
from launch.slurm.listing import QueuedJob
from launch.slurm.options import SlurmOptions
from launch.slurm.planner import Facts, SlurmPlan, plan
from tests.launch.ec2 import known

THEN, NOW = "a" * 64, "b" * 64
WHY = "the files of its source were changed since (SHA-256 aaaaaaaaaaaa then, bbbbbbbbbbbb now)"


def sent(digest: str, *arguments: str) -> Script:
    return Script(("train.py", *arguments), digest=digest, archive=Path("/s.tar.gz"), work=Path("/w"))


def test_what_differs_in_its_source_alone_was_edited() -> None:
    def text(script: Script) -> str:
        return " ".join(script.words)

    assert edited(text(sent(THEN)), text(sent(NOW))) == WHY
    assert edited(text(sent(THEN)), text(sent(THEN))) == ""
    assert edited(text(sent(THEN)), text(sent(NOW, "--lr", "1"))) == ""
    assert edited("", text(sent(NOW))) == edited("-m trainer --epochs 1", "-m trainer --epochs 2") == ""


def test_a_job_on_ec2_whose_script_was_edited_is_refused_with_that_reason() -> None:
    def planned_on_ec2(digest: str, facts: Ec2Facts = known.FACTS) -> Plan[Launch]:
        job = Job(Script(("train.py",), digest=digest), known.job().where)
        return planner.plan(job, checks.resolve(job), known.NAME, facts)

    spec = requests.spec(planned_on_ec2(THEN).payload.cluster)

    assert str(planned_on_ec2(NOW, replace(known.FACTS, spec=spec)).problem) == (
        f"job {known.NAME} was started before: {WHY}; choose another --job-name."
    )


def test_a_job_in_slurms_queue_whose_script_was_edited_is_refused_with_that_reason() -> None:
    here = Path("/home/me")
    folder = JobFolder(here / "runs/x", exists=False, script=None, ids=(), starts=())

    def planned(digest: str, facts: Facts) -> SlurmPlan:
        job = Job(Script(("train.py",), digest=digest), SlurmOptions(job_name="x"))
        return plan(job, job.where, 1, "x", facts)

    script = planned(THEN, Facts(folder, here, "python")).payload.script
    queued = QueuedJob("7", "x", "PENDING", "", "", "", 1, "", "", "", folder.path / "job.sbatch")
    submitted = replace(folder, exists=True, script=script)

    assert str(planned(NOW, Facts(submitted, here, "python", queue=(queued,))).problem).startswith(
        f"job x is in the queue as 7, and {WHY}; choose another --job-name"
    )
    assert planned(THEN, Facts(submitted, here, "python", queue=(queued,))).problem is None
