"""A job and the facts of an account, as literals: what the planner's tests plan with."""

from dataclasses import replace
from datetime import UTC, datetime

from launch.aws.instances.facts import Ami, Quota, Subnet
from launch.aws.instances.inventory import Fleet, Node, Resource
from launch.core.job import Job
from launch.core.plan import Plan
from launch.core.training.classifier import Classifier
from launch.ec2 import checks, planner
from launch.ec2.facts import Facts, Snapshot
from launch.ec2.options import Ec2Options
from launch.ec2.planner import Launch
from trainer.config import TrainConfig

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
NAME = "imagenet-1"

FACTS = Facts(
    region="us-east-1",
    account="123456789012",
    subnets=(Subnet("subnet-a", "us-east-1a", "vpc-1"), Subnet("subnet-b", "us-east-1b", "vpc-1")),
    offered={
        "g5.2xlarge": frozenset({"us-east-1a", "us-east-1b"}),
        "g6.2xlarge": frozenset({"us-east-1b"}),
        "g5.12xlarge": frozenset({"us-east-1a"}),
        "p4d.24xlarge": frozenset({"us-east-1a"}),
        "p5.48xlarge": frozenset({"us-east-1a"}),
    },
    ami=Ami("ami-0123456789abcdef0", "/dev/sda1"),
    image="123456789012.dkr.ecr.us-east-1.amazonaws.com/aws-ddp-toolkit@sha256:" + "0" * 64,
    snapshot=Snapshot("snap-0123456789abcdef0", 150),
    quotas={"Running On-Demand G and VT instances": Quota("Running On-Demand G and VT instances", 64, 8, "L-DB2E81BA")},
    scheduler_role="arn:aws:iam::123456789012:role/aws-ddp-toolkit-scheduler",
    now=NOW,
)


def job(train: TrainConfig | None = None, **where: object) -> Job[Ec2Options]:
    """The job of the README, with other options."""
    training = train or TrainConfig(dataset="imagenet", model="resnet18", batch_size=256)
    return Job(Classifier(training), Ec2Options.model_validate({"nodes": 2, "job_name": NAME, **where}))


def plan(facts: Facts = FACTS, train: TrainConfig | None = None, **where: object) -> Plan[Launch]:
    asked = job(train, **where)
    return planner.plan(asked, checks.resolve(asked), NAME, facts)


def node(number: int, state: str = "running", generation: int = 1, zone: str = "us-east-1b") -> Node:
    """The node with this number: i-0, at 10.0.0.10."""
    return Node(
        id=f"i-{number}",
        job=NAME,
        state=state,
        type="g5.2xlarge",
        zone=zone,
        address=f"10.0.0.{10 + number}",
        launched_at=NOW,
        generation=generation,
        spot=False,
        launch_index=number,
        subnet="subnet-b" if zone == "us-east-1b" else "subnet-a",
    )


def data_volume(number: int) -> Resource:
    """The data volume of the node with this number."""
    return Resource("volume", f"vol-{number}", NAME, "in-use", NOW, 150, "gp3", (f"i-{number}",), "/dev/sdf")


def with_nodes(*nodes: Node) -> Facts:
    return replace(FACTS, fleet=Fleet(nodes, tuple(data_volume(n.launch_index) for n in nodes)))
