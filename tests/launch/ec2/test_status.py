"""What a user reads about jobs: what runs, what it costs, how long it may, how it went, what to type next."""

import json
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest

from launch.aws.instances.inventory import Fleet, Node, Resource
from launch.aws.names import Folder
from launch.aws.progress import in_words
from launch.ec2.records import DONE, completed
from launch.ec2.status import View, all_as_text, job_state, outcome_of
from tests.launch.ec2.account import Account
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


def test_a_running_job_in_full() -> None:
    assert (
        as_text(view_of(node(0), node(1), epoch=EPOCH))
        == """\
job imagenet-1 in us-east-1: 2 of 2 nodes, started 2 h 0 min ago

  rank  node  state    type        zone        address    age
  0     i-0   running  g5.2xlarge  us-east-1b  10.0.0.10  2 h 0 min
  1     i-1   running  g5.2xlarge  us-east-1b  10.0.0.11  2 h 0 min

  training    epoch 3/16, loss 1.2346, accuracy 51.2%, eval accuracy 50.0%, 2,450 images/s, 523.0 s
  cost        about 4.91 USD so far, 2.46 USD per hour now
  time limit  10 h 0 min left, 2026-11-22 02:00 UTC
  job folder  s3://some-bucket/jobs/imagenet-1

next:
  python -m launch.ec2 logs imagenet-1 --follow --region us-east-1
  python -m launch.ec2 ssh imagenet-1 --node 0 --region us-east-1
  python -m launch.ec2 stop imagenet-1 --region us-east-1"""
    )


def test_a_job_that_is_over_in_full() -> None:
    records = (exit_record(0, 0), exit_record(1, 0, at=int((NOW + HOUR).timestamp()) + 5))
    spec = {**SPEC, "ended": int((NOW + 1.5 * HOUR).timestamp())}
    over = replace(view_of(records=records, spec=spec, epoch={**EPOCH, "epoch": 16}), fleet=Fleet())
    assert (
        as_text(over)
        == """\
job imagenet-1 in us-east-1 ended 30 min ago: the training is done

nodes that ended:
  rank  node  exit code  step   restarts  ended          reason
  0     i-0   0          train  0         1 h 0 min ago  done
  1     i-1   0          train  0         59 min ago     done

  training    epoch 16/16, loss 1.2346, accuracy 51.2%, eval accuracy 50.0%, 2,450 images/s, 523.0 s
  cost        at most about 3.69 USD
  job folder  s3://some-bucket/jobs/imagenet-1

next:
  python -m launch.ec2 logs imagenet-1 --region us-east-1
  aws s3 sync s3://some-bucket/jobs/imagenet-1/run runs/imagenet-1 --region us-east-1"""
    )


def test_nodes_are_shown_by_rank_and_not_by_the_order_of_launch() -> None:
    swapped = {"nodes": [{"rank": 1, "instance": "i-0"}, {"rank": 0, "instance": "i-1"}]}
    lines = as_text(view_of(node(0), node(1), members=swapped)).splitlines()
    assert [line.split()[:2] for line in lines[3:5]] == [["0", "i-1"], ["1", "i-0"]]


def test_before_cluster_json_is_written_no_rank_is_guessed() -> None:
    lines = as_text(view_of(node(0), members=None)).splitlines()
    assert lines[3].split()[:3] == ["-", "i-0", "running"]


def test_a_missing_node_shows() -> None:
    assert as_text(view_of(node(0))).startswith("job imagenet-1 in us-east-1: 1 of 2 nodes, started 2 h 0 min ago\n")


def test_before_the_first_epoch_is_done_that_is_said() -> None:
    assert "\n  training    the first epoch is not done yet\n" in as_text(view_of(node(0)))


def test_a_loss_that_is_not_a_number_is_left_out() -> None:
    record = {**EPOCH, "train_loss": None, "eval_top1": None}
    assert in_words(record, "16") == "epoch 3/16, accuracy 51.2%, 2,450 images/s, 523.0 s"


def test_the_trainers_default_counts_where_epochs_were_not_given() -> None:
    assert "epoch 3/5, " in as_text(view_of(node(0), epoch=EPOCH, spec={**SPEC, "train": ["-m", "trainer"]}))


def test_spot_prices_are_a_ceiling() -> None:
    text = as_text(view_of(replace(node(0), spot=True)))
    assert "\n  cost        at most 2.46 USD so far, 1.23 USD per hour now; spot is cheaper\n" in text
    assert "running, spot" in text


def test_replaced_nodes_that_ec2_has_forgotten_make_the_cost_a_floor() -> None:
    text = as_text(view_of(replace(node(2, generation=2), started=NOW)))
    assert "at least 2.46 USD so far, 1.23 USD per hour now; nodes replaced over an hour ago are not counted" in text


def test_a_job_past_its_limit_says_so() -> None:
    late = replace(view_of(node(0)), now=NOW + 13 * HOUR)
    assert "\n  time limit  passed 1 h 0 min ago, 2026-11-22 02:00 UTC\n" in as_text(late)


def test_a_node_that_ended_without_a_record_shows_ec2s_reason() -> None:
    lost = replace(node(1, "terminated"), reason="Server.SpotInstanceTermination: Spot instance termination",
                   ended_at=NOW + HOUR)  # fmt: skip
    assert """
nodes that ended:
  rank  node  exit code  step  restarts  ended          reason
  -     i-1   -          -     -         1 h 0 min ago  Server.SpotInstanceTermination: Spot instance termination
""" in as_text(view_of(node(0), lost))


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
    assert text.startswith("job imagenet-1 in us-east-1: no nodes yet, or none any more, started 2 h 0 min ago\n")
    assert "\n  left        security-group sg-1, schedule aws-ddp-toolkit-imagenet-1\n" in text
    assert text.endswith("\n  python -m launch.ec2 stop imagenet-1 --region us-east-1")


# ---- how it ended


def test_one_node_that_is_done_means_that_the_training_is_done() -> None:
    assert outcome_of(view_of(records=(exit_record(0, 0), exit_record(1, 143, "signal")))) == DONE


def test_of_several_failures_the_one_that_is_no_lost_neighbour_counts() -> None:
    records = (exit_record(0, 6, reason="rank 1 was lost"), exit_record(1, 5, reason="the loss is not finite"))
    outcome = outcome_of(view_of(records=records))
    assert (outcome.state, outcome.exit_code) == ("failed", 5)
    assert "the loss is not finite" in outcome.reason


def test_a_remedy_of_the_trainers_names_the_job_and_not_a_folder_of_the_container() -> None:
    reason = f"stopped on request.  To resume, {RESUME.format(folder='/job/run')}."
    outcome = outcome_of(view_of(records=(exit_record(0, 75, reason=reason), exit_record(1, 75, reason=reason))))
    ended = completed(outcome, "digits-1", None, NOW, None)
    assert "To resume, give the same command with --job-name digits-1" in ended.reason
    assert "--run-dir" not in ended.reason


def test_a_node_that_does_not_know_its_rank_can_fail_too() -> None:
    record = exit_record(0, 20, "metadata", "the metadata service does not answer", rank=None, generation=None)
    assert outcome_of(view_of(records=(record,))).exit_code == 20


def test_nodes_that_were_replaced_do_not_count() -> None:
    replaced = {"nodes": [{"rank": 0, "instance": "i-0"}, {"rank": 1, "instance": "i-2"}]}
    records = (exit_record(0, 0), exit_record(1, 6, reason="rank 0 was lost"), exit_record(2, 0))
    assert outcome_of(view_of(records=records, members=replaced)) == DONE


def test_a_stopped_job_was_ended_before_it_was_done() -> None:
    records = (exit_record(0, 143, "signal"), exit_record(1, 143, "signal"))
    assert outcome_of(view_of(records=records)).state == "stopped"


def test_without_any_record_nothing_is_claimed() -> None:
    assert "no exit record" in outcome_of(view_of()).reason


# ---- outcome.json

SAVED = Outcome("failed", 5, "the loss is not finite", 5400.0, 12.34, NAME, "2026-11-21T15:30:00Z")


def test_a_saved_outcome_says_how_a_job_ended_and_what_it_cost() -> None:
    over = replace(view_of(saved=SAVED, records=(exit_record(0, 0),)), fleet=Fleet())
    assert outcome_of(over) == SAVED
    text = as_text(over)
    assert text.splitlines()[0].endswith(": the loss is not finite")
    assert "\n  cost        about 12.34 USD in 1 h 30 min\n" in text


def test_the_cost_of_a_spot_job_that_has_ended_is_a_ceiling() -> None:
    spec = {**SPEC, "where": {**SPEC["where"], "spot": True}}
    assert "at most 12.34 USD in 1 h 30 min; spot is cheaper" in as_text(
        replace(view_of(saved=SAVED, spec=spec), fleet=Fleet())
    )


def test_the_outcome_of_an_earlier_start_is_left_out() -> None:
    old = replace(SAVED, ended="2026-11-21T13:59:59Z")
    assert view_of(saved=old).outcome is None
    assert "not finite" not in as_text(view_of(saved=old))


def test_a_job_that_runs_costs_what_its_nodes_cost_whatever_was_saved() -> None:
    assert "so far" in as_text(view_of(node(0), saved=SAVED))


# ---- all jobs


def test_jobs_are_listed_with_what_they_cost_in_all() -> None:
    other = replace(node(5), job="other", type="g5.12xlarge", zone="us-east-1a", launched_at=NOW + HOUR)
    fleet = replace(fleet_of(node(0), node(1, "terminated")), nodes=(node(0), other))
    assert (
        all_as_text(fleet, {NAME: 2, "other": 1}, "us-east-1", NOW + 2 * HOUR)
        == """\
  job         nodes  type         zone        age        USD/hour  USD so far  time limit
  imagenet-1  1/2    g5.2xlarge   us-east-1b  2 h 0 min  1.23      2.46        10 h 0 min left
  other       1/1    g5.12xlarge  us-east-1a  -          5.67      5.67        -

2 jobs in us-east-1, 6.90 USD per hour"""
    )


def test_without_jobs_the_first_command_is_said() -> None:
    lines = all_as_text(Fleet(), {}, "us-east-1", NOW).splitlines()
    assert "  python -m launch.ec2 --nodes 2 --dry-run" in lines


def test_a_type_without_a_price_is_said_to_be_left_out() -> None:
    fleet = fleet_of(replace(node(0), type="x99.huge"))
    text = all_as_text(fleet, {NAME: 1}, "us-east-1", NOW)
    assert text.endswith("\n\nnot counted, because infra/instances.yaml has no price: x99.huge")


# ---- python -m launch.ec2 status


@pytest.fixture
def terminal(account: Account) -> Terminal:
    return Terminal(account)


def test_status_finds_a_job_by_its_tags_and_reads_its_folder(terminal: Terminal) -> None:
    first, second = terminal.start("demo", nodes=2, hours_ago=1)
    terminal.account.put_json("jobs/demo/run/metrics.jsonl", EPOCH)
    assert terminal.type("status", "demo") == 0
    assert terminal.text.startswith("job demo in us-east-1: 2 of 2 nodes, started 1 h 0 min ago\n")
    rows = [line.split()[:3] for line in terminal.text.splitlines()[3:5]]
    assert [row[:2] for row in rows] == [["0", first], ["1", second]]
    assert "epoch 3/8, loss 1.2346" in terminal.text


def test_status_of_a_script_tells_how_far_it_is_and_how_long_the_rest_takes(terminal: Terminal) -> None:
    terminal.start("demo", nodes=2, hours_ago=1)
    terminal.account.put_json("jobs/demo/run/metrics.jsonl", {"step": 40, "steps": 100, "loss": 0.5})
    far_ahead = 4e9  # by a node's clock: nothing of the rest has passed
    terminal.account.put_json("jobs/demo/run/pace.json", asdict(Pace(0.4, 0.0, 2400.0, far_ahead)))

    assert terminal.type("status", "demo") == 0

    assert "\n  training    step 40, steps 100, loss 0.5\n" in terminal.text
    assert "\n  progress    40% done, about 1.0 h left at its pace\n" in terminal.text


def test_the_newest_whole_epoch_is_shown_while_the_next_is_being_written(terminal: Terminal) -> None:
    terminal.start("demo")
    lines = json.dumps({**EPOCH, "epoch": 4}) + "\n" + '{"epoch": 5, "train_lo'
    body = {"Bucket": terminal.account.bucket, "Key": "jobs/demo/run/metrics.jsonl", "Body": lines}
    terminal.account.aws().call("s3", "PutObject", body)
    terminal.type("status", "demo")
    assert "epoch 4/8, " in terminal.text


def test_status_of_a_job_whose_nodes_are_long_gone_comes_from_its_folder(terminal: Terminal) -> None:
    terminal.account.put_json("jobs/demo/job.json", SPEC | {"job": "demo"})
    terminal.account.put_json("jobs/demo/exits/i-0.json", exit_record(0, 0))
    assert terminal.type("status", "demo") == 0
    assert "the training is done" in terminal.text


def test_status_reads_the_outcome_in_the_jobs_folder(terminal: Terminal) -> None:
    terminal.account.put_json("jobs/demo/job.json", SPEC | {"job": "demo"})
    terminal.account.put_json("jobs/demo/outcome.json", asdict(SAVED))
    assert terminal.type("status", "demo") == 0
    assert "the loss is not finite" in terminal.text
    assert "12.34 USD" in terminal.text


def test_a_damaged_outcome_is_as_none(terminal: Terminal) -> None:
    terminal.account.put_json("jobs/demo/job.json", SPEC | {"job": "demo"})
    terminal.account.put_json("jobs/demo/exits/i-0.json", exit_record(0, 0))
    terminal.account.put_json("jobs/demo/outcome.json", "soon")
    assert terminal.type("status", "demo") == 0
    assert "the training is done" in terminal.text


def test_a_job_in_another_bucket_is_found_with_its_name(terminal: Terminal) -> None:
    terminal.account.make_bucket("elsewhere")
    terminal.account.put_json("jobs/demo/job.json", SPEC | {"job": "demo"}, "elsewhere")
    assert terminal.type("status", "demo") == 2
    assert terminal.type("status", "demo", "--bucket", "elsewhere") == 0
    assert "s3://elsewhere/jobs/demo" in terminal.text


def test_the_bucket_of_a_job_that_runs_is_known_by_its_tags(terminal: Terminal) -> None:
    terminal.account.make_bucket("elsewhere")
    terminal.start("demo", nodes=2, bucket="elsewhere")
    terminal.type("status", "demo")
    assert "s3://elsewhere/jobs/demo" in terminal.text
    assert terminal.text.splitlines()[3].split()[0] == "0"


def test_status_alone_lists_the_jobs_of_the_region(terminal: Terminal) -> None:
    terminal.start("one", nodes=2)
    terminal.start("two")
    terminal.start("far", region="eu-west-1")
    assert terminal.type("status") == 0
    assert [line.split()[:3] for line in terminal.text.splitlines()[1:3]] == [
        ["one", "2/2", "g5.2xlarge"],
        ["two", "1/1", "g5.2xlarge"],
    ]
    assert terminal.type("status", "--region", "eu-west-1") == 0
    assert terminal.text.splitlines()[1].split()[0] == "far"


def test_a_listed_job_that_lost_a_node_shows_what_it_should_have(terminal: Terminal) -> None:
    first, _ = terminal.start("demo", nodes=2)
    terminal.account.kill(first)
    terminal.account.forget(first)
    terminal.type("status")
    assert terminal.text.splitlines()[1].split()[:2] == ["demo", "1/2"]


@pytest.mark.parametrize(
    ("before", "near"), [(("demo-1",), "; did you mean 'demo-1'? Running: demo-1."), ((), ". None is running.")]
)
def test_an_unknown_job_is_refused_with_the_nearest_name(
    terminal: Terminal, before: tuple[str, ...], near: str
) -> None:
    for job in before:
        terminal.start(job)
    error = terminal.refused("status", "job", "dmo-1")
    assert error.code == 2
    assert str(error).startswith(f"no job 'dmo-1' in us-east-1{near} ")
    assert "--region and --bucket" in str(error)


def test_the_nearest_name_may_be_of_a_job_that_is_over(terminal: Terminal) -> None:
    terminal.account.put_json("jobs/cifar-vgg/job.json", SPEC)
    assert "did you mean 'cifar-vgg'?" in str(terminal.refused("status", "job", "cifar-vg"))


def test_status_needs_no_bucket(terminal: Terminal, faults: Faults) -> None:
    terminal.start("demo", write=False)
    faults.on("GetObject", refused("AccessDenied", 403), nth=None)
    assert terminal.type("status", "demo") == 0
    assert terminal.text.startswith("job demo in us-east-1: 1 of 1 nodes, ")
    assert "may not s3:GetObject" in terminal.text
