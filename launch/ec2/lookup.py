"""The look-ups before a launch: one function each, and look_up() for all.  Reads only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

from launch.aws import containers, pricelist
from launch.aws.batch import Queued, QueueFacts
from launch.aws.client import Aws
from launch.aws.instances.facts import (
    Ami,
    Quota,
    Subnet,
    closed_dns,
    describe_ami,
    find_exits,
    find_quotas,
    find_subnets,
    find_types,
    offered_zones,
    quota_of,
    ssm_parameter,
)
from launch.aws.instances.inventory import Fleet, find
from launch.aws.lookup import (
    NOT_FOUND,
    Lookups,
    by_digest,
    check_bucket,
    content_at,
    describe_profile,
    describe_role,
    older_stack,
    region_or_some,
    spec_version,
)
from launch.aws.names import DATA_TAG, ROLES_VERSION, Folder, bucket_of, tag_values
from launch.aws.published import content_of
from launch.core.catalog import Instance
from launch.core.errors import AwsError
from launch.core.price import CATALOGS, Prices
from launch.ec2.backend import BACKEND_NAME, LOG_GROUP
from launch.ec2.checks import Resolved
from launch.ec2.facts import Facts, Reservation, Snapshot
from launch.ec2.job_folder import is_stopped, members_of, start_of
from launch.ec2.options import IMAGE, Ec2Options
from launch.ec2.queue import check_vcpus, find_queued, queue_facts
from launch.ec2.warm import find_warm
from trainer.errors import TrainerError

# In order; Ubuntu 22.04 is supported until 2027.
AMI_PARAMETERS = tuple(
    f"/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-{version}/latest/ami-id"
    for version in ("22.04", "24.04")
)


def find_ami(aws: Aws, wanted: str | None) -> Ami:
    """The AMI `wanted`, or AWS's newest one for GPUs, with its root device."""
    return describe_ami(aws, wanted or _newest_ami(aws), "give another with --ami, or omit it")


def _newest_ami(aws: Aws) -> str:
    """AWS's newest AMI for GPUs, of the first Ubuntu version that the region still offers."""
    first, *others = AMI_PARAMETERS
    for parameter in others:
        try:
            return ssm_parameter(aws, first)
        except AwsError as error:
            if error.aws_code != "ParameterNotFound":
                raise
            first = parameter
    return ssm_parameter(aws, first)


def find_image(aws: Aws, wanted: str, account: str, region: str) -> str:
    """The image's URI with its digest, so that every node and every restart runs the same code."""
    host, slash, _ = wanted.partition("/")
    if slash and ("." in host or ":" in host):
        return wanted  # a full URI, perhaps in another registry
    repository, at, digest = wanted.partition("@")
    repository, _, tag = repository.partition(":")
    image_id = {"imageDigest": digest} if at else {"imageTag": tag or "latest"}
    query = {"repositoryName": repository, "imageIds": [image_id]}
    details = aws.call("ecr", "DescribeImages", query)["imageDetails"]
    if not details:
        words = f"ECR has no image {wanted}; push it (python -m launch.image push), or give another --image."
        raise AwsError(words, NOT_FOUND[0])
    return f"{account}.dkr.ecr.{region}.amazonaws.com/{repository}@{details[0]['imageDigest']}"


def find_image_or_aws(aws: Aws, resolved: Resolved, account: str, region: str, today: date) -> str:
    """The image of find_image(); AWS's newest for PyTorch if none is named and the account has none of the toolkit.

    Not for a job in several regions, which must run the same image in each.
    """
    options = resolved.options
    try:
        return find_image(aws, options.image, account, region)
    except AwsError as error:
        if options.image != IMAGE or len(options.region) > 1 or error.aws_code not in NOT_FOUND:
            raise
    container = containers.newest(resolved.instances, region, today)
    return by_digest(aws, container.uri, "AWS may not have it in this region: give another --image.")


def find_snapshot(aws: Aws, resolved: Resolved, earlier: str | None, dataset: str) -> Snapshot | None:
    """The snapshot given, else that of an earlier start, else the account's newest with the data set's tag."""
    if resolved.data_volume == "none":
        return None
    snapshot, name = resolved.options.data_snapshot or earlier, resolved.options.data or dataset
    query: dict[str, Any] = {"SnapshotIds": [snapshot]}
    if snapshot is None:
        query = {"OwnerIds": ["self"], "Filters": [{"Name": f"tag:{DATA_TAG}", "Values": [name]}]}
    rows = aws.pages("ec2", "DescribeSnapshots", "Snapshots", query)
    if not rows:
        raise AwsError(
            f"no snapshot in {aws.region} is tagged {DATA_TAG}={name}; publish the data (python -m launch.data publish "
            f"FOLDER --name {name}), or give a snapshot with --data-snapshot, or a folder in S3 with --data-s3."
        )
    newest = max(rows, key=lambda row: (row["State"] == "completed", row["StartTime"]))
    if newest["State"] == "error":  # such as an upload of launch.data that got no block for a day
        raise AwsError(f"AWS could not complete {newest['SnapshotId']}; publish the data again, which replaces it.")
    if newest["State"] != "completed":
        raise AwsError(f"snapshot {newest['SnapshotId']} is {newest['State']}; wait until it is completed.")
    content = content_of(tag_values(newest))
    return Snapshot(newest["SnapshotId"], newest["VolumeSize"], newest.get("FullSnapshotSizeInBytes", 0), content)


def quotas_of(aws: Aws, resolved: Resolved) -> dict[str, Quota]:
    """The vCPU quotas of the types, with their current use."""
    families = {quota_of(instance, resolved.options.spot) for instance in resolved.instances}
    return find_quotas(aws, families)


def spot_prices(aws: Aws, resolved: Resolved, now: datetime) -> dict[str, float]:
    """The current price of each type in its most expensive zone; empty for other markets."""
    if not resolved.options.spot:
        return {}
    rows = aws.pages(
        "ec2",
        "DescribeSpotPriceHistory",
        "SpotPriceHistory",
        {
            "InstanceTypes": [instance.name for instance in resolved.instances],
            "ProductDescriptions": ["Linux/UNIX"],
            "StartTime": now,  # without it, AWS returns all prices of the last 90 days
        },
    )
    newest = {(row["InstanceType"], row["AvailabilityZone"]): row for row in sorted(rows, key=lambda r: r["Timestamp"])}
    prices: dict[str, float] = {}
    for (name, _), row in newest.items():
        prices[name] = max(prices.get(name, 0.0), float(row["SpotPrice"]))
    return prices


def spot_scores(aws: Aws, resolved: Resolved, subnets: Sequence[Subnet]) -> dict[str, int]:
    """How likely spot nodes are to start in each zone, from 1 to 10; empty for other markets.

    AWS scores its ten best zones, and answers low numbers for fewer than three types, which still have an order.
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetSpotPlacementScores.html
    """
    if not resolved.options.spot:
        return {}
    query = {
        "InstanceTypes": [instance.name for instance in resolved.instances],
        "TargetCapacity": resolved.options.nodes,
        "SingleAvailabilityZone": True,
        "RegionNames": [aws.region],
    }
    rows = aws.pages("ec2", "GetSpotPlacementScores", "SpotPlacementScores", query)
    scores = {row["AvailabilityZoneId"]: int(row["Score"]) for row in rows}
    return {subnet.zone: scores[subnet.zone_id] for subnet in subnets if subnet.zone_id in scores}


def find_reservation(aws: Aws, wanted: str | None) -> Reservation | None:
    if wanted is None:
        return None
    query = {"CapacityReservationIds": [wanted]}
    rows = aws.call("ec2", "DescribeCapacityReservations", query)["CapacityReservations"]
    if not rows:
        raise AwsError(f"there is no reservation {wanted} in {aws.region}; give one of this region, or leave it out.")
    row = rows[0]
    if row["State"] != "active":
        raise AwsError(f"reservation {wanted} is {row['State']}; start the job once it is active.")
    # At its end, instances of a block are terminated; those of another reservation continue as ordinary ones.
    ends = row.get("EndDate") if row.get("ReservationType") == "capacity-block" else None
    return Reservation(wanted, row["AvailabilityZone"], row["InstanceType"], row["AvailableInstanceCount"], ends)


def find_role(aws: Aws, name: str) -> tuple[str | None, str, int]:
    """The ARN of the role for time limits, and the region and version of the stack that made it, if that is older."""
    role = describe_role(aws, name, "--scheduler-role")
    return (str(role["Arn"]), *older_stack(role))


def log_group_exists(aws: Aws) -> bool:
    groups = aws.call("logs", "DescribeLogGroups", {"logGroupNamePrefix": LOG_GROUP})["logGroups"]
    return any(group["logGroupName"] == LOG_GROUP for group in groups)


def look_up(
    aws: Aws,
    resolved: Resolved,
    job: str,
    dataset: str,
    now: datetime,
    cache: Callable[[str], Path | None] = pricelist.no_cache,
) -> Facts:
    """All facts for the planner.  AwsErrors are not raised but collected in the facts' problems.

    cache: the file in which prices of a region are cached.
    """
    try:
        region, caller = aws.region, aws.call("sts", "GetCallerIdentity")
    except TrainerError as problem:
        unknown = "nothing was looked up: account, zones, AMI, image, snapshot, quotas"
        here = region_or_some(aws)
        return Facts(here, now=now, fleet_is_known=False, problems=(problem,), unknown=(unknown,))
    facts = Facts(region, account=str(caller["Account"]), owner=str(caller.get("UserId", "")), now=now)
    lookups = Lookups()
    facts, earlier = _with_job(facts, aws, lookups, resolved, job)
    facts = _with_parts(facts, aws, lookups, resolved, dataset, earlier)
    facts = _with_prices(facts, aws, lookups, resolved, cache(region), earlier)
    facts = _with_rights(facts, aws, lookups, resolved)
    if resolved.options.queue is not None and region in (*resolved.options.region, region)[:1]:
        facts = _with_queue(facts, aws, lookups, resolved, job)
    return replace(facts, problems=tuple(lookups.problems), unknown=tuple(lookups.unknown))


def _with_job(
    facts: Facts, aws: Aws, lookups: Lookups, resolved: Resolved, job: str
) -> tuple[Facts, Mapping[str, Any]]:
    """The facts of the job: its network, existing resources, and the decisions of an unfinished start."""
    options, account = resolved.options, str(facts.account)
    folder = Folder(options.bucket or bucket_of(account, facts.region), job)
    no_subnets: tuple[Subnet, ...] = ()
    subnets = lookups.required(partial(find_subnets, aws, options.subnet, options.zones), no_subnets)
    spec, etag = _spec(aws, lookups, folder, account)
    everything = lookups.required(partial(_fleet, aws), None)
    fleet = everything.of(job) if everything else None
    last_generation = lookups.required(partial(_last_generation, aws, folder), 0)
    found = replace(
        facts,
        subnets=subnets,
        exits=lookups.optional("routes out of the subnets", partial(find_exits, aws, subnets), {}),
        spec=spec,
        etag=etag,
        fleet=fleet or Fleet(),
        fleet_is_known=fleet is not None,
        last_generation=last_generation,
    )
    found = _with_warm(found, aws, lookups, options, everything) if everything else found
    return found, {} if spec is None or "ended" in spec else spec


def _with_warm(facts: Facts, aws: Aws, lookups: Lookups, options: Ec2Options, everything: Fleet) -> Facts:
    """The warm nodes of other jobs, for a job that begins now."""
    if facts.fleet.nodes or facts.last_generation or options.queue is not None:
        return facts
    find_them = partial(find_warm, aws, everything, options, facts.now)
    return replace(facts, warm=lookups.optional("warm nodes", find_them, ()))


def _with_parts(
    facts: Facts, aws: Aws, lookups: Lookups, resolved: Resolved, dataset: str, earlier: Mapping[str, Any]
) -> Facts:
    """The facts of the nodes' parts: AMI, image, snapshot.  Those of an unfinished start are kept."""
    options = resolved.options
    types = [instance.name for instance in resolved.instances]
    offered: dict[str, frozenset[str]] = {}
    none: dict[str, Instance] = {}
    find_given_image = partial(find_image_or_aws, aws, resolved, str(facts.account), facts.region, facts.now.date())
    groups = (options.security_group,) if options.security_group else ()
    return replace(
        facts,
        closed_dns=lookups.optional("the security group's rules", partial(closed_dns, aws, groups, facts.dns), ()),
        types=lookups.required(partial(find_types, aws, resolved.instances), none),
        offered=lookups.optional("zones of the types", partial(offered_zones, aws, types), offered),
        ami=lookups.required(partial(find_ami, aws, options.ami or earlier.get("ami")), None),
        image=earlier.get("image") or lookups.required(find_given_image, None),
        snapshot=lookups.required(partial(find_snapshot, aws, resolved, earlier.get("snapshot"), dataset), None),
        content=content_at(aws, resolved.data_in_s3),
    )


def _with_prices(
    facts: Facts, aws: Aws, lookups: Lookups, resolved: Resolved, cache: Path | None, earlier: Mapping[str, Any]
) -> Facts:
    """The quotas and prices."""
    options = resolved.options
    # A capacity block is paid in advance at its own price.
    types = [] if options.capacity_block else [instance.name for instance in resolved.instances]
    reservation = options.capacity_reservation or options.capacity_block
    return replace(
        facts,
        quotas=lookups.optional("vCPU quotas", partial(quotas_of, aws, resolved), {}),
        spot_usd_per_hour=lookups.optional("spot prices", partial(spot_prices, aws, resolved, facts.now), {}),
        spot_scores=lookups.optional("spot placement scores", partial(spot_scores, aws, resolved, facts.subnets), {}),
        prices=_prices(aws, lookups, types, facts.now, cache, earlier),
        reservation=lookups.required(partial(find_reservation, aws, reservation), None),
    )


def _with_rights(facts: Facts, aws: Aws, lookups: Lookups, resolved: Resolved) -> Facts:
    """The roles and the log group."""
    no_role: tuple[str | None, str, int] = (None, "", ROLES_VERSION)
    role, old_stack, roles = lookups.required(partial(find_role, aws, resolved.options.scheduler_role), no_role)
    lookups.required(partial(describe_profile, aws, resolved.options.instance_profile, "--instance-profile"), None)
    has_log_group = lookups.optional("the log group", partial(log_group_exists, aws), True)
    return replace(facts, scheduler_role=role, old_stack=old_stack, roles=roles, has_log_group=has_log_group)


def _with_queue(facts: Facts, aws: Aws, lookups: Lookups, resolved: Resolved, job: str) -> Facts:
    """The queue, and the job's launcher in it."""
    no_queue: QueueFacts | None = None
    none: Queued | None = None
    queue = lookups.required(partial(queue_facts, aws, str(resolved.options.queue)), no_queue)
    if queue:
        lookups.required(partial(check_vcpus, aws, resolved), None)
    queued = lookups.required(partial(find_queued, aws, job), none) if queue else None
    return replace(facts, queue=queue, queued=None if queued and queued.is_over else queued)


def _fleet(aws: Aws) -> Fleet | None:
    return find(aws)


def _spec(aws: Aws, lookups: Lookups, folder: Folder, account: str) -> tuple[Mapping[str, Any] | None, str]:
    """job.json of an earlier start, and its ETag; not read from a bucket that fails the check."""
    none: tuple[Mapping[str, Any] | None, str] = (None, "")
    lookups.required(partial(check_bucket, aws, folder.bucket, account), None)
    return none if lookups.problems else lookups.required(partial(_known_spec, aws, folder), none)


def _known_spec(aws: Aws, folder: Folder) -> tuple[Mapping[str, Any] | None, str]:
    """job.json.  A start with a stop marker counts as ended, even if the stop could not update job.json."""
    spec, etag = spec_version(aws, folder, BACKEND_NAME)
    started = start_of(spec or {})
    if spec is None or started is None or "ended" in spec or not is_stopped(aws, folder, started):
        return spec, etag
    return {**spec, "ended": spec["started"]}, etag


def _prices(
    aws: Aws, lookups: Lookups, types: list[str], now: datetime, cache: Path | None, earlier: Mapping[str, Any]
) -> Prices:
    """The region's prices; an unfinished start keeps its own, which are in its nodes' tags."""
    if "prices" in earlier:
        return Prices(**earlier["prices"])
    unknown = replace(CATALOGS, are_known=False)
    return lookups.optional("the region's prices", partial(pricelist.look_up, aws, types, now, cache), unknown)


def _last_generation(aws: Aws, folder: Folder) -> int:
    return int((members_of(aws, folder) or {}).get("generation", 0))
