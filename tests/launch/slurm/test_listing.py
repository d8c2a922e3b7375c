"""What Slurm prints, and what we make of it.  The texts are Slurm 22.05's own."""

from pathlib import Path

import pytest

from launch.slurm.explain import explained, waits
from launch.slurm.listing import gpus_in, job_id, partitions, queued, start_in, state_in
from launch.slurm.options import SlurmOptions
from launch.slurm.times import limit_s, seconds_of
from trainer.errors import SettingsError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("30:00", 1800), ("1:30", 90), ("4:00:00", 14_400), ("1-12", 129_600), ("1-12:30", 131_400),
     ("7-00:00:00", 604_800), ("1-0:0:5", 86_405), ("infinite", None)],
)  # fmt: skip
def test_times_are_slurms(text: str, seconds: int | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["4h", "", "1:2:3:4", "0", "UNLIMITED", "-5"])
def test_other_limits_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--time"):
        limit_s(text)


def test_only_the_toolkits_jobs_are_seen_in_the_queue() -> None:
    ours = "12\tRUNNING\tNone\t0:01\t29:59\t2\tn[0-1]\tmain\t2026-11-22T03:43:17\t/home/me/a b/job.sbatch\t"

    jobs = queued(f"{ours}aws-ddp-toolkit:x\n{ours}somebody's\nof two lines\n{ours}(null)\n")

    assert [(job.id, job.name, job.nodes, job.folder) for job in jobs] == [("12", "x", 2, Path("/home/me/a b"))]


def test_partitions_with_their_nodes() -> None:
    main, fat = partitions(
        "main\tup\t30:00\t2\t4\t4000\tgpu:a100:2\t(null)\nfat\tdown\tinfinite\t1\t64+\t2000000\t(null)\tbig,new\n",
        "main",
    )

    assert (main.is_default, main.limit_s, main.nodes, main.gpus_of(None), main.features) == (True, 1800, 2, 2, ())
    assert (fat.is_default, fat.is_up, fat.limit_s, fat.cpus, fat.gpus_of(None)) == (False, False, None, 64, 0)
    assert fat.features == ("big", "new")


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", ()),
        ("gpu:4", (("", 4),)),
        ("gpu:a100:4(S:0-1),nvme:1", (("a100", 4),)),
        ("nvme:1,gpu:v100:2,gpu:t4:1", (("v100", 2), ("t4", 1))),
    ],
)
def test_gpus_in_gres(gres: str, gpus: tuple[tuple[str, int], ...]) -> None:
    assert gpus_in(gres) == gpus


def test_what_other_commands_say() -> None:
    assert job_id("12;cluster\n") == "12"
    start = "sbatch: Job 5 to start at 2026-11-22T04:13:16 using 2 processors on nodes n[0-1] in partition main"
    assert start_in(start) == "2026-11-22T04:13:16"
    assert start_in("") is None
    assert state_in("JobId=1 JobName=x\n   JobState=TIMEOUT Reason=TimeLimit\n ExitCode=0:15\n") == ("TIMEOUT", "0:15")


@pytest.mark.parametrize(
    ("said", "sentence", "code"),
    [
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", "does not answer", 6),
        ("Could not establish a configuration source", "run this on a login node", 2),
        ("Batch job submission failed: Invalid partition name specified", "no partition gpu", 2),
        ("Batch job submission failed: Invalid account or account/partition combination specified", "account me", 2),
        ("Batch job submission failed: Invalid qos specification", "QOS high", 2),
        ("Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time "
         "limits)", "more than your account or QOS may have", 2),
        ("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
         "--time 9:00:00"
         " is more than partition gpu allows", 2),
        ("Batch job submission failed: Something new", "Slurm refused: Batch job submission failed: Something new", 2),
    ],
)  # fmt: skip
def test_slurms_complaints_become_sentences(said: str, sentence: str, code: int) -> None:
    options = SlurmOptions(partition="gpu", account="me", qos="high", time="9:00:00")

    error = explained("sbatch", said, options)

    assert sentence in str(error)
    assert error.code == code


def test_why_a_job_waits() -> None:
    assert waits("Resources") == "waits for nodes that are busy (Resources)"
    assert waits("ReqNodeNotAvail, UnavailableNodes:n1").startswith("waits for nodes that are down")
    assert waits("Licenses") == "waits (Licenses)"
