"""The check of --queue: the queue exists, has room for the job, and runs the launcher that was pushed."""

from collections.abc import Iterator

from launch.aws.examination.case import CARRIES, TAGGED, Right, Verdict, missing, ok, warning
from launch.aws.examination.permissions import verdict
from launch.aws.instances.facts import quota_of
from launch.aws.names import CONTROLLER, FOR_EC2, TOOLKIT, queue_name, vcpus_name
from launch.core.errors import AwsError
from launch.ec2.examination.shared import Ec2Case

PUSH_LAUNCHER = "python -m launch.image push --target launcher"

BATCH = "arn:aws:batch:{REGION}:{ACCOUNT}:"
QUEUED = [
    Right(["batch:SubmitJob"], [f"{BATCH}job-queue/{{QUEUE}}", f"{BATCH}job-definition/{CONTROLLER}"], TAGGED),
    Right(["batch:TagResource"], [f"{BATCH}job/x"], TAGGED),
    Right(["batch:TerminateJob"], [f"{BATCH}job/x"], CARRIES),
]


def queue(case: Ec2Case) -> Iterator[Verdict]:
    name = case.resolved.options.queue
    if name is None:
        return
    make = f"python -m launch.infra up --queue {name} --region {case.region}"
    rows = case.aws.call("batch", "DescribeJobQueues", {"jobQueues": [queue_name(name, FOR_EC2)]})["jobQueues"]
    pushed = _pushed(case)
    if not rows or rows[0]["state"] != "ENABLED":
        fix = make if pushed else f"{PUSH_LAUNCHER} --region {case.region}, then {make}"
        yield missing(f"no queue {name!r} for launch.ec2 in {case.region}", fix)
        return
    yield _room(case, name, make)
    if pushed and not _image(case).endswith(pushed):
        yield warning("the queue runs an older launcher than the one in the repository", make)
    if not case.identity.is_root:
        attach = "attach the policy aws-ddp-toolkit-launcher-queue: infra/queue.md"
        yield verdict(case, case.identity.principal, QUEUED, lambda _policies: attach, "submit the job")


def _room(case: Ec2Case, name: str, make: str) -> Verdict:
    """Whether the queue's vCPUs are enough for the job's largest type."""
    options = case.resolved.options
    largest = max(case.resolved.instances, key=lambda instance: instance.vcpus)
    needed, family = options.nodes * largest.vcpus, quota_of(largest, options.spot)
    query = {"consumableResource": vcpus_name(name, family.kind)}
    found = case.aws.call("batch", "DescribeConsumableResource", query)
    total, in_use = int(found["totalQuantity"]), int(found["inUseQuantity"])
    text = f"{name}: {in_use} of {total} vCPUs in use ({family.name}), {needed} for the job"
    # The quota is a check of its own, with the request that raises it.
    return ok(text) if needed <= total else missing(text, f"raise the quota, then {make}")


def _pushed(case: Ec2Case) -> str:
    """The digest of the launcher in the repository, or ""."""
    query = {"repositoryName": TOOLKIT, "imageIds": [{"imageTag": "launcher"}]}
    try:
        return str(case.aws.call("ecr", "DescribeImages", query)["imageDetails"][0]["imageDigest"])
    except AwsError as error:
        if error.aws_code in ("ImageNotFoundException", "RepositoryNotFoundException"):
            return ""
        raise


def _image(case: Ec2Case) -> str:
    """The image of the newest controller."""
    query = {"jobDefinitionName": CONTROLLER, "status": "ACTIVE"}
    rows = case.aws.pages("batch", "DescribeJobDefinitions", "jobDefinitions", query)
    newest_first = sorted(rows, key=lambda row: -int(row["revision"]))
    return str(newest_first[0]["containerProperties"]["image"]) if newest_first else ""
