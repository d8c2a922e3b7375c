"""A job that may run in any of several regions: one of them gets all of it, and nothing is left in the others."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from launch.aws.client import Aws
from launch.aws.instances.inventory import Fleet, find
from launch.aws.names import Folder
from launch.core.errors import AwsError
from launch.core.manifest import Content
from launch.core.plan import Plan
from launch.ec2 import requests
from launch.ec2.__main__ import main
from launch.ec2.backend import Runtime
from launch.ec2.checks import resolve
from launch.ec2.facts import Facts, Snapshot
from launch.ec2.planner import Launch
from launch.ec2.regions import Place, Plans, data, missing, overview
from launch.ec2.start import launch
from launch.ec2.stop import mark_stopped
from launch.rehearse.accounts import zones
from launch.rehearse.aws.ec2.account import Ec2Account
from tests.launch.copies import Copies
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import FACTS, NAME, job, node, plan
from tests.launch.ec2.terminal import Terminal
from tests.launch.ec2.test_crash_sweep import Watched, reads
from tests.launch.faults import Died, Fault, Faults, Request, died_after, injected, refused, unreachable
from trainer.contract import Exit
from trainer.errors import SettingsError
from trainer.outcome import Outcome

EAST, WEST = "us-east-1", "us-west-2"
LAUNCH = ("--nodes", "2", "--job-name", NAME, "--dataset", "digits", "--model", "cnn", "--region", f"{EAST},{WEST}")


@contextmanager
def two_regions() -> Iterator[Terminal]:
    with Account.opened() as account:
        west = Ec2Account(WEST, rules=account.rules)
        west.add_internet_route()
        west.make_ami()
        west.make_image("aws-ddp-toolkit")
        west.make_bucket(west.bucket)
        account._at_first = account.resources()
        yield Terminal(account)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with two_regions() as made:
        yield made


def no_capacity(terminal: Terminal, region: str) -> None:
    for zone in zones(Ec2Account(region)):
        terminal.account.rules.capacity[zone] = 0


def nodes_in(region: str) -> int:
    return sum(one.state != "terminated" for one in Ec2Account(region).ec2.all_instances())


# ---- which are tried: pure


def place(facts: Facts = FACTS, region: str = EAST, **more: Any) -> Place:
    known = replace(facts, region=region, **more)
    return Place(known, plan(known, image="own:1"))


def without(region: str, what: str) -> Place:
    return place(region=region, problems=(AwsError(f"no {what} in {region}."),))


def test_regions_are_tried_in_the_users_order_without_those_that_lack_something() -> None:
    plans = Plans((without("eu-west-1", "image"), place(region=WEST), place()), is_new=True)
    assert [one.region for one in plans.tried] == [WEST, EAST]
    assert plans.problem is None


def test_spot_nodes_are_tried_in_the_region_with_the_best_zone_first() -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-placement-score.html"""
    west, east = place(region=WEST, spot_scores={"a": 3, "b": 4}), place(spot_scores={"a": 1, "b": 8})
    assert [one.region for one in Plans((place(region="eu-west-1"), west, east), is_new=True).tried] == [
        EAST, WEST, "eu-west-1",
    ]  # fmt: skip


def test_a_job_goes_on_only_where_its_checkpoints_are() -> None:
    """Elsewhere it would begin anew."""
    for here in (place(last_generation=1), place(fleet=Fleet((node(0),)))):
        assert [one.region for one in Plans((place(region=WEST), here)).tried] == [EAST]


def test_a_region_where_the_launch_has_died_is_tried_first_and_alone_if_it_cannot_be() -> None:
    """It may have nodes that EC2 does not list yet; another region's would be too many."""
    spec = requests.spec(place().plan.payload.cluster)
    begun = place(spec=spec)
    assert [one.region for one in Plans((place(region=WEST), begun)).tried] == [EAST, WEST]
    stuck = place(spec=spec, problems=(AwsError("S3 is down."),))
    plans = Plans((place(region=WEST), stuck))
    assert [one.region for one in plans.tried] == [EAST]
    assert str(plans.problem) == "S3 is down."
    over = place(spec={**spec, "ended": 3})
    assert [one.region for one in Plans((place(region=WEST), over)).tried] == [WEST, EAST]


def test_a_named_job_is_not_started_while_a_region_does_not_say_whether_it_has_it() -> None:
    dark = place(region=WEST, fleet_is_known=False, problems=(AwsError("AWS is busy."),))
    assert "whether the job is in us-west-2 already could not be looked up" in str(Plans((place(), dark)).problem)
    assert Plans((place(), dark), is_new=True).problem is None  # no other job can have its name


def test_what_a_region_lacks_comes_with_the_command_that_copies_it() -> None:
    lacking = place(
        region=WEST,
        image=None,
        snapshot=None,
        problems=(AwsError("there is no bucket.", "NoSuchBucket"), AwsError("no snapshot.")),
    )
    plans = Plans((place(), lacking), is_new=True)
    image = str(FACTS.image)
    assert [(one.what, one.command) for one in missing(lacking, plans.places)] == [
        ("bucket", "python -m launch.infra up --region us-west-2"),
        ("image", f"docker buildx imagetools create --tag 123456789012.dkr.ecr.us-west-2.amazonaws.com/own:1 {image}"),
        (
            "snapshot",
            "aws ec2 copy-snapshot --region us-west-2 --source-region us-east-1 --source-snapshot-id "
            "snap-0123456789abcdef0 --tag-specifications "
            "'ResourceType=snapshot,Tags=[{Key=aws-ddp-toolkit:dataset,Value=imagenet}]'",
        ),
    ]
    shown = overview(plans)
    assert "us-east-1  ready" in shown
    assert "us-west-2  left out: no bucket, image, snapshot here" in shown
    nowhere = Plans((without(EAST, "image"), without(WEST, "bucket")), is_new=True).problem
    assert "us-east-1: no image in us-east-1." in str(nowhere)
    assert "us-west-2: no bucket in us-west-2." in str(nowhere)
    assert json.loads(data(plans))["regions"][1]["lacks"][0]["what"] == "bucket"


def test_what_the_toolkit_made_is_copied_by_the_toolkit() -> None:
    content = Content(9_000, 1_000, 300_000_000, 3, 256)
    published = replace(FACTS, snapshot=Snapshot("snap-0123456789abcdef0", 2, content=content))
    has, lacks = (replace(published, region=EAST), replace(published, region=WEST, image=None, snapshot=None))
    places = tuple(Place(facts, plan(facts, data="photos")) for facts in (has, lacks))
    assert [one.command for one in missing(places[1], places)] == [
        "python -m launch.image push --region us-west-2",
        "python -m launch.data copy photos --region us-east-1 --to-region us-west-2",
    ]


@pytest.mark.parametrize("option", ["zones", "subnet", "ami", "bucket", "data_snapshot", "security_group"])
def test_what_belongs_to_one_region_is_refused_with_several(option: str) -> None:
    with pytest.raises(SettingsError, match=f"--{option.replace('_', '-')} names a resource of one region"):
        resolve(job(None, region=f"{EAST},{WEST}", **{option: "some"}))


# ---- launches


def test_the_next_region_is_tried_where_one_has_no_capacity_and_nothing_is_left_in_it(terminal: Terminal) -> None:
    no_capacity(terminal, EAST)
    assert terminal.type(*LAUNCH, "--detach") == 0
    assert (nodes_in(EAST), nodes_in(WEST)) == (0, 2)
    assert any("no capacity" in line for line in terminal.said)
    assert f"  python -m launch.ec2 stop {NAME} --region {WEST}" in terminal.said
    assert terminal.type("stop", NAME, "--region", WEST) == 0
    assert terminal.account.left() == []  # of any region


def test_the_first_region_with_capacity_has_all_nodes_and_no_other_is_touched(terminal: Terminal) -> None:
    assert terminal.type(*LAUNCH, "--detach") == 0
    assert (nodes_in(EAST), nodes_in(WEST)) == (2, 0)
    assert list(Ec2Account(WEST).objects()) == []


def test_where_no_region_has_capacity_a_table_says_what_was_tried(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    no_capacity(terminal, EAST)
    no_capacity(terminal, WEST)
    assert terminal.type(*LAUNCH) == 4
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: no capacity:"
    tried = {line.split()[1] for line in lines[2:-2]}
    assert {f"{EAST}a", f"{WEST}a"} <= tried
    assert terminal.account.left() == []


@pytest.mark.parametrize(
    ("operation", "fault"),
    [(None, None), ("DescribeSubnets", unreachable())],
)
def test_the_launcher_waits_and_goes_through_all_regions_again_also_while_aws_is_busy_or_away(
    operation: str | None, fault: Fault | None, terminal: Terminal
) -> None:
    faults = Faults()

    def trouble() -> None:
        terminal.account.rules.capacity.clear()
        if operation and fault:
            faults.on(operation, fault, nth=faults.count(operation) + 1)

    no_capacity(terminal, EAST)
    no_capacity(terminal, WEST)
    terminal.events = iter([trouble])
    with injected(faults):
        assert terminal.type(*LAUNCH, "--detach", "--wait-for-capacity", "1") == 0, terminal.text
    assert nodes_in(EAST) + nodes_in(WEST) == 2


def test_a_stop_ends_the_waiting_between_two_tries(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing then that could be removed."""
    no_capacity(terminal, EAST)
    no_capacity(terminal, WEST)
    other = Terminal(terminal.account)

    def stop() -> None:
        terminal.account.rules.capacity.clear()
        other.later_s = terminal.later_s
        assert other.type("stop", NAME, "--region", WEST) == 0

    terminal.events = iter([stop])
    assert terminal.type(*LAUNCH, "--wait-for-capacity", "1") == 4
    assert "was stopped by another command" in capsys.readouterr().err
    assert (nodes_in(EAST), nodes_in(WEST)) == (0, 0)


def test_a_stop_is_not_lost_that_comes_as_another_region_is_tried(terminal: Terminal) -> None:
    """Of a try that has just begun it sees nothing, and notes the end where the last one was."""

    def launched(plan: Plan[Launch], runtime: Runtime, **more: Any) -> Outcome | None:
        if plan.payload.cluster.region == WEST:
            folder = Folder(terminal.account.bucket, NAME)
            mark_stopped(terminal.account.aws(EAST), folder, None, terminal.clock, terminal.said.append)
        return launch(plan, runtime, **more)

    no_capacity(terminal, EAST)
    with mock.patch("launch.ec2.search.launch", launched):
        assert terminal.type(*LAUNCH, "--detach") == Exit.AWS
    assert (nodes_in(EAST), nodes_in(WEST)) == (0, 0)


def test_verbs_find_the_job_in_whichever_region_it_is(terminal: Terminal) -> None:
    no_capacity(terminal, EAST)
    terminal.type(*LAUNCH, "--detach")
    assert terminal.type("status", NAME) == 0
    assert terminal.said[0].startswith(f"job {NAME} in {WEST}: 2 of 2 nodes")
    assert terminal.type("ssh", NAME, "--print") == 0
    assert terminal.text.splitlines()[0].endswith(f"--region {WEST}")
    assert terminal.type("stop", NAME) == 0
    assert terminal.account.left() == []
    assert terminal.type("status", NAME) == 0
    assert terminal.said[0].startswith(f"job {NAME} in {WEST} ended")


def test_a_job_in_another_region_is_stopped_there_and_not_reported_as_ended(terminal: Terminal) -> None:
    """Its bucket is that of several regions, and its owner was wrong about the region."""
    terminal.start("demo", nodes=2, region=WEST)
    bucket = ("--bucket", terminal.account.bucket)
    assert terminal.type("status", "demo", "--region", EAST, *bucket) == 0
    assert terminal.said[0].startswith(f"job demo in {WEST}: 2 of 2 nodes")
    assert terminal.type("stop", "demo", "--region", EAST, *bucket) == 0
    assert nodes_in(WEST) == 0
    assert terminal.type("status", "demo", "--region", EAST, *bucket) == 0
    assert terminal.said[0].startswith(f"job demo in {WEST} ended")


@contextmanager
def no_answer_from(region: str) -> Iterator[None]:
    """As from a region that there is not, or that a company's policies deny."""

    def asked(aws: Aws, job: str | None = None) -> Fleet:
        if aws.region == region:
            raise AwsError("AWS cannot be reached for ec2:DescribeInstances")
        return find(aws, job)

    with mock.patch("launch.ec2.verbs.find", asked):
        yield


def test_a_region_that_does_not_answer_hides_no_job_in_the_next(terminal: Terminal) -> None:
    terminal.start("demo", nodes=2, region=WEST)
    written = {"job": "demo", "regions": [EAST, "us-west-1", WEST], "started": 1_790_000_000}
    terminal.account.put_json("jobs/demo/job.json", written, terminal.account.bucket)
    with no_answer_from("us-west-1"):
        assert terminal.type("stop", "demo", "--region", EAST) == 0
    assert nodes_in(WEST) == 0


def test_no_job_is_reported_as_stopped_that_may_run_where_aws_does_not_answer(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.start("demo", nodes=2, region=WEST)
    bucket = ("--bucket", terminal.account.bucket)
    with no_answer_from(WEST):
        assert terminal.type("status", "demo", "--region", EAST, *bucket) == 0
        assert f"warning: {WEST} could not be checked: AWS cannot be reached" in terminal.text
        assert terminal.type("stop", "demo", "--region", EAST, *bucket) == Exit.AWS
    said = capsys.readouterr().err
    assert f"error: demo may still run in a region that could not be searched: {WEST} could not be checked" in said
    assert terminal.type("stop", "demo", "--region", EAST, *bucket) == 0
    assert nodes_in(WEST) == 0


def test_attach_replaces_lost_nodes_in_the_jobs_own_region(terminal: Terminal) -> None:
    no_capacity(terminal, EAST)
    terminal.type(*LAUNCH, "--detach")
    terminal.account.rules.capacity.clear()
    lost = next(one for one in Ec2Account(WEST).ec2.all_instances())
    Ec2Account(WEST, rules=terminal.account.rules).kill(lost.id, "Server.SpotInstanceTermination: taken")

    def end() -> None:
        raise KeyboardInterrupt

    terminal.events = iter([lambda: None, lambda: None, end])
    with suppress(KeyboardInterrupt):
        assert terminal.type("attach", NAME) == 130
    assert nodes_in(EAST) == 0
    assert terminal.account.left() == []


def test_a_limit_in_usd_counts_with_the_regions_own_prices(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in the embedded AWS, so that such a job can be rehearsed."""
    words = ("--nodes", "2", "--dataset", "digits", "--model", "cnn", "--region", WEST, "--dry-run", "--max-usd")
    with mock.patch("launch.rehearse.aws.pricing.price_of", return_value=3.0):
        assert terminal.type(*words, "2000") == 0
        text = capsys.readouterr().out
        assert terminal.type(*words, "70") == 2
    assert f"prices are those of {WEST} in AWS's price list, read 20" in text
    assert "problem: 2 x g5.2xlarge for 12 h may cost" in capsys.readouterr().out


def test_a_dry_run_shows_the_regions_and_their_plans(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LAUNCH, "--dry-run=full"], terminal.runtime) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"job {NAME} starts in the first of these regions that has capacity:")
    assert f"\nin {WEST}: 2 x g5.2xlarge on EC2, job {NAME}\n" in text
    assert terminal.account.left() == []


def test_a_removal_that_fails_keeps_the_next_region_from_being_tried(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    no_capacity(terminal, EAST)
    with injected(Faults().on("DeleteSecurityGroup", refused("UnauthorizedOperation", 403), nth=None)):
        assert terminal.type(*LAUNCH, "--detach") == 4
    assert "Removing its resources failed" in capsys.readouterr().err
    assert nodes_in(WEST) == 0


@pytest.mark.slow("no death at any call of a launch in two regions leaks, or makes nodes in both")
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_no_death_at_any_call_of_a_search_leaks_or_doubles_the_nodes(
    record_property: Callable[[str, object], None],
) -> None:
    """As the crash sweep does for one region.  The first region has no capacity, and has some again after the death."""
    copies = Copies()

    def die_in_a_copy(call: Request) -> None:
        number = len(faults.calls) + 1
        if not reads(call) and not copies.is_copy and copies.make(f"{number}. {call}"):
            faults.at(number, died_after())

    with two_regions() as terminal, injected(Watched()) as faults, copies.end_here():
        terminal.type(*LAUNCH, "--detach")  # reads the models of all services
        terminal.type("stop", NAME, "--region", f"{EAST},{WEST}")
        account, terminal.later_s = terminal.account, 0.0
        account.slow.hidden = account.slow.unknown = 1
        account.rules.access.add("testing", f"arn:aws:iam::{account.id}:user/launcher", "launcher")
        no_capacity(terminal, EAST)
        faults.clear()
        faults.at_each = die_in_a_copy
        with suppress(Died):
            terminal.type(*SECOND, "--detach")
        if copies.is_copy:
            copies.report(what_is_wrong(terminal, faults))
        calls = len(faults.calls)
    wrong = {call: found for call, found in copies.reports.items() if found}
    record_property("crash sweep", ("two regions", "died after", calls, len(copies.reports), len(wrong)))
    assert len(copies.reports) > 30
    assert wrong == {}


SECOND = tuple("second" if word == NAME else word for word in LAUNCH)


def what_is_wrong(terminal: Terminal, faults: Watched) -> str:
    """After a death, the same launch again, and a stop.  Empty: nothing."""
    faults.clear()
    faults.at_each = lambda _call: None
    terminal.account.rules.capacity.clear()
    terminal.later_s += 10
    code = terminal.type(*SECOND, "--detach")
    if code or sorted((nodes_in(EAST), nodes_in(WEST))) != [0, 2]:
        return f"exit code {code}, {nodes_in(EAST)} and {nodes_in(WEST)} nodes"
    terminal.later_s += 300
    terminal.type("stop", "second", "--region", f"{EAST},{WEST}")
    return ", ".join(terminal.account.left())
