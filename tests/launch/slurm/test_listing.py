"""What Slurm prints, and what we make of it.  The texts are Slurm 22.05's own."""

from pathlib import Path

import pytest

from launch.slurm.explain import explain, why_it_waits
from launch.slurm.listing import (
    limit_s,
    parse_default_partition,
    parse_gpus,
    parse_job_id,
    parse_partitions,
    parse_queue,
    parse_start,
    parse_state,
    seconds_of,
)
from launch.slurm.options import SlurmOptions
from trainer.errors import SettingsError


def test_times_are_slurms() -> None:
    cases = [
        ("30", 1800), ("30:00", 1800), ("1:30", 90), ("4:00:00", 14_400), ("1-12", 129_600), ("1-12:30", 131_400),
        ("7-00:00:00", 604_800), ("1-0:0:5", 86_405), ("infinite", None)
    ]  # fmt: skip
    for text, seconds in cases:
        assert seconds_of(text) == seconds


def test_other_limits_are_refused() -> None:
    for text in ["4h", "", "1:2:3:4", "0", "UNLIMITED", "-5"]:
        with pytest.raises(SettingsError, match="--time"):
            limit_s(text)


def test_only_the_toolkits_jobs_are_seen_in_the_queue() -> None:
    ours = "12\tRUNNING\tNone\t0:01\t29:59\t2\tn[0-1]\tmain\t2026-11-22T03:43:17\t/home/me/a b/job.sbatch\tjob\t"

    jobs = parse_queue(f"{ours}aws-ddp-toolkit:x\n{ours}somebody's\nof two lines\n{ours}(null)\n")

    assert [(job.id, job.name, job.nodes, job.folder) for job in jobs] == [("12", "x", 2, Path("/home/me/a b"))]


def test_where_a_site_rewrites_comments_the_folder_identifies_the_job() -> None:
    line = "12\tRUNNING\tNone\t0:01\t29:59\t2\tn[0-1]\tmain\tN/A\t/home/me/{}/job.sbatch\t{}\tsite: project 7\n"
    text = line.format("x", "x") + line.format("other", "y")

    jobs = parse_queue(text, lambda folder, name: (str(folder), name) == ("/home/me/x", "x"))

    assert [(job.name, job.folder) for job in jobs] == [("x", Path("/home/me/x"))]


def test_partitions_with_their_nodes() -> None:
    default = parse_default_partition("main*\tmain\nfat\tfat\n")
    main, fat = parse_partitions(
        "main\tup\t30:00\t2\t4\t4000\tgpu:a100:2\nfat\tdown\tinfinite\t1\t64+\t2000000\t(null)\n", default
    )

    assert (main.is_default, main.is_up, main.limit_s, main.nodes, main.gpus_of(None)) == (True, True, 1800, 2, 2)
    assert (fat.is_default, fat.is_up, fat.limit_s, fat.cpus, fat.gpus_of(None)) == (False, False, None, 64, 0)


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", ()),
        ("gpu:4", (("", 4),)),
        ("gpu:a100:4(S:0-1),nvme:1", (("a100", 4),)),
        ("nvme:1,gpu:v100:2(S:0),gpu:t4:1", (("v100", 2), ("t4", 1))),
    ],
)
def test_gpus_in_gres(gres: str, gpus: tuple[tuple[str, int], ...]) -> None:
    assert parse_gpus(gres) == gpus


def test_the_output_of_other_commands() -> None:
    assert parse_job_id("12;cluster\n") == "12"
    start = "sbatch: Job 5 to start at 2026-11-22T04:13:16 using 2 processors on nodes n[0-1] in partition main"
    assert parse_start(start) == "2026-11-22T04:13:16"
    assert parse_start("") is None
    assert parse_state("JobId=1 JobName=x\n   JobState=TIMEOUT Reason=TimeLimit\n ExitCode=0:15\n") == "TIMEOUT"
    assert parse_state("") == ""


def test_slurms_complaints_get_a_remedy() -> None:
    cases = [
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", "try again", 6),
        ("Could not establish a configuration source", "set SLURM_CONF", 2),
        ("Batch job submission failed: Invalid partition name specified", "`sinfo -s`", 2),
        ("Batch job submission failed: Invalid account or account/partition combination specified", "`sacctmgr", 2),
        ("Batch job submission failed: Invalid qos specification", "--qos", 2),
        ("Something new", "Something new", 2),
        ("Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time "
         "limits)", "lower --nodes", 2),
        ("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", "less", 2),
    ]  # fmt: skip
    for message, remedy, code in cases:
        options = SlurmOptions(partition="gpu", account="me", qos="high", time="9:00:00")

        error = explain("sbatch", message, options)

        assert remedy in str(error)
        assert error.code == code


def test_why_a_job_waits() -> None:
    assert why_it_waits("Resources", "12") == "waits for busy nodes (Resources)"
    assert why_it_waits("ReqNodeNotAvail, UnavailableNodes:n1", "12").startswith("waits for nodes that are down")
    assert why_it_waits("JobHeldUser", "12") == "is held; `scontrol release 12` releases it (JobHeldUser)"
    assert why_it_waits("Licenses", "12") == "waits (Licenses)"
