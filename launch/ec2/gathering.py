"""All that the planner has to know before a launch, gathered.  Reads only."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from launch.core import pricelist
from launch.core.aws import Aws
from launch.core.instance.subnets import Subnet, find_subnets
from launch.core.lookup import Lookups, check_bucket, content_at, region_or_some
from launch.core.names import ROLES_VERSION, Folder, bucket_of
from launch.core.price import CATALOGS, Prices
from launch.ec2.facts import Facts
from launch.ec2.finding import find
from launch.ec2.fleet import Fleet
from launch.ec2.lookup import (
    check_profile,
    find_ami,
    find_exits,
    find_image,
    find_quotas,
    find_reservation,
    find_role,
    find_snapshot,
    log_group_exists,
    offered_zones,
    spot_prices,
)
from launch.ec2.names import BACKEND_NAME
from launch.ec2.resolved import Resolved
from launch.ec2.stop_marker import is_stopped
from launch.ec2.written import members_of, spec_of, start_of
from trainer.errors import TrainerError


def look_up(
    aws: Aws,
    resolved: Resolved,
    job: str,
    dataset: str,
    now: datetime,
    cache: Callable[[str], Path | None] = pricelist.no_cache,
) -> Facts:
    """All facts for the planner.  Raises no AwsError: failures are among the problems.

    cache: the file with a region's prices.
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
    return replace(facts, problems=tuple(lookups.problems), unknown=tuple(lookups.unknown))


def _with_job(
    facts: Facts, aws: Aws, lookups: Lookups, resolved: Resolved, job: str
) -> tuple[Facts, Mapping[str, Any]]:
    """Where its nodes may be, what there is of it, and what an unfinished start of it has decided."""
    options, account = resolved.options, str(facts.account)
    folder = Folder(options.bucket or bucket_of(account, facts.region), job)
    no_subnets: tuple[Subnet, ...] = ()
    subnets = lookups.required(partial(find_subnets, aws, options.subnet, options.zones), no_subnets)
    spec = _spec(aws, lookups, folder, account)
    fleet = lookups.required(partial(_fleet, aws, job), None)
    found = replace(
        facts,
        subnets=subnets,
        spec=spec,
        fleet=fleet or Fleet(),
        fleet_is_known=fleet is not None,
        last_generation=lookups.required(partial(_last_generation, aws, folder), 0),
    )
    return found, {} if spec is None or "ended" in spec else spec


def _with_parts(
    facts: Facts, aws: Aws, lookups: Lookups, resolved: Resolved, dataset: str, earlier: Mapping[str, Any]
) -> Facts:
    """What nodes are made of; an unfinished start has chosen already."""
    options = resolved.options
    types = [instance.name for instance in resolved.instances]
    offered: dict[str, frozenset[str]] = {}
    find_given_image = partial(find_image, aws, options.image, str(facts.account), facts.region)
    return replace(
        facts,
        offered=lookups.optional("zones of the types", partial(offered_zones, aws, types), offered),
        exits=lookups.optional("routes out of the subnets", partial(find_exits, aws, facts.subnets), {}),
        ami=lookups.required(partial(find_ami, aws, options.ami or earlier.get("ami")), None),
        image=earlier.get("image") or lookups.required(find_given_image, None),
        snapshot=lookups.required(partial(find_snapshot, aws, resolved, earlier.get("snapshot"), dataset), None),
        content=content_at(aws, resolved.data_in_s3),
    )


def _with_prices(
    facts: Facts, aws: Aws, lookups: Lookups, resolved: Resolved, cache: Path | None, earlier: Mapping[str, Any]
) -> Facts:
    """How many machines one may have, and what they cost."""
    options = resolved.options
    # A capacity block is paid in advance, at a price of its own.
    types = [] if options.capacity_block else [instance.name for instance in resolved.instances]
    reservation = options.capacity_reservation or options.capacity_block
    return replace(
        facts,
        quotas=lookups.optional("vCPU quotas", partial(find_quotas, aws, resolved), {}),
        spot_usd_per_hour=lookups.optional("spot prices", partial(spot_prices, aws, resolved, facts.now), {}),
        prices=_prices(aws, lookups, types, facts.now, cache, earlier),
        reservation=lookups.required(partial(find_reservation, aws, reservation), None),
    )


def _with_rights(facts: Facts, aws: Aws, lookups: Lookups, resolved: Resolved) -> Facts:
    """What the account gives the job: its roles and its log."""
    no_role: tuple[str | None, str, int] = (None, "", ROLES_VERSION)
    role, old_stack, roles = lookups.required(partial(find_role, aws, resolved.options.scheduler_role), no_role)
    lookups.required(partial(check_profile, aws, resolved.options.instance_profile), None)
    has_log_group = lookups.optional("the log group", partial(log_group_exists, aws), True)
    return replace(facts, scheduler_role=role, old_stack=old_stack, roles=roles, has_log_group=has_log_group)


def _fleet(aws: Aws, job: str) -> Fleet | None:
    return find(aws, job)


def _spec(aws: Aws, lookups: Lookups, folder: Folder, account: str) -> Mapping[str, Any] | None:
    """job.json of an earlier start; not read from a bucket that fails its check."""
    lookups.required(partial(check_bucket, aws, folder.bucket, account), None)
    return None if lookups.problems else lookups.required(partial(_known_spec, aws, folder), None)


def _known_spec(aws: Aws, folder: Folder) -> Mapping[str, Any] | None:
    """job.json.  A start that was stopped has ended, also where the stop could not write that there."""
    spec = spec_of(aws, folder, BACKEND_NAME)
    started = start_of(spec or {})
    if spec is None or started is None or "ended" in spec or not is_stopped(aws, folder, started):
        return spec
    return {**spec, "ended": spec["started"]}


def _prices(
    aws: Aws, lookups: Lookups, types: list[str], now: datetime, cache: Path | None, earlier: Mapping[str, Any]
) -> Prices:
    """The region's; those of an unfinished start, whose nodes have them in their tags, stay."""
    if "prices" in earlier:
        return Prices(**earlier["prices"])
    unknown = replace(CATALOGS, are_known=False)
    return lookups.optional("the region's prices", partial(pricelist.look_up, aws, types, now, cache), unknown)


def _last_generation(aws: Aws, folder: Folder) -> int:
    return int((members_of(aws, folder) or {}).get("generation", 0))
