"""launch.ec2.lookup: every look-up before a launch, and what its failures mean for it."""

import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from moto.iam.models import iam_backends
from moto.ssm.models import ssm_backends

from launch.aws import published
from launch.aws.client import Aws
from launch.aws.instances.facts import Quota
from launch.aws.instances.inventory import Fleet
from launch.aws.names import ROLES_TAG, ROLES_VERSION, STACK_TAG
from launch.core.errors import NotSetUp
from launch.core.job import Job
from launch.core.manifest import Content
from launch.core.training.classifier import Classifier
from launch.ec2 import planner
from launch.ec2.checks import resolve
from launch.ec2.facts import Ami, Facts, Reservation, Snapshot
from launch.ec2.lookup import AMI_PARAMETERS, look_up
from launch.ec2.options import Ec2Options
from tests.launch.data.desk import prepared
from tests.launch.ec2.account import SCHEDULER_ROLE, Account
from tests.launch.faults import Faults, refused
from trainer.config import TrainConfig

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
LookUp = Callable[..., Facts]


@pytest.fixture
def look(aws: Aws) -> LookUp:
    """Looks up the facts for job j, with these options."""

    def look(dataset: str = "imagenet", **where: Any) -> Facts:
        return look_up(aws, resolve(asked(dataset, **where)), "j", dataset, NOW)

    return look


def asked(dataset: str = "imagenet", **where: Any) -> Job[Ec2Options]:
    return Job(Classifier(TrainConfig(dataset=dataset)), Ec2Options.model_validate(where))


def problem(facts: Facts) -> str:
    (only,) = facts.problems
    return str(only)


@pytest.mark.parametrize(
    ("tags", "old"),
    [
        ({STACK_TAG: "eu-west-1"}, "eu-west-1"),
        ({STACK_TAG: "eu-west-1", ROLES_TAG: str(ROLES_VERSION - 1)}, "eu-west-1"),
        ({STACK_TAG: "eu-west-1", ROLES_TAG: str(ROLES_VERSION)}, ""),
        ({}, ""),  # made by hand
    ],
)
def test_a_stack_older_than_this_version_is_warned_of(
    account: Account, look: LookUp, tags: dict[str, str], old: str
) -> None:
    """Its time limits end nothing, of which AWS says nothing, or its nodes do not get a script's source."""
    iam_backends[account.id]["aws"].tag_role(SCHEDULER_ROLE, [{"Key": k, "Value": v} for k, v in tags.items()])
    facts = look("cifar10")
    assert facts.old_stack == old
    job = asked("cifar10")
    warnings = [text for text in planner.plan(job, resolve(job), "j", facts).warnings if "older" in text]
    assert [f"python -m launch.infra up --region {old}." in text for text in warnings] == [True] * bool(old)


def test_an_account_that_is_set_up_has_all_facts_and_no_problems(account: Account, look: LookUp) -> None:
    facts = look(nodes=2)

    assert (facts.problems, facts.unknown) == ((), ())
    assert (facts.region, facts.account, facts.now) == ("us-east-1", "123456789012", NOW)
    assert {s.zone: s.id for s in facts.subnets} == account.subnets
    assert len({s.vpc for s in facts.subnets}) == 1
    zones = ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1f")
    assert facts.offered == {"g5.2xlarge": frozenset(zones)}
    assert facts.ami == Ami(account.ami, "/dev/sda1", gib=75)
    registry = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
    assert facts.image == f"{registry}/aws-ddp-toolkit@{account.image_digest}"
    assert facts.snapshot == Snapshot(account.snapshot, 150)
    name = "Running On-Demand G and VT instances"
    assert facts.quotas == {name: Quota(name, 768.0, 0, "L-DB2E81BA")}
    assert facts.scheduler_role == "arn:aws:iam::123456789012:role/aws-ddp-toolkit-scheduler"
    assert (facts.spot_usd_per_hour, facts.reservation, facts.spec) == ({}, None, None)
    assert facts.fleet == Fleet()
    assert not facts.has_log_group


# ---- this machine cannot ask


def test_without_credentials_the_facts_say_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        resolved, took = resolve(asked()), list[float]()
        for _ in range(3):  # the machine may be busy
            aws = Aws("eu-west-1")
            assert aws.region == "eu-west-1"  # importing boto3 is not what is measured
            started = time.monotonic()
            facts = look_up(aws, resolved, "j", "imagenet", NOW)
            took.append(time.monotonic() - started)

    assert min(took) < 1.0
    assert [(type(p), p.code) for p in facts.problems] == [(NotSetUp, 2)]
    assert facts.unknown != ()
    assert replace(facts, problems=(), unknown=()) == Facts("eu-west-1", now=NOW, fleet_is_known=False)


def test_expired_credentials_end_the_questions(account: Account, look: LookUp, faults: Faults) -> None:
    faults.on("GetCallerIdentity", refused("ExpiredToken", 403))

    assert "aws sso login" in problem(look())
    assert account.operations == ["GetCallerIdentity"]


# ---- what a launch cannot do without


@pytest.mark.parametrize(
    ("where", "remedy"),
    [
        ({"data_snapshot": "snap-0123456789abcdef0"}, "aws ec2 copy-snapshot"),
        ({"ami": "ami-0123456789abcdef0"}, "--ami"),
        ({"subnet": "subnet-0123456789abcdef0"}, "--subnet"),
        ({"zones": "us-east-1a,us-east-1z"}, "us-east-1f"),
        ({"capacity_reservation": "cr-0123456789abcdef0"}, "give one of us-east-1"),
        ({"scheduler_role": "nobody"}, "--scheduler-role"),
        ({"instance_profile": "nobody"}, "--instance-profile"),
        ({"bucket": "nothing-there"}, "aws s3 mb s3://nothing-there"),
        ({"image": "aws-ddp-toolkit:v0"}, "python -m launch.image push"),
    ],
)
def test_what_does_not_exist_is_a_problem_with_a_remedy(look: LookUp, where: dict[str, Any], remedy: str) -> None:
    facts = look(**where)

    assert remedy in problem(facts)
    assert facts.unknown == ()


@pytest.mark.parametrize(
    ("state", "remedy"),
    [(None, "--data-snapshot"), ("pending", "wait until it is completed"), ("error", "publish the data again")],
)
def test_a_data_set_without_a_whole_snapshot_is_a_problem(
    state: str | None, remedy: str, account: Account, look: LookUp
) -> None:
    if state:
        account.make_snapshot("cifar10", 160, state=state)
    assert remedy in problem(look("cifar10", data_volume="per-node"))


def test_the_newest_whole_snapshot_of_the_data_set_is_taken(account: Account, look: LookUp) -> None:
    newer = account.make_snapshot("imagenet", 160)
    account.make_snapshot("imagenet", 170, state="pending")
    account.make_snapshot("cifar10", 10)

    assert look().snapshot == Snapshot(newer, 160)
    assert look(data_snapshot=account.snapshot).snapshot == Snapshot(account.snapshot, 150)


def test_a_region_without_a_default_vpc_is_a_problem(account: Account, look: LookUp) -> None:
    for subnets in account.ec2.subnets.values():
        subnets.clear()

    assert "--subnet" in problem(look())


def test_subnets_of_two_vpcs_are_a_problem(account: Account, aws: Aws, look: LookUp) -> None:
    vpc = aws.call("ec2", "CreateVpc", {"CidrBlock": "10.0.0.0/16"})["Vpc"]["VpcId"]
    other = aws.call("ec2", "CreateSubnet", {"VpcId": vpc, "CidrBlock": "10.0.1.0/24"})["Subnet"]["SubnetId"]

    assert "give those of one VPC" in problem(look(subnet=f"{account.subnets['us-east-1a']},{other}"))


def test_the_next_ubuntus_ami_is_taken_where_there_is_none_of_this_one(account: Account, look: LookUp) -> None:
    """A17: Ubuntu 22.04 is supported until 2027, and AWS drops AMIs of systems that are not."""
    parameters = ssm_backends[account.id][account.region]._parameters
    parameters[AMI_PARAMETERS[1]] = parameters.pop(AMI_PARAMETERS[0])
    assert look().ami == Ami(account.ami, "/dev/sda1", gib=75)
    parameters.pop(AMI_PARAMETERS[1])
    assert "--ami" in problem(look())


def test_a_reservation_says_where_it_is_and_what_is_free(account: Account, look: LookUp) -> None:
    name = account.reserve("us-east-1b", "g5.2xlarge", 2)
    assert look(capacity_reservation=name).reservation == Reservation(name, "us-east-1b", "g5.2xlarge", 2)
    over = account.reserve("us-east-1b", "g5.2xlarge", 2, state="expired")
    assert f"{over} is expired" in problem(look(capacity_reservation=over))


def test_all_missing_permissions_are_reported_at_once(look: LookUp, faults: Faults) -> None:
    operations = {
        "DescribeSubnets": "reader",
        "GetParameter": "launcher",
        "DescribeSnapshots": "reader",
        "GetRole": "launcher",
        "GetInstanceProfile": "launcher",
        "DescribePlacementGroups": "reader",
        "GetObject": "launcher",
    }
    for operation in operations:
        faults.on(operation, refused("AccessDenied", 403))
    missing = sorted(re.findall(r"may not \w+:(\w+); .* infra/iam/(\w+)\.json", "\n".join(map(str, look().problems))))
    assert missing == sorted(operations.items())


# ---- what a launch can do without


@pytest.mark.parametrize(
    ("operation", "what"),
    [
        ("DescribeInstanceTypeOfferings", "zones of the types"),
        ("GetServiceQuota", "vCPU quotas"),
        ("DescribeSpotPriceHistory", "spot prices"),
        ("GetSpotPlacementScores", "spot placement scores"),
        ("DescribeLogGroups", "the log group"),
    ],
)
def test_what_is_only_good_to_know_is_unknown_and_no_problem(  # type: ignore[no-untyped-def]
    look: LookUp, faults: Faults, operation, what
) -> None:
    faults.on(operation, refused("AccessDenied", 403))
    facts = look(spot=True)

    assert facts.problems == ()
    (unknown,) = facts.unknown
    assert unknown.startswith(f"{what} could not be looked up: these credentials may not ")


# ---- what was asked for


def test_zones_and_subnets_come_in_the_order_they_were_given(account: Account, look: LookUp) -> None:
    assert [s.zone for s in look(zones="us-east-1c,us-east-1a").subnets] == ["us-east-1c", "us-east-1a"]
    given = look(subnet=f"{account.subnets['us-east-1d']},{account.subnets['us-east-1b']}").subnets
    assert [s.zone for s in given] == ["us-east-1b", "us-east-1d"]


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("aws-ddp-toolkit", "123456789012.dkr.ecr.us-east-1.amazonaws.com/aws-ddp-toolkit@{digest}"),
        ("aws-ddp-toolkit@{digest}", "123456789012.dkr.ecr.us-east-1.amazonaws.com/aws-ddp-toolkit@{digest}"),
        ("registry.example.org:5000/trainer:v1", "registry.example.org:5000/trainer:v1"),
    ],
)
def test_an_image_is_found_by_tag_digest_or_uri(account: Account, look: LookUp, image: str, found: str) -> None:
    facts = look(image=image.format(digest=account.image_digest))

    assert facts.problems == ()
    assert facts.image == found.format(digest=account.image_digest)


def test_an_image_may_lie_in_a_folder_of_the_registry(look: LookUp, faults: Faults) -> None:
    look(image="team/trainer:v1")

    (asked_for,) = [call.params for call in faults.calls if str(call) == "ecr:DescribeImages"]
    assert asked_for == {"repositoryName": "team/trainer", "imageIds": [{"imageTag": "v1"}]}


def test_the_dearest_zones_spot_price_counts(account: Account, look: LookUp) -> None:
    account.spot_usd |= {"us-east-1a": 0.4, "us-east-1b": 0.6, "us-east-1c": 0.5}

    assert look(spot=True).spot_usd_per_hour == {"g5.2xlarge": 0.6}
    assert account.asked("DescribeSpotPriceHistory") == [
        {"InstanceTypes": ["g5.2xlarge"], "ProductDescriptions": ["Linux/UNIX"], "StartTime": NOW}
    ]


def test_quotas_count_what_runs_of_their_types_and_market(account: Account, aws: Aws, look: LookUp) -> None:
    account.quota["L-DB2E81BA"] = 64.0
    for kind, count, spot in (("g5.2xlarge", 2, False), ("g6.2xlarge", 1, False), ("g5.2xlarge", 1, True),
                              ("c5.large", 1, False), ("p4d.24xlarge", 1, False)):  # fmt: skip
        run(account, aws, kind, count, spot)
    names = ["Running On-Demand G and VT instances", "Running On-Demand P instances"]
    spot_names = ["All G and VT Spot Instance Requests"]

    assert look(instance_type="g5.2xlarge,p4d.24xlarge").quotas == {
        names[0]: Quota(names[0], 64.0, 24, "L-DB2E81BA"),
        names[1]: Quota(names[1], 768.0, 96, "L-417A185B"),
    }
    assert look(spot=True).quotas == {spot_names[0]: Quota(spot_names[0], 768.0, 8, "L-3819A6DF")}


def run(account: Account, aws: Aws, kind: str, count: int, spot: bool) -> None:
    """Starts nodes that are nobody's."""
    params = {"ImageId": account.ami, "InstanceType": kind, "MinCount": count, "MaxCount": count,
              "SubnetId": account.subnets["us-east-1a"]}  # fmt: skip
    market = {"InstanceMarketOptions": {"MarketType": "spot"}} if spot else {}
    aws.call("ec2", "RunInstances", params | market)


def test_an_earlier_start_is_found_in_the_jobs_folder(account: Account, look: LookUp) -> None:
    account.put_json("jobs/j/job.json", {"job": "j", "started": 1})

    assert look().spec == {"job": "j", "started": 1}


def test_a_published_data_set_is_found_by_its_name_with_its_counts(account: Account, look: LookUp) -> None:
    content = Content(9_000, 1_000, 300_000_000, 3, 256)
    made = account.ec2.snapshots[account.make_snapshot("photos", 2)]
    named = published.tags("photos", content, "0" * 64, f"1 {'0' * 64}", account.bucket, "me", "2026-11-21T14:00:00Z")
    made.add_tags({tag["Key"]: tag["Value"] for tag in named})

    found = look("imagefolder", data="photos").snapshot
    assert found is not None
    assert (found.id, found.content) == (made.id, content)


@pytest.mark.parametrize("streamed", [False, True])
def test_images_of_prepared_data_in_s3_are_counted(streamed: bool, account: Account, aws: Aws) -> None:
    account.put_json("data/photos/manifest.json", prepared(9_000, 1_000, 300_000_000))
    place = f"s3://{account.bucket}/data/photos"
    job = asked("imagefolder", **({} if streamed else {"data_s3": place}))
    if streamed:
        job = Job(Classifier(TrainConfig(dataset=job.train.dataset, data_url=place)), job.where)

    facts = look_up(aws, resolve(job), "j", "imagefolder", NOW)
    assert facts.problems == ()
    assert facts.content == Content(9_000, 1_000, 300_000_000, 3, 256)


@pytest.mark.parametrize("manifest", [None, {"splits": {"train": {}}}])
def test_data_that_nothing_counts_are_no_problem(manifest: Any, account: Account, look: LookUp) -> None:
    if manifest is not None:
        account.put_json("data/photos/manifest.json", manifest)

    facts = look("imagefolder", data_s3=f"s3://{account.bucket}/data/photos/")
    assert (facts.content, facts.problems, facts.unknown) == (None, (), ())


def test_a_security_group_that_keeps_nodes_from_resolving_names_is_refused(account: Account, look: LookUp) -> None:
    """Nothing is paid before.  The command names the rules that are missing."""
    vpc, aws = account.use_dns("10.0.0.2"), account.aws()
    group = aws.call("ec2", "CreateSecurityGroup", {"GroupName": "g", "Description": "g", "VpcId": vpc})["GroupId"]
    job = asked("cifar10", security_group=group)
    for is_open in (True, False):
        facts = look("cifar10", security_group=group)
        problems = planner.plan(job, resolve(job), "j", facts).problems
        commands = [str(one).partition("; run ")[2] for one in problems]
        assert commands == ([] if is_open else [
            f"aws ec2 authorize-security-group-egress --group-id {group} --ip-permissions "
            "'IpProtocol=udp,FromPort=53,ToPort=53,IpRanges=[{CidrIp=10.0.0.2/32}]' "
            "'IpProtocol=tcp,FromPort=53,ToPort=53,IpRanges=[{CidrIp=10.0.0.2/32}]'"
        ])  # fmt: skip
        everywhere = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
        if is_open:
            aws.call("ec2", "RevokeSecurityGroupEgress", {"GroupId": group, "IpPermissions": everywhere})


def test_zones_have_their_spot_placement_scores(account: Account, look: LookUp) -> None:
    """AWS names the zones by their ids, which are the same in all accounts."""
    account.rules.spot_scores |= {"us-east-1b": 9, "us-east-1c": 1}
    assert look().spot_scores == {}
    account.requests.clear()
    scores = look(spot=True, nodes=4, zones=("us-east-1a", "us-east-1b", "us-east-1c")).spot_scores
    assert scores == {"us-east-1a": 3, "us-east-1b": 9, "us-east-1c": 1}
    assert account.asked("GetSpotPlacementScores") == [
        {"InstanceTypes": ["g5.2xlarge"], "TargetCapacity": 4, "SingleAvailabilityZone": True,
         "RegionNames": ["us-east-1"]}
    ]  # fmt: skip
