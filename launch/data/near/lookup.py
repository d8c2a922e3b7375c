"""Look-ups for an instance that publishes.  Reads only."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from launch.aws import network, pricelist
from launch.aws.client import SMALL_BYTES, Aws
from launch.aws.instances.facts import Quota, Subnet, find_quotas, find_subnets, quota_of
from launch.aws.lookup import Lookups, check_bucket, missing, read_json, region_or_some
from launch.aws.names import JOB_TAG, SCHEDULER_ROLE, bucket_of, is_ours, tag_values
from launch.core import catalog
from launch.core.errors import AwsError
from launch.core.manifest import RECORD
from launch.core.price import CATALOGS, Prices
from launch.data.lookup import place_of
from launch.data.near.facts import (
    EXIT,
    NO_AMI,
    PROFILE,
    PUBLISHES_TAG,
    ROOT_GIB,
    RUN,
    Ami,
    Group,
    Machine,
    Near,
    Parts,
    Run,
    prefix_of,
    read_run,
)
from launch.data.near.source import Source, find_source
from launch.data.upload import Place, sizes
from trainer.errors import TrainerError

AMI_PARAMETER = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"


def look_up_run(aws: Aws, name: str) -> Near:
    """The facts of an existing run, for stopping and following it.  Raises AwsError."""
    caller = aws.call("sts", "GetCallerIdentity")
    account = str(caller["Account"])
    bucket = bucket_of(account, aws.region)
    check_bucket(aws, bucket, account)
    near = Near(aws.region, account, str(caller.get("UserId", "")))
    run, etag, ended = known_run(aws, bucket, name)
    over = None
    if run is not None:
        over = end_of(aws, run)
    parts = find_parts(aws, name)
    groups = {group.run: group.id for group in parts.groups}
    return replace(near, run=run, etag=etag, ended=ended, over=over, machines=parts.machines, groups=groups)


def known_run(aws: Aws, bucket: str, name: str) -> tuple[Run | None, str, str]:
    """The run in run.json, the object's ETag, and when the run ended; no run if it is damaged."""
    try:
        answer = aws.call("s3", "GetObject", {"Bucket": bucket, "Key": prefix_of(name) + RUN})
    except AwsError as error:
        if error.aws_code == "NoSuchKey":
            return None, "", ""
        raise
    content = _json(answer["Body"].read(SMALL_BYTES))
    try:
        run = read_run(content)
    except (KeyError, TypeError, ValueError, OverflowError):  # written by another version
        return None, str(answer["ETag"]), ""
    return run, str(answer["ETag"]), str(content.get("ended", ""))


def _json(text: bytes) -> dict[str, Any]:
    import json

    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def end_of(aws: Aws, run: Run) -> Mapping[str, Any] | None:
    """The record of the run's end; None while there is none, or one of another run."""
    found = read_json(aws, run.bucket, run.prefix + EXIT)
    return found if found is not None and found.get("run") == run.id else None


def find_parts(aws: Aws, name: str) -> Parts:
    """The toolkit's instances and groups with the data set's name."""
    tagged = {"Filters": [{"Name": f"tag:{PUBLISHES_TAG}", "Values": [name]}]}
    rows = aws.pages("ec2", "DescribeInstances", "Reservations", tagged)
    nodes = [node for row in rows for node in row["Instances"] if is_ours(tag_values(node))]
    groups = aws.pages("ec2", "DescribeSecurityGroups", "SecurityGroups", tagged)
    return Parts(
        tuple(Machine(node["InstanceId"], node["State"]["Name"], tag_values(node)[JOB_TAG]) for node in nodes),
        tuple(Group(str(row["GroupId"]), tag_values(row)[JOB_TAG]) for row in groups if is_ours(tag_values(row))),
    )


def look_up(
    aws: Aws,
    name: str,
    source: str,
    types: tuple[str, ...],
    subnets: tuple[str, ...],
    now: datetime,
    cache: Callable[[str], Path | None] = pricelist.no_cache,
) -> Near:
    """Look up all facts; AWS's failures become problems."""
    lookups = Lookups()
    try:
        near = look_up_run(aws, name)
    except TrainerError as problem:
        return Near(region_or_some(aws), problems=(problem,))
    nothing: Source | None = None
    no_subnets: tuple[Subnet, ...] = ()
    nowhere: dict[str, frozenset[str]] = {}
    place, there = (
        place_of(name, near.account, near.region),
        lookups.required(partial(find_subnets, aws, subnets, ()), no_subnets),
    )
    no_quotas: dict[str, Quota] = {}
    unknown = replace(CATALOGS, are_known=False)
    offered = lookups.optional("zones of the types", partial(_offered, aws, types), nowhere)
    sold = [name for name in types if offered.get(name)] or list(types)
    prices: Prices = lookups.optional(
        "the region's prices", partial(pricelist.look_up, aws, sold, now, cache(aws.region)), unknown
    )
    lookups.required(partial(_check_profile, aws), None)
    near = replace(
        near,
        source=lookups.required(partial(find_source, aws, source), nothing),
        record=lookups.required(partial(read_json, aws, place.bucket, place.prefix + RECORD), None),
        subnets=there,
        exits=lookups.optional("routes out of the subnets", partial(_exits, aws, there), {}),
        offered=offered,
        quotas=lookups.optional("vCPU quotas", partial(_quotas, aws, types), no_quotas),
        ami=lookups.required(partial(_find_ami, aws), NO_AMI),
        role=lookups.required(partial(_find_role, aws), ""),
        prices=prices,
    )
    return replace(near, problems=tuple(lookups.problems), unknown=tuple(lookups.unknown))


def find_reports(aws: Aws, name: str, account: str, region: str) -> tuple[dict[str, str], ...]:
    """Reports and code that instances have left, as parameters of requests for an object."""
    place = Place(bucket_of(account, region), prefix_of(name), account)
    return tuple(place.of(file) for file in sizes(aws, place))


def look_up_source(aws: Aws, source: str) -> Near:
    """The facts in S3 only, for the plan of a copy to this machine."""
    lookups = Lookups()
    nothing: Source | None = None
    found = lookups.required(partial(find_source, aws, source), nothing)
    return Near(region_or_some(aws), source=found, problems=tuple(lookups.problems))


def _exits(aws: Aws, subnets: tuple[Subnet, ...]) -> dict[str, network.Exit]:
    return network.look_up(aws, subnets[0].vpc, [subnet.id for subnet in subnets]) if subnets else {}


def _offered(aws: Aws, types: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """The zones that offer each type."""
    query = {"LocationType": "availability-zone", "Filters": [{"Name": "instance-type", "Values": list(types)}]}
    rows = aws.pages("ec2", "DescribeInstanceTypeOfferings", "InstanceTypeOfferings", query)
    return {name: frozenset(row["Location"] for row in rows if row["InstanceType"] == name) for name in types}


def _quotas(aws: Aws, types: tuple[str, ...]) -> dict[str, Quota]:
    return find_quotas(aws, {quota_of(catalog.find(name), spot=False) for name in types})


def _find_ami(aws: Aws) -> Ami:
    """Amazon Linux's newest."""
    name = str(aws.call("ssm", "GetParameter", {"Name": AMI_PARAMETER})["Parameter"]["Value"])
    images = aws.call("ec2", "DescribeImages", {"ImageIds": [name]})["Images"]
    if not images:
        raise AwsError(f"AMI {name} does not exist in {aws.region}; give --by here.")
    image = images[0]
    root = str(image.get("RootDeviceName", "/dev/xvda"))
    sizes = [row.get("Ebs", {}).get("VolumeSize", 0) for row in image.get("BlockDeviceMappings", ())]
    return Ami(name, root, max([ROOT_GIB, *sizes]))


def _check_profile(aws: Aws) -> None:
    try:
        aws.call("iam", "GetInstanceProfile", {"InstanceProfileName": PROFILE})
    except AwsError as error:
        raise missing(error, f"instance profile {PROFILE}", "--by here") from error


def _find_role(aws: Aws) -> str:
    try:
        return str(aws.call("iam", "GetRole", {"RoleName": SCHEDULER_ROLE})["Role"]["Arn"])
    except AwsError as error:
        raise missing(error, f"role {SCHEDULER_ROLE}", "--by here") from error
