"""What a user reads about jobs: what runs, what it costs, how long it may, how it went, what to type next."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from moto.s3.models import s3_backends

from launch.aws.batch import Queued
from launch.aws.instances.inventory import Fleet, Node, Resource
from launch.aws.names import Folder
from launch.core.jobs import Overview, Summary
from launch.ec2.ended import Ended, with_ended
from launch.ec2.queue_verbs import with_queue, with_waiting
from launch.ec2.records import completed
from launch.ec2.status import View, all_as_text, job_state, outcome_of, phases
from launch.ec2.verbs import Ec2Jobs
from tests.launch.ec2.known import NAME, NOW, node
from tests.launch.ec2.terminal import Terminal
from tests.launch.faults import Faults, refused
from trainer.contract import RESUME
from trainer.outcome import Outcome
from trainer.script.pace import Pace

HOUR = timedelta(hours=1)
EPOCH = {
    "epoch": 3, "train_loss": 1.23456, "train_top1": 0.512, "eval_loss": 1.0, "eval_top1": 0.5, "images_per_s": 2450.4,
    "epoch_s": 523.04,
}  # fmt: skip
SPEC = {
    "where": {"nodes": 2, "instance_type": ["g5.2xlarge"], "root_gb": 150},
    "train": ["--model", "resnet18", "--epochs", "16"],
    "started": int(NOW.timestamp()),
    "deadline": int((NOW + 12 * HOUR).timestamp()),
}
MEMBERS = {"nodes": [{"rank": 0, "instance": "i-0"}, {"rank": 1, "instance": "i-1"}]}
SAVED = Outcome("failed", 5, "the loss is not finite", 5400.0, 12.34, NAME, "2026-11-21T15:30:00Z")


def as_text(view: View) -> str:
    return str(job_state(view))


def disk(number: int) -> Resource:
    return Resource("volume", f"vol-{number}", NAME, "in-use", NOW, 150, "gp3", iops=3000, mib_per_s=125)


def exit_record(number: int, code: int, step: str = "train", reason: str = "done", **more: Any) -> dict[str, Any]:
    return {"instance": f"i-{number}", "rank": number, "generation": 1, "code": code, "step": step, "reason": reason,
            "restarts": 0, "at": int((NOW + HOUR).timestamp()), **more}  # fmt: skip


def fleet_of(*nodes: Node) -> Fleet:
    living = [number for number, node in enumerate(nodes) if node.lives]
    return Fleet(nodes, tuple(map(disk, living)), {NAME: NOW}, {NAME: NOW + 12 * HOUR}, {NAME: "some-bucket"})


def view_of(*nodes: Node, records: tuple[dict[str, Any], ...] = (), **more: Any) -> View:
    """Two hours after the start."""
    exits = {record["instance"]: record for record in records}
    fields: dict[str, Any] = {"spec": SPEC, "members": MEMBERS, "exits": exits, **more}
    return View("us-east-1", Folder("some-bucket", NAME), fleet_of(*nodes), NOW + 2 * HOUR, **fields)


# ---- one job


def test_a_running_job_in_full(golden: Callable[[str, str], None]) -> None:
    """Nodes by rank, and not by the order of launch."""
    swapped = {"nodes": [{"rank": 1, "instance": "i-0"}, {"rank": 0, "instance": "i-1"}]}
    golden("status-running.txt", as_text(view_of(node(0), node(1), members=swapped, epoch=EPOCH)) + "\n")


def test_a_job_that_is_over_in_full(golden: Callable[[str, str], None]) -> None:
    records = (exit_record(0, 0), exit_record(1, 0, at=int((NOW + HOUR).timestamp()) + 5))
    spec = {**SPEC, "ended": int((NOW + 1.5 * HOUR).timestamp())}
    over = replace(view_of(records=records, spec=spec, epoch={**EPOCH, "epoch": 16}), fleet=Fleet())
    golden("status-over.txt", as_text(over) + "\n")


@pytest.mark.parametrize(
    ("nodes", "more", "words"),
    [
        ((node(0),), {"members": None}, "-     i-0   running"),  # no rank is guessed
        ((node(0),), {}, "1 of 2 nodes, started 2 h 0 min ago"),
        ((node(0),), {}, "the first epoch is not done yet"),
        ((node(0),), {"epoch": EPOCH, "spec": {**SPEC, "train": ["-m", "trainer"]}}, "epoch 3/5, "),  # the default
        ((replace(node(0), spot=True),), {}, "at most 2.46 USD so far"),
        ((replace(node(2, generation=2), started=NOW),), {}, "at least 2.46 USD so far"),  # EC2 has forgotten others
        ((node(0),), {"saved": SAVED}, "about 2.46 USD so far"),  # whatever an earlier start cost
    ],
)
def test_what_is_known_of_a_running_job_is_shown(nodes: tuple[Node, ...], more: dict[str, Any], words: str) -> None:
    assert words in as_text(view_of(*nodes, **more))


def test_a_job_past_its_limit_says_so() -> None:
    assert "passed 1 h 0 min ago, 2026-11-22 02:00 UTC" in as_text(replace(view_of(node(0)), now=NOW + 13 * HOUR))


def test_a_node_that_ended_without_a_record_shows_ec2s_reason() -> None:
    lost = replace(node(1, "terminated"), reason="Server.SpotInstanceTermination: Spot instance termination",
                   ended_at=NOW + HOUR)  # fmt: skip
    assert f"1 h 0 min ago  {lost.reason}\n" in as_text(view_of(node(0), lost))


def test_records_of_an_earlier_start_under_the_same_name_are_left_out() -> None:
    old = exit_record(0, 5, reason="the loss is not finite", at=int((NOW - HOUR).timestamp()))
    assert "the loss" not in as_text(view_of(node(2), records=(old,)))


def test_what_s3_refuses_does_not_hide_what_ec2_knows() -> None:
    text = as_text(view_of(node(0), spec=None, members=None, unread="these credentials may not s3:GetObject."))
    assert text.startswith("job imagenet-1 in us-east-1: 1 of 1 nodes, ")
    assert "cannot be read: these credentials may not s3:GetObject." in text


def test_what_is_left_of_a_job_without_nodes_is_named_with_the_way_to_remove_it() -> None:
    left = Fleet(
        (), (Resource("security-group", "sg-1", NAME), Resource("schedule", "aws-ddp-toolkit-imagenet-1", NAME))
    )
    text = as_text(replace(view_of(), fleet=left))
    assert "\n  left        security-group sg-1, schedule aws-ddp-toolkit-imagenet-1\n" in text
    assert text.endswith("\n  python -m launch.ec2 stop imagenet-1 --region us-east-1")


# ---- how it ended


@pytest.mark.parametrize(
    ("records", "state", "code"),
    [
        ((exit_record(0, 0), exit_record(1, 143, "signal")), "done", 0),
        ((exit_record(0, 0), exit_record(9, 6, reason="rank 0 was lost")), "done", 0),  # of a node that was replaced
        ((exit_record(0, 143, "signal"), exit_record(1, 143, "signal")), "stopped", 130),
        ((exit_record(0, 6, reason="rank 1 was lost"), exit_record(1, 5)), "failed", 5),  # the cause, not its effect
        ((exit_record(0, 20, "metadata", "no answer", rank=None, generation=None),), "failed", 20),
    ],
)
def test_how_a_job_ended_is_known_from_its_nodes_records(
    records: tuple[dict[str, Any], ...], state: str, code: int
) -> None:
    outcome = outcome_of(view_of(records=records))
    assert (outcome.state, outcome.exit_code) == (state, code)


def test_a_remedy_of_the_trainers_names_the_job_and_not_a_folder_of_the_container() -> None:
    reason = f"stopped on request.  To resume, {RESUME.format(folder='/job/run')}."
    outcome = outcome_of(view_of(records=(exit_record(0, 75, reason=reason), exit_record(1, 75, reason=reason))))
    ended = completed(outcome, "digits-1", None, NOW, None)
    assert "To resume, give the same command with --job-name digits-1" in ended.reason
    assert "--run-dir" not in ended.reason


def test_without_any_record_nothing_is_claimed() -> None:
    assert "no exit record" in outcome_of(view_of()).reason


# ---- outcome.json


def test_a_saved_outcome_says_how_a_job_ended_and_what_it_cost() -> None:
    over = replace(view_of(saved=SAVED, records=(exit_record(0, 0),)), fleet=Fleet())
    assert outcome_of(over) == SAVED
    text = as_text(over)
    assert text.splitlines()[0].endswith(": the loss is not finite")
    assert "about 12.34 USD in 1 h 30 min\n" in text
    spot = {**SPEC, "where": {**SPEC["where"], "spot": True}}
    assert "at most 12.34 USD in 1 h 30 min" in as_text(replace(over, spec=spot))


def test_the_outcome_of_an_earlier_start_is_left_out() -> None:
    old = replace(SAVED, ended="2026-11-21T13:59:59Z")
    assert view_of(saved=old).outcome is None
    assert "not finite" not in as_text(view_of(saved=old))


# ---- all jobs


def test_jobs_are_listed_with_what_they_cost_in_all(golden: Callable[[str, str], None]) -> None:
    other = replace(node(5), job="other", type="g5.12xlarge", zone="us-east-1a", launched_at=NOW + HOUR)
    fleet = replace(fleet_of(node(0), node(1, "terminated")), nodes=(node(0), other))
    views = [View("us-east-1", Folder("b", job), fleet.of(job), NOW + 2 * HOUR, {"where": {"nodes": nodes}})
             for job, nodes in ((NAME, 2), ("other", 1))]  # fmt: skip
    golden("status-all.txt", all_as_text(fleet, views, "us-east-1") + "\n")


def test_a_type_without_a_price_is_reported_as_left_out() -> None:
    fleet = fleet_of(replace(node(0), type="x99.huge"))
    text = all_as_text(fleet, [View("us-east-1", Folder("b", NAME), fleet, NOW)], "us-east-1")
    assert text.endswith(" x99.huge")
    assert "python -m launch.ec2" in all_as_text(Fleet(), [], "us-east-1")  # the first command


# ---- python -m launch.ec2 status


def test_status_finds_a_job_by_its_tags_and_reads_its_folder(terminal: Terminal) -> None:
    first, second = terminal.start("demo", nodes=2, hours_ago=1)
    terminal.account.put_json("jobs/demo/run/metrics.jsonl", EPOCH)
    assert terminal.type("status", "demo") == 0
    assert terminal.text.startswith("job demo in us-east-1: 2 of 2 nodes, started 1 h 0 min ago\n")
    rows = [line.split()[:3] for line in terminal.text.splitlines()[3:5]]
    assert [row[:2] for row in rows] == [["0", first], ["1", second]]
    assert "epoch 3/8, loss 1.2346" in terminal.text


def test_status_of_a_script_shows_its_progress_and_the_time_left(terminal: Terminal) -> None:
    terminal.start("demo", nodes=2, hours_ago=1)
    terminal.account.put_json("jobs/demo/run/metrics.jsonl", {"step": 40, "steps": 100, "loss": 0.5})
    far_ahead = 4e9  # by a node's clock: nothing of the rest has passed
    terminal.account.put_json("jobs/demo/run/pace.json", asdict(Pace(0.4, 0.0, 2400.0, far_ahead)))

    assert terminal.type("status", "demo") == 0

    assert "\n  training    step 40, steps 100, loss 0.5\n" in terminal.text
    assert "\n  progress    40% done, about 1.0 h left at its pace\n" in terminal.text


@pytest.mark.parametrize(("outcome", "words"), [(None, "is done"), (asdict(SAVED), "12.34 USD")], ids=str)
def test_status_of_a_job_whose_nodes_are_long_gone_comes_from_its_folder(
    outcome: object, words: str, terminal: Terminal
) -> None:
    """A damaged outcome is as none."""
    terminal.account.put_json("jobs/demo/job.json", SPEC | {"job": "demo"})
    terminal.account.put_json("jobs/demo/exits/i-0.json", exit_record(0, 0))
    if outcome is not None:
        terminal.account.put_json("jobs/demo/outcome.json", outcome)
    assert terminal.type("status", "demo") == 0
    assert words in terminal.text


def test_a_job_in_another_bucket_is_found_with_its_name(terminal: Terminal) -> None:
    terminal.account.make_bucket("elsewhere")
    terminal.account.put_json("jobs/demo/job.json", SPEC | {"job": "demo"}, "elsewhere")
    assert terminal.type("status", "demo") == 2
    assert terminal.type("status", "demo", "--bucket", "elsewhere") == 0
    assert "s3://elsewhere/jobs/demo" in terminal.text
    terminal.start("running", bucket="elsewhere")
    assert terminal.type("status", "running") == 0  # its tags know
    assert "s3://elsewhere/jobs/running" in terminal.text


def test_status_alone_lists_the_jobs_of_the_region(terminal: Terminal) -> None:
    terminal.start("one", nodes=2)
    lost, _ = terminal.start("two", nodes=2)
    terminal.account.kill(lost)
    terminal.account.forget(lost)
    terminal.start("far", region="eu-west-1")
    assert terminal.type("status") == 0
    assert [line.split()[:3] for line in terminal.text.splitlines()[1:3]] == [
        ["one", "2/2", "g5.2xlarge"],
        ["two", "1/2", "g5.2xlarge"],
    ]
    assert terminal.type("status", "--region", "eu-west-1") == 0
    assert terminal.text.splitlines()[1].split()[0] == "far"


def test_an_unknown_job_is_refused_with_the_nearest_name(terminal: Terminal) -> None:
    """Of one that runs, or is over."""
    terminal.start("demo-1")
    terminal.account.put_json("jobs/cifar-vgg/job.json", SPEC)
    for typed, near in (("dmo-1", "demo-1"), ("cifar-vg", "cifar-vgg")):
        error = terminal.refused("status", "job", typed)
        assert error.code == 2
        assert f"did you mean '{near}'? Running: demo-1." in str(error)


def test_status_needs_no_bucket(terminal: Terminal, faults: Faults) -> None:
    terminal.start("demo", write=False)
    faults.on("GetObject", refused("AccessDenied", 403), nth=None)
    assert terminal.type("status", "demo") == 0
    assert terminal.text.startswith("job demo in us-east-1: 1 of 1 nodes, ")
    assert "may not s3:GetObject" in terminal.text


def test_jobs_that_wait_in_a_queue_are_listed_where_none_runs() -> None:
    found = with_waiting(
        Overview("no jobs", []), [Queued("1", "demo", "mine", "RUNNABLE", "", place=1, in_line=2)], "r", Fleet()
    )

    assert [job.status for job in found.jobs] == ["waiting"]
    assert "no jobs" not in str(found)
    assert "1 of 2" in str(found)


# ---- jobs that have ended


def end(terminal: Terminal, job: str, days_ago: float, **outcome: Any) -> None:
    """A job of which only its folder is left."""
    ended = datetime.now(UTC) - timedelta(days=days_ago)
    spec = SPEC | {"job": job, "started": int((ended - HOUR).timestamp()), "ended": int(ended.timestamp())}
    terminal.account.put_json(f"jobs/{job}/job.json", spec)
    saved = Outcome("done", 0, "", 3600.0, 2.46, job, ended.strftime("%Y-%m-%dT%H:%M:%SZ"))
    terminal.account.put_json(f"jobs/{job}/outcome.json", asdict(replace(saved, **outcome)))


def listed(terminal: Terminal, *words: str) -> dict[str, str]:
    """Each job of `status` with its status, in order."""
    assert terminal.type("status", "--json", *words) == 0
    return {job["job"]: job["status"] for job in json.loads(terminal.text)["jobs"]}


def test_jobs_that_ended_lately_are_listed_if_asked_for_with_cost_and_reason(terminal: Terminal) -> None:
    end(terminal, "yesterday", 1)
    end(terminal, "just-now", 0, state="failed", exit_code=5, reason="the loss is not finite")
    end(terminal, "long-ago", 8)
    terminal.account.put_json("jobs/other/job.json", {"job": "other", "backend": "sagemaker"})
    terminal.account.put_json("jobs/empty/run/metrics.jsonl", {})
    terminal.start("runs")

    assert listed(terminal) == {"runs": "running"}
    assert listed(terminal, "--ended") == {"runs": "running", "just-now": "failed", "yesterday": "done"}
    assert terminal.type("status", "--ended") == 0
    assert re.search(r"\n +just-now +failed +\S+ \S+ UTC +2\.46 +the loss is not finite\n", terminal.text)


def test_a_folder_is_read_once_and_again_after_its_job_was_started_again(terminal: Terminal) -> None:
    aws, known, now = terminal.account.aws(), Ended(), datetime.now(UTC)
    end(terminal, "demo", 1)
    end(terminal, "unfinished", 1, ended="2026-01-01T00:00:00Z")  # its outcome is an earlier start's

    def jobs(*active: str) -> list[tuple[str, str]]:
        terminal.account.requests.clear()
        running = Overview("", [Summary(job, "running") for job in active])
        return [(job.job, job.status) for job in with_ended(aws, running, known, now).jobs]

    assert jobs() == [("demo", "done")]
    assert jobs() == [("demo", "done")]
    assert [one["Key"] for one in terminal.account.asked("GetObject")] == [
        "jobs/unfinished/job.json", "jobs/unfinished/outcome.json"
    ]  # fmt: skip
    assert jobs("demo") == [("demo", "running")]
    end(terminal, "demo", 0, state="stopped", exit_code=130)
    assert jobs() == [("demo", "stopped")]


def test_what_s3_refuses_is_read_later(terminal: Terminal, faults: Faults) -> None:
    aws, known, now = terminal.account.aws(), Ended(), datetime.now(UTC)
    end(terminal, "demo", 1)
    faults.on("GetObject", refused("SlowDown", 503), nth=None)
    assert with_ended(aws, Overview("", []), known, now).jobs == []
    faults.clear()
    assert [job.job for job in with_ended(aws, Overview("", []), known, now).jobs] == ["demo"]


def test_a_job_without_machines_waits_only_before_it_has_had_any(terminal: Terminal) -> None:
    """Something else of it is left in all cases; EC2 forgets machines after an hour."""
    terminal.account.slow.ending = 0
    terminal.start("waits", nodes=0)
    for job in ("lost", "forgotten"):
        (node_id,) = terminal.start(job)
        terminal.account.kill(node_id)
        if job == "forgotten":
            terminal.account.forget(node_id)
    assert listed(terminal) == {"forgotten": "failed", "lost": "failed", "waits": "waiting"}


def test_a_launcher_in_a_queue_whose_machines_are_gone_does_not_wait() -> None:
    launcher = Queued("1", "mine", NAME, "RUNNING", "")
    for nodes, expected in (((), "waiting"), ((node(0, "terminated"),), "stopping")):
        found = with_waiting(Overview("no jobs", []), [launcher], "r", Fleet(nodes))
        state = with_queue(job_state(replace(view_of(), fleet=Fleet(nodes))), launcher, Fleet(nodes))
        assert [found.jobs[0].status, state.summary.status] == [expected, expected]


# ---- phases


def test_a_jobs_phases_follow_its_nodes_boot_marks() -> None:
    def at(minutes: float) -> datetime:
        return NOW + timedelta(minutes=minutes)

    def found(view: View) -> list[tuple[str, datetime, datetime | None]]:
        return [(phase.name, phase.began, phase.ended) for phase in phases(view)]

    launched = replace(node(0), launched_at=at(1))
    marks = {"started": at(2), "data": at(3), "image": at(5), "train": at(9)}
    booted = [("provision", NOW, at(1)), ("boot", at(1), at(3)), ("data", at(3), at(5)), ("image", at(5), at(9))]

    assert found(view_of()) == []  # it has ended, and nothing is known of its machines
    assert found(replace(view_of(), fleet=Fleet((), (disk(0),)))) == [("provision", NOW, None)]
    assert found(view_of(launched)) == [("provision", NOW, at(1)), ("boot", at(1), None)]
    assert found(view_of(launched, marks=marks)) == [*booted, ("train", at(9), None)]
    gone = replace(launched, state="shutting-down")
    assert found(view_of(gone, marks=marks, records=(exit_record(0, 0),)))[4:] == [
        ("train", at(9), at(60)), ("tear down", at(60), None)
    ]  # fmt: skip
    over = view_of(marks=marks, records=(exit_record(0, 0),), spec={**SPEC, "ended": int(at(62).timestamp())})
    assert found(replace(over, fleet=Fleet())) == [
        ("provision and boot", NOW, at(3)), *booted[2:], ("train", at(9), at(60)), ("tear down", at(60), at(62))
    ]  # fmt: skip


def test_boot_marks_are_of_this_start_and_take_no_request_of_their_own(terminal: Terminal) -> None:
    ids = terminal.start("demo", nodes=2)
    for number in range(300):
        terminal.account.put_json(f"jobs/demo/run/{number}", {})
    for node_id, step in [("i-old", "train"), *((one, step) for one in ids for step in ("started", "data"))]:
        terminal.account.put_json(f"jobs/demo/boot/{node_id}.{step}", {})
    s3_backends[terminal.account.id]["aws"].get_object(
        terminal.account.bucket, "jobs/demo/boot/i-old.train"
    ).last_modified -= HOUR
    terminal.account.put_json(f"jobs/demo/exits/{ids[0]}.json", exit_record(0, 0, instance=ids[0], at=int(time.time())))
    terminal.account.requests.clear()

    state = Ec2Jobs(terminal.runtime).state(SimpleNamespace(job="demo", region=(), bucket=None))

    assert [phase.name for phase in state.phases] == ["provision", "boot", "data"]
    assert "nodes that ended" in str(state)
    assert [one["Prefix"] for one in terminal.account.asked("ListObjectsV2")] == ["jobs/demo/"]
