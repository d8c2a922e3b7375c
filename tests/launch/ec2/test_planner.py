"""The plan of an EC2 job: the requests, the price, and what speaks against it."""

import gzip
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from launch.aws.instances.facts import Quota, Subnet
from launch.aws.instances.inventory import Resource
from launch.aws.network import Exit
from launch.core import catalog
from launch.core.manifest import Content
from launch.core.plan import Choice, FromAnswer, Plan, Request, Try, as_json, as_text, needs_in
from launch.core.price import CATALOGS, Prices
from launch.ec2 import checks, planner
from launch.ec2.facts import Reservation, Snapshot
from launch.ec2.planner import Launch
from launch.ec2.requests import is_placed, spec, user_data
from tests.conftest import ROOT
from tests.launch.ec2.known import FACTS, NAME, NOW, job, node, plan, with_nodes
from trainer.config import TrainConfig


def requests(made: Plan[Launch], operation: str) -> list[Request]:
    return [request for request in made.requests if request.operation == operation]


def tries(made: Plan[Launch]) -> list[Try]:
    return [attempt for step in made.steps if isinstance(step, Choice) for attempt in step.tries]


def launches(made: Plan[Launch]) -> list[Mapping[str, Any]]:
    return [attempt.request.params for attempt in tries(made)]


def plain(value: Any) -> Any:
    """As it will be sent: values that only answers give stand for some text."""
    if isinstance(value, FromAnswer):
        return str(value)
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def test_the_two_node_plan_is_as_it_was(golden: Callable[[str, str], None]) -> None:
    golden("two-nodes.txt", as_text(plan()) + "\n")


def test_a_plan_for_programs_has_typed_facts_and_every_parameter() -> None:
    content = json.loads(as_json(plan()))
    assert content["facts"] | {"tags": {}, "training": []} == {
        "account": "123456789012", "region": "us-east-1", "processes": 2, "training": [], "image": FACTS.image,
        "machine_image": "ami-0123456789abcdef0", "tags": {}, "time_limit_h": 12.0,
        "health_check": False,
        "data": {"volume": "per-node", "snapshot": "snap-0123456789abcdef0", "s3": None},
        "job_folder": "s3://aws-ddp-toolkit-123456789012-us-east-1/jobs/imagenet-1",
        "quotas": {"g5.2xlarge": {
            "quota": "Running On-Demand G and VT instances", "needed_vcpus": 16, "running_vcpus": 8, "limit_vcpus": 64,
        }},
        "shared_quotas": [
            {"name": "Running On-Demand G and VT instances", "needed": 16, "running": 8, "limit": 64, "held": 0},
        ],
    }  # fmt: skip
    assert content["facts"]["tags"]["aws-ddp-toolkit:job"] == NAME
    calls = [step["call"] for step in content["steps"] if "call" in step]
    assert (calls[0], calls[-1]) == ("s3:PutObject", "ec2:CreatePlacementGroup")
    (start,) = [step["first_that_succeeds"] for step in content["steps"] if "call" not in step]
    assert [attempt["params"] for attempt in start] == [plain(params) for params in launches(plan())]


@pytest.mark.parametrize(
    ("device", "on_gpu", "on_cpu"), [("auto", "--device cuda", ""), ("cpu", *["--device cpu"] * 2)]
)
def test_a_node_with_gpus_never_falls_back_to_the_cpu(device: Any, on_gpu: str, on_cpu: str) -> None:
    cluster = plan(train=TrainConfig(device=device)).payload.cluster
    scripts = (user_data(cluster, catalog.find(name)) for name in ("g5.2xlarge", "c7i.4xlarge"))
    assert [" ".join(re.findall(r"--device c\w+", script)) for script in scripts] == [on_gpu, on_cpu]


def test_the_boot_script_is_the_repositorys_with_the_jobs_values() -> None:
    script = launches(plan())[0]["UserData"]
    source = (ROOT / "infra/ec2/boot.sh").read_text()
    code = [line for line in source.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    values = [line.split(" #")[0].rstrip() for line in script.splitlines() if re.match("[A-Z_0-9]+=", line)]
    assert values[:19] == [
        f"JOB={NAME}",
        "REGION=us-east-1",
        f"FOLDER=s3://aws-ddp-toolkit-123456789012-us-east-1/jobs/{NAME}",
        "NPROC=1",
        "MINUTES=720",
        f"IMAGE={FACTS.image}",
        "REGISTRY=123456789012.dkr.ecr.us-east-1.amazonaws.com",
        "LOG_GROUP=/aws-ddp-toolkit/ec2",
        "DATA_VOLUME=per-node",
        "DATA_S3=''",
        "SECRETS=()",
        "MEET_S=900",
        "MAX_RESTARTS=3",
        "DOCKER_FLAGS=(--gpus all -e DDP_NODE_GPUS=1 -e DDP_NODE_GBPS=5)",
        "WARM=0",
        "NEXT=''",
        "SOURCE=''",
        "TOOLKIT=''",
        "TRAIN=(-m trainer --dataset imagenet --data-dir /data --batch-size 256 --device cuda --run-dir /job/run)",
    ]
    assert "@" not in "".join(values[:5])
    assert script.splitlines()[-1] == code[-1] == "main"


def test_a_node_that_reads_shards_from_s3_has_its_local_disk_as_their_cache() -> None:
    train = TrainConfig(dataset="imagefolder", data_url="s3://aws-ddp-toolkit-1-us-east-1/data/photos")
    (choice,) = [step for step in plan(train=train).steps if isinstance(step, Choice)]
    script = choice.tries[0].request.params["UserData"]

    assert "DATA_VOLUME=cache\n" in re.sub(r" +#.*", "", script)
    assert "DOCKER_FLAGS=(--gpus all -v /data:/cache " in script
    assert " --cache-dir /cache " in script


@pytest.mark.parametrize(
    "where",
    [
        {},
        {"spot": True, "instance_type": ("g5.2xlarge", "g6.2xlarge")},
        {"instance_type": ("p4d.24xlarge",), "nproc_per_node": 8},
        {"instance_type": ("g5.12xlarge",), "capacity_reservation": "cr-0123456789abcdef0"},
        {"instance_type": ("p5e.48xlarge",), "capacity_block": "cr-0123456789abcdef0"},
        {"data_volume": "multi-attach"},
        {"data_s3": "s3://bucket/imagenet"},
        {"nodes": 64, "placement_group": False, "security_group": "sg-1"},
    ],
    ids=lambda where: " ".join(where) or "default",
)
def test_aws_own_service_model_accepts_every_request(where: dict[str, Any]) -> None:
    session, validator = botocore.session.Session(), ParamValidator()
    made = plan(**where)
    every = [*made.requests, *(request for _, group in made.later for request in group)]
    assert len(every) >= 9
    for request in every:
        shape = session.get_service_model(request.service).operation_model(request.operation).input_shape
        report = validator.validate(plain(request.params), shape)
        assert not report.has_errors(), f"{request.operation}: {report.generate_report()}"


def test_all_nodes_start_in_one_request_or_none_does() -> None:
    (first, second) = launches(plan())
    assert (first["MinCount"], first["MaxCount"]) == (2, 2)
    assert [launch["NetworkInterfaces"][0]["SubnetId"] for launch in (first, second)] == ["subnet-a", "subnet-b"]


def test_nodes_cannot_outlive_their_purpose() -> None:
    (launch, _) = launches(plan())
    assert launch["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert [disk["Ebs"]["DeleteOnTermination"] for disk in launch["BlockDeviceMappings"]] == [True, True]
    assert [disk["Ebs"]["Encrypted"] for disk in launch["BlockDeviceMappings"]] == [True, True]
    options = launch["MetadataOptions"]
    assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == ("required", 1)
    assert "KeyName" not in launch


def test_the_time_limit_is_there_before_the_first_node() -> None:
    operations = [request.operation for request in plan().requests]
    assert operations.index("CreateSchedule") < operations.index("RunInstances")
    (schedule,) = requests(plan(), "CreateSchedule")
    assert schedule.params["ScheduleExpression"] == "at(2026-11-22T02:05:00)"
    # It names no nodes: they carry their deadline, so that no schedule is a way to end others' nodes.
    asked = json.loads(schedule.params["Target"]["Input"])
    assert asked == {"DocumentName": "ddp-toolkit-sweeper", "Parameters": {"GraceMinutes": ["0"]}}


def test_every_resource_carries_the_jobs_tags_from_the_start() -> None:
    specifications = launches(plan())[0]["TagSpecifications"]
    assert [s["ResourceType"] for s in specifications] == ["instance", "volume", "network-interface"]
    for specification in specifications:
        tags = {tag["Key"]: tag["Value"] for tag in specification["Tags"]}
        assert tags["aws-ddp-toolkit:job"] == NAME
        assert tags["aws-ddp-toolkit:deadline"] == "2026-11-22T02:00:00Z"


def test_nothing_comes_in_but_from_the_group_itself() -> None:
    (ingress,) = requests(plan(), "AuthorizeSecurityGroupIngress")
    group = FromAnswer("security group", "GroupId")
    assert ingress.params["IpPermissions"] == [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]


def test_requests_to_the_vpcs_own_dns_servers_get_out() -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/security-group-rules-reference.html, DNS server rules"""
    exits = {"subnet-a": Exit("gateway", dns=("10.0.0.2", "10.0.1.2"))}
    _, egress = requests(plan(replace(FACTS, exits=exits)), "AuthorizeSecurityGroupEgress")
    ranges = [{"CidrIp": "10.0.0.2/32"}, {"CidrIp": "10.0.1.2/32"}]
    assert egress.params["IpPermissions"] == [
        {"IpProtocol": "udp", "FromPort": 53, "ToPort": 53, "IpRanges": ranges},
        {"IpProtocol": "tcp", "FromPort": 53, "ToPort": 53, "IpRanges": ranges},
    ]


def test_out_go_https_and_what_the_nodes_say_to_each_other() -> None:
    (egress,) = requests(plan(), "AuthorizeSecurityGroupEgress")
    revoked = requests(plan(), "RevokeSecurityGroupEgress")
    each_other, https = egress.params["IpPermissions"]

    assert each_other.keys() == {"IpProtocol", "UserIdGroupPairs"}
    assert (https["IpProtocol"], https["FromPort"], https["ToPort"]) == ("tcp", 443, 443)
    # AWS's own rules: everywhere, anything; the second where the VPC has IPv6, and elsewhere AWS knows no such address.
    assert [one.params["IpPermissions"] for one in revoked] == [
        [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}],
        [{"IpProtocol": "-1", "Ipv6Ranges": [{"CidrIpv6": "::/0"}]}],
    ]
    assert {"InvalidPermission.NotFound", "InvalidParameterValue"} == {*revoked[1].done_already}


def test_the_data_volume_comes_with_the_node_as_fast_as_it_can_read() -> None:
    volume = launches(plan())[0]["BlockDeviceMappings"][1]
    assert volume["DeviceName"] == "/dev/sdf"
    assert volume["Ebs"]["SnapshotId"] == "snap-0123456789abcdef0"
    assert (volume["Ebs"]["Throughput"], volume["Ebs"]["Iops"]) == (417, 3000)  # g5.2xlarge: 437.5 MB/s
    assert volume["Ebs"]["VolumeInitializationRate"] == 300
    small = plan(replace(FACTS, snapshot=Snapshot("snap-1", 10)), instance_type=("p4d.24xlarge",))
    ebs = launches(small)[0]["BlockDeviceMappings"][1]["Ebs"]
    assert (ebs["Iops"], ebs["Throughput"]) == (5000, 1250)  # all that EBS gives so few GiB


def test_where_volumes_cannot_be_filled_quickly_the_same_zone_is_tried_without_it() -> None:
    """A3: under another token, or AWS would take it for the same request with other parameters."""
    for attempt in tries(plan()):
        assert attempt.lesser is not None
        quick, slow = attempt.request.params, attempt.lesser.params
        assert slow["NetworkInterfaces"] == quick["NetworkInterfaces"]
        assert "VolumeInitializationRate" not in slow["BlockDeviceMappings"][1]["Ebs"]
        assert slow["ClientToken"] != quick["ClientToken"]
        (price,) = [tag for tag in slow["TagSpecifications"][0]["Tags"] if tag["Key"] == "aws-ddp-toolkit:usd-once"]
        assert price["Value"] == "0"
    assert [attempt.lesser for attempt in tries(plan(data_s3="s3://aws-ddp-toolkit-1/data"))] == [None, None]


@pytest.mark.parametrize(
    ("reason", "ended", "minutes", "zones"),
    [
        ("Server.InsufficientInstanceCapacity: no capacity", 2, 0, "b"),
        ("Server.InsufficientInstanceCapacity: no capacity", 2, 16, "ab"),
        ("Server.InternalError: on launch", 2, 0, "ab"),  # one that dies while it trains has the same reason
        ("Server.InternalError: on launch", 3, 0, "b"),
    ],
)
def test_a_zone_whose_nodes_ended_as_they_started_is_left_out_for_a_while(
    reason: str, ended: int, minutes: int, zones: str
) -> None:
    """A12: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html"""
    nodes = [replace(node(number, "terminated", number + 1, "us-east-1a"), reason=reason) for number in range(ended)]
    facts = replace(with_nodes(*nodes), now=NOW + timedelta(minutes=minutes))
    assert [attempt.label[1] for attempt in tries(plan(facts))] == [f"us-east-1{zone}" for zone in zones]


def test_where_every_zones_nodes_ended_as_they_started_there_is_no_capacity() -> None:
    zones = ("us-east-1a", "us-east-1a", "us-east-1b", "us-east-1b")
    nodes = [replace(node(number, "terminated", number + 1, zone), reason="Server.InsufficientInstanceCapacity: none")
             for number, zone in enumerate(zones)]  # fmt: skip
    (problem,) = plan(with_nodes(*nodes)).problems
    assert "no capacity" in str(problem)


def test_the_deadline_is_before_ec2_takes_a_capacity_block_back() -> None:
    """A13: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-how.html: 30 minutes before its end."""
    where = {"instance_type": ("p5.48xlarge",), "capacity_block": "cr-1", "max_hours": 12}
    block = Reservation("cr-1", "us-east-1a", "p5.48xlarge", 2, NOW + timedelta(hours=5))
    made = plan(replace(FACTS, reservation=block), **where)
    assert made.payload.cluster.deadline == NOW + timedelta(hours=5) - timedelta(minutes=35)
    over = replace(block, ends=NOW + timedelta(minutes=30))
    assert plan(replace(FACTS, reservation=over), **where).problems


def test_a_plan_has_what_its_job_already_uses_of_a_quota() -> None:
    nodes = [replace(node(number, state), vcpus=8) for number, state in enumerate(("running", "pending", "stopped"))]
    other = replace(node(3), type="p3.2xlarge", vcpus=8)

    begun = plan(with_nodes(*nodes, other), nodes=4)

    (need,) = needs_in(json.loads(as_json(begun)))
    assert (need.needed, need.held) == (32, 16)


def test_a_capacity_block_shares_no_quota_with_other_jobs() -> None:
    quota = Quota("Running On-Demand P instances", 0, 0, "L-417A185B")
    facts = replace(FACTS, quotas={quota.name: quota})

    block = plan(facts, instance_type=("p5.48xlarge",), capacity_block="cr-1")

    assert needs_in(json.loads(as_json(block))) == ()
    shared = plan(facts, instance_type=("p5.48xlarge",))
    assert len(needs_in(json.loads(as_json(shared)))) == 1
    assert (
        "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-417A185B "
        "--desired-value 384 --region us-east-1"
    ) in str(shared.problem)


def test_max_usd_is_refused_where_the_regions_prices_are_not_known() -> None:
    """A10: us-east-1's are no ceiling: p5en.48xlarge is 79.12 USD an hour in us-west-1, and 63.30 here."""
    elsewhere = replace(FACTS, region="us-west-1", prices=replace(CATALOGS, are_known=False))
    (problem,) = plan(elsewhere, max_usd=1000).problems
    assert "us-west-1" in str(problem)
    assert not plan(elsewhere).problems


def test_a_price_with_the_data_volume_over_the_limit_is_a_problem() -> None:
    assert not plan(max_usd=35).problems
    (problem,) = plan(replace(FACTS, snapshot=Snapshot("snap-1", 5000)), max_usd=35).problems
    assert "more than --max-usd 35" in str(problem)


def test_what_the_nodes_policy_does_not_cover_is_warned_of() -> None:
    assert plan().warnings == ()
    (warning,) = plan(data_s3="s3://my-imagenet/train").warnings
    assert warning.startswith("s3://my-imagenet/train is not in infra/iam/node.json")


def test_a_boot_script_that_is_too_long_for_user_data_is_compressed() -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html: 16 KB before base64."""

    def user_data(cache_dir: str) -> str | bytes:
        planned = plan(train=TrainConfig(dataset="imagenet", cache_dir=Path(cache_dir)))
        data: str | bytes = next(one for one in planned.requests if one.operation == "RunInstances").params["UserData"]
        return data

    short, long = user_data("x"), user_data("x" * 5000)
    assert isinstance(short, str)
    assert isinstance(long, bytes)
    assert len(long) < 16_384
    assert gzip.decompress(long).decode() == short.replace("--cache-dir x ", f"--cache-dir {'x' * 5000} ")


def test_zone_after_zone_and_then_the_next_type() -> None:
    (choice,) = [step for step in plan(instance_type=("g5.2xlarge", "g6.2xlarge")).steps if isinstance(step, Choice)]
    assert [attempt.label for attempt in choice.tries] == [
        ("g5.2xlarge", "us-east-1a", "on demand"),
        ("g5.2xlarge", "us-east-1b", "on demand"),
        ("g6.2xlarge", "us-east-1b", "on demand"),  # not offered in 1a
    ]


def test_the_same_start_has_the_same_token_and_another_one_another() -> None:
    (first, second), (again, _) = launches(plan()), launches(plan())
    later = launches(plan(replace(FACTS, now=NOW.replace(hour=15))))[0]
    tokens = [launch["ClientToken"] for launch in (first, second, later)]
    assert first == again
    assert len(set(tokens)) == 3
    assert all(len(token) <= 64 for token in tokens)


def test_a_start_that_broke_off_keeps_its_token_and_its_deadline() -> None:
    """Whether its nodes exist is not known yet, so asking again must not start a second fleet."""
    written = spec(plan().payload.cluster)
    again = plan(replace(FACTS, now=NOW.replace(hour=15), spec=written))
    assert launches(again) == launches(plan())
    assert not again.problems


def test_a_spot_job_that_goes_on_repeats_its_requests_at_any_price() -> None:
    """Its price decides whether volumes are filled, and another request would start a second fleet."""
    costly, cheap = (replace(FACTS, spot_usd_per_hour={"g5.2xlarge": price}) for price in (1.2, 0.3))
    first = plan(costly, spot=True)
    written = spec(first.payload.cluster)
    again = plan(replace(cheap, spec=written, prices=Prices(**written["prices"])), spot=True)

    assert launches(again) == launches(first) != launches(plan(cheap, spot=True))


def test_a_job_that_has_ended_starts_anew_with_a_limit_of_its_own() -> None:
    written = {**spec(plan().payload.cluster), "ended": int(NOW.timestamp())}
    again = plan(replace(FACTS, now=NOW.replace(hour=15), spec=written))
    assert requests(again, "CreateSchedule")[0].params["ScheduleExpression"] == "at(2026-11-22T03:05:00)"


def test_a_job_that_has_ended_can_be_resumed_with_a_longer_time_limit() -> None:
    written = spec(plan().payload.cluster)
    running, ended = replace(FACTS, spec=written), replace(FACTS, spec={**written, "ended": int(NOW.timestamp())})
    assert plan(running, max_hours=24).problem is not None
    assert plan(ended, max_hours=24).problem is None
    assert plan(ended, max_hours=24, root_gb=200).problem is not None


def test_a_second_start_asks_only_for_the_nodes_that_are_missing_and_near_the_others() -> None:
    made = plan(with_nodes(node(0), node(1, "terminated")))
    (launch,) = launches(made)
    assert (launch["MinCount"], launch["MaxCount"]) == (1, 1)
    assert launch["NetworkInterfaces"][0]["SubnetId"] == "subnet-b"
    assert {"Key": "aws-ddp-toolkit:generation", "Value": "2"} in launch["TagSpecifications"][0]["Tags"]
    assert launches(plan(with_nodes(node(0), node(1)))) == []
    (group,) = requests(made, "CreatePlacementGroup")
    (end,) = [one for _, later in made.later for one in later if one.operation == "DeletePlacementGroup"]
    assert end.params["GroupName"] == group.params["GroupName"]


def test_types_that_no_cluster_takes_get_no_placement_group() -> None:
    both = checks.resolve(job(instance_type=("g5.2xlarge", "g6.2xlarge")))
    first, second = (replace(one, in_cluster=False) for one in both.instances)
    assert not is_placed(replace(both, instances=(first, second)))
    made = planner.plan(job(), replace(both, instances=(first, both.instances[1])), NAME, FACTS)
    assert {params["InstanceType"] for params in launches(made) if "Placement" in params} == {"g6.2xlarge"}


def test_a_group_that_is_there_is_taken_again() -> None:
    groups = (
        Resource("security-group", "sg-1", NAME),
        Resource("placement-group", f"aws-ddp-toolkit-{NAME}-1", NAME),
    )
    fleet = replace(FACTS.fleet, resources=groups)
    made = plan(replace(FACTS, fleet=fleet))
    assert requests(made, "CreateSecurityGroup") == requests(made, "CreatePlacementGroup") == []
    assert launches(made)[0]["NetworkInterfaces"][0]["Groups"] == ["sg-1"]


def test_the_nodes_know_what_the_catalog_says_of_them() -> None:
    """A p4d.24xlarge has 400 Gbit/s on four network cards, and only EFA uses more than one."""

    def said(*nodes: str, **where: object) -> list[str]:
        script = launches(plan(instance_type=nodes, **where))[0]["UserData"]
        return re.findall(r"DDP_NODE_G[A-Z]+=[\d.]+", script)

    assert said("g5.2xlarge") == ["DDP_NODE_GPUS=1", "DDP_NODE_GBPS=5"]
    assert said("g5.12xlarge") == ["DDP_NODE_GPUS=4", "DDP_NODE_GBPS=40"]
    assert said("p4d.24xlarge") == ["DDP_NODE_GPUS=8", "DDP_NODE_GBPS=400"]
    assert said("p4d.24xlarge", efa=False) == ["DDP_NODE_GPUS=8", "DDP_NODE_GBPS=100"]


def test_efa_takes_every_network_card_and_one_address() -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html: card 0, device 0 an ENA interface,
    device 1 an EFA-only one; on each further card, device 0 an EFA-only one, which has no address.
    """
    interfaces = launches(plan(instance_type=("p4d.24xlarge",)))[0]["NetworkInterfaces"]
    assert [(i["NetworkCardIndex"], i["DeviceIndex"], i.get("InterfaceType")) for i in interfaces] == [
        (0, 0, None), (0, 1, "efa-only"), (1, 0, "efa-only"), (2, 0, "efa-only"), (3, 0, "efa-only"),
    ]  # fmt: skip
    many = launches(plan(instance_type=("p5.48xlarge",)))[0]["NetworkInterfaces"]
    assert len(many) == 33
    assert len([i for i in many if i.get("InterfaceType") != "efa-only"]) == 1
    one = launches(plan(instance_type=("g5.2xlarge",)))[0]["NetworkInterfaces"]
    assert [set(i) for i in one] == [{"DeviceIndex", "SubnetId", "Groups", "DeleteOnTermination"}]


def test_spot_asks_for_machines_that_end_when_they_are_taken_back() -> None:
    options = launches(plan(spot=True))[0]["InstanceMarketOptions"]
    assert options == {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
    }


def test_a_reservation_decides_the_zone_and_has_a_quote_of_its_own() -> None:
    reserved = replace(FACTS, reservation=Reservation("cr-1", "us-east-1b", "g5.2xlarge", 2))
    made = plan(reserved, capacity_reservation="cr-1")
    (launch,) = launches(made)
    assert launch["NetworkInterfaces"][0]["SubnetId"] == "subnet-b"
    assert "Placement" not in launch
    assert [quote.market for quote in made.quotes] == [attempt.label[2] for attempt in tries(made)] == ["reserved"]


def test_one_volume_for_all_nodes_is_made_where_they_run() -> None:
    made = plan(data_volume="multi-attach")
    (volume,) = requests(made, "CreateVolume")
    assert volume.params["MultiAttachEnabled"] is True
    assert volume.params["AvailabilityZone"] == FromAnswer("nodes", "Instances[0].Placement.AvailabilityZone")
    assert len(launches(made)[0]["BlockDeviceMappings"]) == 1
    assert "Size" not in volume.params  # the snapshot's
    (small,) = requests(
        plan(replace(FACTS, snapshot=Snapshot("snap-1", 1)), data_volume="multi-attach"), "CreateVolume"
    )
    assert (small.params["Size"], small.params["Iops"]) == (4, 2_000)  # the least that io2 has


def test_a_quota_without_room_is_a_problem_with_the_sum() -> None:
    (problem,) = plan(nodes=8).problems
    assert str(problem).startswith("8 x g5.2xlarge need 64 vCPUs, 8 are in use")
    assert problem.code == 4


@pytest.mark.parametrize(("limit", "nodes", "wanted"), [(64, 8, "72"), (0, 2, "24")])
def test_a_quota_without_room_comes_with_the_command_that_asks_for_more(limit: int, nodes: int, wanted: str) -> None:
    """https://docs.aws.amazon.com/cli/latest/reference/service-quotas/request-service-quota-increase.html"""
    name = "Running On-Demand G and VT instances"
    (problem,) = plan(replace(FACTS, quotas={name: Quota(name, limit, 8, "L-DB2E81BA")}), nodes=nodes).problems
    assert str(problem).splitlines()[-1].split() == [
        "aws", "service-quotas", "request-service-quota-increase", "--service-code", "ec2",
        "--quota-code", "L-DB2E81BA", "--desired-value", wanted, "--region", "us-east-1",
    ]  # fmt: skip


def test_spot_nodes_start_where_aws_expects_the_most_capacity() -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-placement-score.html"""
    subnets = tuple(Subnet(f"subnet-{letter}", f"us-east-1{letter}", "vpc-1") for letter in "abcd")
    scored = replace(FACTS, subnets=subnets, spot_scores={"us-east-1b": 3, "us-east-1c": 9, "us-east-1d": 3},
                     offered={"g5.2xlarge": frozenset(subnet.zone for subnet in subnets)})  # fmt: skip
    assert [one.label[1][-1] for one in tries(plan(scored, spot=True))] == ["c", "b", "d", "a"]
    facts = json.loads(as_json(plan(scored, spot=True)))["facts"]
    assert facts["spot_scores"] == {"us-east-1c": 9, "us-east-1b": 3, "us-east-1d": 3}


def test_the_root_volume_writes_as_fast_as_an_image_is_unpacked() -> None:
    """gp3 has 3,000 operations a second, which allow 750 MiB/s:
    https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html
    """
    root = launches(plan())[0]["BlockDeviceMappings"][0]["Ebs"]
    assert (root["VolumeType"], root["Throughput"], "Iops" in root) == ("gp3", 400, False)


def test_a_type_that_no_zone_has_is_a_problem() -> None:
    offered = {**FACTS.offered, "g5.2xlarge": frozenset({"us-east-1f"})}
    (problem,) = plan(replace(FACTS, offered=offered)).problems
    assert "(us-east-1a, us-east-1b); choose another --instance-type" in str(problem)


def test_the_price_says_expected_and_at_most() -> None:
    (quote,) = plan().quotes
    assert (quote.instance, quote.nodes, quote.market) == ("g5.2xlarge", 2, "on demand")
    assert quote.usd_per_hour == quote.on_demand_usd_per_hour == pytest.approx(2.5519, abs=1e-4)
    assert quote.once_usd == pytest.approx(2 * 0.54)  # 150 GiB at 300 MiB/s, per node
    assert (quote.most_usd, quote.most_s) == (pytest.approx(30.623 + 4 * 1.08, abs=1e-3), 12 * 3600)
    assert quote.forecast is not None
    assert quote.forecast.limit == "EBS"
    assert quote.expected_usd == pytest.approx(quote.forecast.usd(quote.usd_per_hour) + 1.08)


def test_a_plan_says_what_filling_the_volumes_would_save_where_nobody_pays_for_it() -> None:
    (never,), (auto,) = plan(fill_volumes="never").quotes, plan().quotes
    assert never.once_usd == 0
    assert never.forecast
    assert auto.forecast
    saved_min = 60 * (never.forecast.hours - auto.forecast.hours)
    (note,) = never.notes
    assert "--fill-volumes always" in note
    assert f"saves {saved_min:.0f} min for 0.54 USD" in note
    at_first = never.forecast.ceilings[-1]
    assert (at_first.name, at_first.lasts) == ("volume initialization", False)
    assert at_first.images_per_s < never.forecast.images_per_s
    (too_many,) = plan(nodes=51).quotes  # beyond the quota, at whatever price
    assert "--fill-volumes" not in str(too_many.notes)


def test_every_candidate_type_has_a_quote_of_its_own() -> None:
    """A19: the second type's price was once shown under the first one's name."""
    content = json.loads(as_json(plan(nodes=1, instance_type=("g5.2xlarge", "g5.12xlarge"))))
    small, large = content["quotes"]
    assert (small["instance"], large["instance"]) == ("g5.2xlarge", "g5.12xlarge")
    for quote, name in ((small, "g5.2xlarge"), (large, "g5.12xlarge")):
        (alone,) = json.loads(as_json(plan(nodes=1, instance_type=(name,))))["quotes"]
        assert quote == alone
    assert (small["most_usd"], large["most_usd"]) == (pytest.approx(17.47, abs=0.01), pytest.approx(72.35, abs=0.01))
    assert small["expected_s"] > 3 * large["expected_s"]
    assert content["facts"]["quotas"].keys() == {"g5.2xlarge", "g5.12xlarge"}


def test_the_quote_of_a_spot_job_is_the_price_now_with_the_ceiling_on_demand() -> None:
    (quote,) = plan(replace(FACTS, spot_usd_per_hour={"g5.2xlarge": 0.5}), spot=True).quotes
    assert quote.market == "spot"
    assert quote.usd_per_hour == pytest.approx(1.1279, abs=1e-4)
    assert quote.on_demand_usd_per_hour == pytest.approx(2.5519, abs=1e-4)
    assert quote.most_usd == pytest.approx(12 * 2.5519, abs=1e-2)  # at this price no volume is worth filling
    (unknown,) = plan(spot=True).quotes
    assert unknown.usd_per_hour is None


def test_the_time_in_which_nodes_copy_their_data_from_s3_is_expected() -> None:
    """40 GB at 200 MB/s, infra/rates.yaml; of data that nobody counted the plan says that it does not know."""
    content = Content(1_281_167, 50_000, 40_000_000_000, 1000, 256)
    train = TrainConfig(dataset="imagenet")
    counted, unknown = (
        plan(replace(FACTS, snapshot=None, content=known), train, data_s3="s3://bucket/imagenet").quotes[0]
        for known in (content, None)
    )
    assert counted.forecast is not None
    streamed = plan(
        replace(FACTS, snapshot=None, content=content), TrainConfig(dataset="imagenet", data_url="s3://bucket/imagenet")
    )
    without = streamed.quotes[0].forecast
    assert without is not None
    assert counted.forecast.hours == pytest.approx(without.hours + 200 / 3600)
    assert unknown.notes != counted.notes


# ---- a published data set

PHOTOS = Snapshot("snap-0123456789abcdef0", 2, content=Content(9_000, 1_000, 300_000_000, 3, 256))


def test_the_users_own_published_images_have_a_price_and_a_forecast() -> None:
    train = TrainConfig(dataset="imagefolder", model="resnet18", batch_size=64, epochs=10)
    made = plan(replace(FACTS, snapshot=PHOTOS), train, data="photos")

    (quote,) = made.quotes
    assert quote.forecast is not None
    assert quote.expected_usd is not None
    data = next(fact for fact in made.facts if fact.name == "data")
    assert data.text.endswith("9,000 images to train, 1,000 to evaluate, 0.3 GB")
    assert (data.value["train_images"], data.value["val_images"]) == (9_000, 1_000)


def test_images_of_which_nobody_knows_the_number_have_no_forecast() -> None:
    train = TrainConfig(dataset="imagefolder", model="resnet18", batch_size=64)
    (quote,) = plan(train=train).quotes

    assert (quote.forecast, quote.expected_usd) == (None, None)
