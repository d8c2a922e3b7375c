"""The stack of the region's queues, beside the account's: its facts, and the parameters that follow from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from launch.aws import network
from launch.aws.client import Aws
from launch.aws.instances.facts import FAMILIES, find_quotas
from launch.aws.lookup import Lookups
from launch.aws.names import FOR_EC2, TOOLKIT, queue_name
from launch.core.errors import AwsError
from launch.core.plan import Fact
from launch.infra.lookup import Stack, stack_of, unless_absent
from launch.infra.options import SetUpOptions
from launch.infra.template import QUEUE_STACK
from trainer.errors import SettingsError, TrainerError

LAUNCHER = "launcher"  # the target of launch.image, and the tag that moves with each push of it
PUSH = "python -m launch.image push --target launcher"
OVER = ("SUCCEEDED", "FAILED")


@dataclass(frozen=True)
class QueueFacts:
    """What the stack of the queues depends on."""

    stack: Stack | None = None
    image: str = ""  # of the launcher, with its digest; "" if it has not been pushed
    vpc: str = ""
    subnets: tuple[str, ...] = ()  # those with a route to the internet, in `vpc`
    vcpus: Mapping[str, int] = field(default_factory=dict)  # quotas, by Family.kind
    jobs: tuple[str, ...] = ()  # that wait or run in the queues that go
    problems: tuple[TrainerError, ...] = ()

    @property
    def name(self) -> str:
        """The name of the queue that is there, or ""."""
        return self.stack.parameters.get("QueueName", "") if self.stack else ""


def look_up(aws: Aws, options: SetUpOptions, account: str, vpc: str) -> QueueFacts:
    """Look up the facts of the queues' stack; AWS's failures become problems.  vpc: "" for the default one."""
    lookups = Lookups()
    stack = lookups.required(lambda: stack_of(aws, QUEUE_STACK), None)
    there = QueueFacts(stack)
    wanted, no_jobs = name_of(options, there), tuple[str, ...]()
    jobs = no_jobs
    if there.name and there.name != wanted:
        jobs = lookups.required(lambda: _jobs(aws, there.name), no_jobs)
    image, subnets, vcpus = "", no_jobs, dict[str, int]()
    if wanted:
        image = lookups.required(lambda: _image(aws, account), "")
    if image:
        vpc, subnets = lookups.required(lambda: _subnets(aws, vpc), (vpc, subnets))
        vcpus = lookups.required(lambda: _vcpus(aws), vcpus)
    return QueueFacts(stack, image, vpc, subnets, vcpus, jobs, tuple(lookups.problems))


def name_of(options: SetUpOptions, facts: QueueFacts) -> str:
    """The name that the queue will have, "" for none."""
    if options.no_queue:
        return ""
    return options.queue.partition(":")[0] if options.queue else facts.name


def parameters(options: SetUpOptions, facts: QueueFacts, log_days: str) -> dict[str, str]:
    """The parameters of the stack that have a new value."""
    most = (options.queue or "").partition(":")[2]
    given = {"QueueName": name_of(options, facts), "LogDays": log_days, **({"QueueInstances": most} if most else {})}
    if facts.image:
        given |= {"LauncherImage": facts.image, "VpcId": facts.vpc, "SubnetIds": ",".join(facts.subnets)}
        given |= {parameter_of(kind): str(quota) for kind, quota in facts.vcpus.items()}
    return given


def parameter_of(kind: str) -> str:
    """The parameter with a quota: GraphicsSpotVcpus, for graphics-spot."""
    return "".join(word.capitalize() for word in kind.split("-")) + "Vcpus"


def shown(values: Mapping[str, str]) -> Fact:
    """The queue of a stack with these parameters."""
    name, most, image = values["QueueName"], values.get("QueueInstances", "4"), values.get("LauncherImage", "")
    also = f"; launch.ec2 by {image.rpartition('@')[2][:19]}" if image else ", and none for launch.ec2"
    value = {"name": name, "instances": int(most), "launcher": image or None}
    return Fact("queue", value, f"{name}: {most} instances of launch.sagemaker at a time{also}")


def without_launcher(facts: QueueFacts, values: Mapping[str, str]) -> str:
    """Why there is no queue for launch.ec2, with the remedy; "" if there is one."""
    if facts.image or values.get("LauncherImage"):
        return ""
    return f"launch.ec2 --queue needs the launcher's image: run {PUSH}, then python -m launch.infra up again."


def problem_of(facts: QueueFacts) -> TrainerError | None:
    """Why the queue cannot be made, renamed or removed."""
    if facts.jobs:
        more = f" and {len(facts.jobs) - 3} more" if len(facts.jobs) > 3 else ""
        return AwsError(
            f"jobs wait or run in queue {facts.name}, and would end with it: {', '.join(facts.jobs[:3])}{more}; let "
            "them end, or stop them first.",
            "JobsRun",
        )
    if facts.image and not facts.subnets:
        where = facts.vpc or "the region's default VPC"
        return SettingsError(
            f"no subnet of {where} has a route to the internet, for launch.ec2 --queue; give --vpc-id."
        )
    return None


# ---- look-ups


def _image(aws: Aws, account: str) -> str:
    """The launcher's image with its digest; "" if it has not been pushed."""
    query = {"repositoryName": TOOLKIT, "imageIds": [{"imageTag": LAUNCHER}]}
    try:
        answer = unless_absent(partial(aws.call, "ecr", "DescribeImages", query))
    except AwsError as error:
        if error.aws_code != "ImageNotFoundException":
            raise
        answer = None
    if not answer or not answer["imageDetails"]:
        return ""
    digest = answer["imageDetails"][0]["imageDigest"]
    return f"{account}.dkr.ecr.{aws.region}.amazonaws.com/{TOOLKIT}@{digest}"


def _subnets(aws: Aws, vpc: str) -> tuple[str, tuple[str, ...]]:
    """The VPC, and those of its subnets that reach the internet."""
    where = {"Name": "vpc-id", "Values": [vpc]} if vpc else {"Name": "default-for-az", "Values": ["true"]}
    rows = aws.pages("ec2", "DescribeSubnets", "Subnets", {"Filters": [where]})
    if not rows:
        return vpc, ()
    vpc = rows[0]["VpcId"]
    exits = network.look_up(aws, vpc, [row["SubnetId"] for row in rows])
    return vpc, tuple(sorted(subnet for subnet, its_exit in exits.items() if its_exit.way != "none"))


def _vcpus(aws: Aws) -> dict[str, int]:
    quotas = find_quotas(aws, FAMILIES)
    return {family.kind: int(quotas[family.name].limit) for family in FAMILIES}


def _jobs(aws: Aws, queue: str) -> tuple[str, ...]:
    """The names of the jobs that wait or run in the queues of this name.

    Without a filter Batch shows those in one state only:
    https://docs.aws.amazon.com/batch/latest/APIReference/API_ListJobs.html
    """
    of_all = {"filters": [{"name": "AFTER_CREATED_AT", "values": ["0"]}]}
    rows = list[Mapping[str, str]]()
    for operation, suffix in (("ListServiceJobs", ""), ("ListJobs", FOR_EC2)):
        query = {"jobQueue": queue_name(queue, suffix), **of_all}
        rows += _rows(aws, operation, query)
    return tuple(row["jobName"] for row in rows if row["status"] not in OVER)


def _rows(aws: Aws, operation: str, query: Mapping[str, object]) -> Sequence[Mapping[str, str]]:
    """Empty for a queue that does not exist, for which Batch has ClientException only."""
    try:
        return aws.pages("batch", operation, "jobSummaryList", query)
    except AwsError as error:
        if error.aws_code == "ClientException":
            return ()
        raise
