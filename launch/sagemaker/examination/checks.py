"""Checks of quotas, image, roles, VPC and data for a training job on SageMaker."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launch.aws.examination.case import (
    CARRIES,
    FOLDER,
    JOB_FOLDER,
    LOGS,
    OWN_ACCOUNT,
    READS_SOURCE,
    ROLE,
    TAGGED,
    Case,
    Right,
    Verdict,
    missing,
    ok,
    split,
    unknown,
    warning,
)
from launch.aws.examination.image import PUSH, examined
from launch.aws.examination.permissions import of_role, of_script, trusting, verdict
from launch.aws.instances.facts import find_exits, find_subnets
from launch.aws.lookup import describe_role
from launch.aws.names import parse_s3, queue_name
from launch.aws.network import Exit, closed_to, without_dns
from launch.aws.upload import FOLDER as SOURCES
from launch.core.errors import AwsError
from launch.sagemaker import bundle, images, lookup, training_jobs
from launch.sagemaker.channels import Channel, located
from launch.sagemaker.checks import Resolved

TrainingCase = Case[Resolved]


PUSH_THERE = f"{PUSH} --target sagemaker"


def quotas(case: TrainingCase) -> Iterator[Verdict]:
    for quota in lookup.find_quotas(case.aws, case.resolved, case.now):
        used = "" if quota.unit == "seconds" else f", {'?' if quota.running is None else quota.running} in use"
        unit = " s" if quota.unit == "seconds" else ""
        text = f"{quota.name}: {quota.needed:,}{unit} for the job{used}"
        if not quota.is_exceeded:
            yield ok(f"{text}, of {quota.limit:,.0f}{unit}")
        else:
            yield missing(f"{text}, and the quota is {quota.limit:,.0f}{unit}", quota.increase(case.region))


def image(case: TrainingCase) -> Iterator[Verdict]:
    chosen = images.choose(case.resolved.options, case.resolved.instances, case.region, case.now.date())
    if not chosen.known:
        yield from examined(case, chosen.uri, case.resolved.instances[0], PUSH_THERE)
    elif chosen.patched_until is not None and chosen.patched_until < case.now.date():
        yield warning(f"{chosen.uri}: AWS has not patched it since {chosen.patched_until}", "use another --image")
    else:
        processor = case.resolved.instances[0].gpu_model or "CPUs"
        yield ok(f"AWS's own, with kernels for {processor}: {chosen.uri.rpartition('/')[2]}")


def queue(case: TrainingCase) -> Iterator[Verdict]:
    """The queue of --queue exists, has room for the job, and these credentials may submit to it."""
    options = case.resolved.options
    if options.queue is None:
        return
    facts = training_jobs.queues(case.aws).facts(options.queue)
    if options.nodes > facts.most:
        raise_it = f"python -m launch.infra up --queue {facts.name}:{options.nodes}"
        yield missing(f"{facts.name} has {facts.most} instances, and the job needs {options.nodes}", raise_it)
    else:
        yield ok(f"{facts.fact.text}")
    if not case.identity.is_root:
        attach = "attach the policy aws-ddp-toolkit-launcher-queue: infra/queue.md"
        yield verdict(case, case.identity.principal, QUEUED, lambda _policies: attach, "submit the job")


def left(case: TrainingCase) -> Iterator[Verdict]:
    names = [job.start for job in training_jobs.costing(case.aws, case.now) if not job.waits]
    if names:
        stop = f"python -m launch.sagemaker status --region {case.region}"
        yield warning(
            f"{len(names)} training {'job is' if len(names) == 1 else 'jobs are'} billed now: {', '.join(names[:3])}",
            stop,
        )
    else:
        yield ok("none")


SAGEMAKER = "arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{JOB}"

LAUNCHER = [
    Right(["sagemaker:CreateTrainingJob"], [SAGEMAKER], TAGGED),
    Right(["sagemaker:AddTags"], [SAGEMAKER], {"sagemaker:TaggingAction": "CreateTrainingJob", **TAGGED}),
    Right(["sagemaker:StopTrainingJob", "sagemaker:UpdateTrainingJob"], [SAGEMAKER], CARRIES),
    Right(["iam:PassRole"], [f"{ROLE}{{JOB_ROLE}}"], {"iam:PassedToService": "sagemaker.amazonaws.com"}),
    Right(["logs:FilterLogEvents"], [f"{LOGS}/aws/sagemaker/TrainingJobs"]),
    *JOB_FOLDER,
]

SERVICE_JOB = "arn:aws:batch:{REGION}:{ACCOUNT}:service-job/x"
QUEUED = [
    Right(["batch:SubmitServiceJob"], ["arn:aws:batch:{REGION}:{ACCOUNT}:job-queue/{QUEUE}", SERVICE_JOB], TAGGED),
    Right(["batch:TagResource"], [SERVICE_JOB], TAGGED),
    Right(["batch:TerminateServiceJob"], [SERVICE_JOB], CARRIES),
]

TRAINING_JOB = [
    Right(["s3:GetObject", "s3:PutObject"], [f"{FOLDER}run/x"], OWN_ACCOUNT),
    Right(["logs:CreateLogStream", "logs:PutLogEvents"], [f"{LOGS}/aws/sagemaker/TrainingJobs:log-stream:x"]),
]

LISTS_SOURCES = [Right(["s3:ListBucket"], ["arn:aws:s3:::{BUCKET}"], {**OWN_ACCOUNT, "s3:prefix": f"{SOURCES}/x"})]


def names(case: TrainingCase) -> Mapping[str, str]:
    """The values of {NAMES} that only these permissions use."""
    return {"JOB_ROLE": _role_of(case), "QUEUE": queue_name(case.resolved.options.queue or "")}


def _role_of(case: TrainingCase) -> str:
    """The name of the training job's role."""
    return (case.resolved.options.role or lookup.ROLE).rpartition("/")[2]


def role(case: TrainingCase) -> Iterator[Verdict]:
    """The role exists, and SageMaker may assume it."""
    found = describe_role(case.aws, _role_of(case), "--role")
    yield trusting(case, found, ["sagemaker.amazonaws.com"], "sagemaker-trust")


def of_training_job(case: TrainingCase) -> Iterator[Verdict]:
    rights = [*TRAINING_JOB, *of_script(case, [*READS_SOURCE, *LISTS_SOURCES])]
    yield from of_role(case, _role_of(case), rights, "sagemaker")


OWN_NETWORK = "give a --subnet and a --security-group of one VPC, or neither"


def vpc(case: TrainingCase) -> Iterator[Verdict]:
    """Subnets and security groups are in one VPC, and a group allows traffic between instances.

    https://docs.aws.amazon.com/sagemaker/latest/dg/train-vpc.html
    """
    options = case.resolved.options
    if not options.subnet:
        return
    subnets = find_subnets(case.aws, tuple(options.subnet), ())
    groups = case.aws.pages("ec2", "DescribeSecurityGroups", "SecurityGroups", {"GroupIds": [*options.security_group]})
    yield _groups(case, groups, subnets[0].vpc) or ok(f"{len(subnets)} subnets in {subnets[0].vpc}")
    exits = find_exits(case.aws, subnets)
    if mute := without_dns(options.security_group[0], closed_to(exits[subnets[0].id].dns, groups)):
        yield missing(*split(mute))
    yield from _connectivity(case, exits, subnets[0].vpc)


def _groups(case: TrainingCase, groups: Sequence[Mapping[str, Any]], vpc_id: str) -> Verdict | None:
    """A problem with the security groups, or None."""
    nodes, first = case.resolved.options.nodes, groups[0]["GroupId"]
    outside = [group["GroupId"] for group in groups if group["VpcId"] != vpc_id]
    if outside:
        return missing(f"{', '.join(outside)} is not in {vpc_id}, where the subnets are", OWN_NETWORK)
    if nodes == 1:
        return None
    if not _names_itself(groups, "IpPermissions"):
        allow = f"aws ec2 authorize-security-group-ingress --group-id {first} --protocol all --source-group {first}"
        return missing(f"no security group lets {nodes} instances talk to each other", allow)
    # 0.0.0.0/0 does not cover EFA traffic, which has no IP addresses:
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html, the security group
    uses_efa = any(one.efa for one in case.resolved.instances)
    if uses_efa and not _names_itself(groups, "IpPermissionsEgress"):
        rule = f'"IpProtocol=-1,UserIdGroupPairs=[{{GroupId={first}}}]"'
        allow = f"aws ec2 authorize-security-group-egress --group-id {first} --ip-permissions {rule}"
        return missing("no security group lets all traffic out to itself, which EFA requires", allow)
    return None


def _names_itself(groups: Sequence[Mapping[str, Any]], rules: str) -> bool:
    """Whether a group's `rules` allow all traffic from or to itself."""
    return any(
        rule.get("IpProtocol") == "-1" and pair.get("GroupId") == group["GroupId"]
        for group in groups
        for rule in group.get(rules, ())
        for pair in rule.get("UserIdGroupPairs", ())
    )


def _connectivity(case: TrainingCase, exits: Mapping[str, Exit], vpc_id: str) -> Iterator[Verdict]:
    """A training job's interfaces have no public address: S3 needs a NAT gateway or endpoint, and pip a NAT gateway."""
    closed = {subnet: found for subnet, found in exits.items() if found.way != "other"}
    cut_off = [subnet for subnet, found in closed.items() if "s3" not in found.endpoints]
    if cut_off:
        service = f"com.amazonaws.{case.region}.s3"
        make = f"aws ec2 create-vpc-endpoint --vpc-id {vpc_id} --service-name {service} --region {case.region}"
        routes = " ".join(sorted({closed[subnet].table for subnet in cut_off}))
        yield missing(
            f"{', '.join(cut_off)}: neither a NAT gateway nor an endpoint for S3", f"{make} --route-table-ids {routes}"
        )
    elif closed:
        yield from _without_internet(case, ", ".join(closed))
    else:
        yield ok("NAT gateways")


def _without_internet(case: TrainingCase, subnets: str) -> Iterator[Verdict]:
    """Without internet, pip has no index: the image must contain the trainer's dependencies, as launch.image's does."""
    options = case.resolved.options
    image = images.choose(options, case.resolved.instances, case.region, case.now.date())
    needed = bundle.named(options, image, case.job.train)
    if needed and image.known:
        yield missing(
            f"{subnets}: an endpoint for S3 but no NAT gateway, and pip must install {', '.join(needed)}",
            "add a NAT gateway; or python -m launch.image push --target sagemaker, and give that --image",
        )
    else:
        all_of_them = ", ".join(needed) or "everything"
        yield ok(f"an endpoint for S3; pip has no way to an index, so the image must contain {all_of_them}")


def channels(case: TrainingCase) -> Iterator[Verdict]:
    """Each channel in S3 has objects; file systems can only be checked from within their VPC."""
    for channel in located(case.resolved.channels, case.account, case.region):
        yield (
            _in_s3(case, channel)
            if channel.kind == "s3"
            else unknown(f"{channel.name}: {channel.uri} is not checked; it must be mountable from the --subnet")
        )


def _in_s3(case: TrainingCase, channel: Channel) -> Verdict:
    place = parse_s3(channel.place)
    assert place is not None
    bucket, prefix = place.bucket, place.key
    try:
        found = case.aws.call("s3", "ListObjectsV2", {"Bucket": bucket, "Prefix": prefix, "MaxKeys": 1})
    except AwsError as error:
        if error.aws_code != "NoSuchBucket":
            raise
        return missing(f"{channel.name}: there is no bucket {bucket}", "give another --data")
    if not found.get("Contents"):
        upload = f"python -m launch.data, or aws s3 cp --recursive FOLDER {channel.place}"
        return missing(f"{channel.name}: there is nothing under {channel.place}", upload)
    return ok(f"{channel.name}: {channel.place}")
