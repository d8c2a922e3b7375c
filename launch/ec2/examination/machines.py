"""Quotas, offerings, reservation, AMI and container: whether EC2 can give the job its machines."""

import re
from collections.abc import Iterator

from launch.aws import pricelist
from launch.aws.examination.case import Verdict, missing, ok, split, warning
from launch.aws.examination.image import PUSH, examined
from launch.aws.quotas import Quota, quota_of
from launch.core.catalog import Instance
from launch.core.errors import AwsError
from launch.ec2 import lookup
from launch.ec2.examination import shared
from launch.ec2.examination.shared import Ec2Case

OTHER_PLACE = "use another --instance-type, --zones or --region"


def quotas(case: Ec2Case) -> Iterator[Verdict]:
    if case.resolved.options.capacity_block:
        return  # has none
    found = lookup.find_quotas(case.aws, case.resolved)
    for instance in case.resolved.instances:
        family = quota_of(instance, case.resolved.options.spot)
        yield _room(case, instance, family.code, found[family.name])


def _room(case: Ec2Case, instance: Instance, code: str, quota: Quota) -> Verdict:
    needed = case.resolved.options.nodes * instance.vcpus
    text = f"{quota.name}: {needed} vCPUs for {case.resolved.options.nodes} x {instance.name}, {quota.running} in use"
    if needed + quota.running <= quota.limit:
        return ok(f"{text}, of {quota.limit:g}")
    return missing(f"{text}, and the quota is {quota.limit:g}", _ask("ec2", code, needed + quota.running, case.region))


def _ask(service: str, code: str, value: float, region: str) -> str:
    return (
        f"aws service-quotas request-service-quota-increase --service-code {service} --quota-code {code} "
        f"--desired-value {value:g} --region {region}"
    )


def offerings(case: Ec2Case) -> Iterator[Verdict]:
    zones = {subnet.zone for subnet in shared.subnets(case)}
    found = lookup.offered_zones(case.aws, [instance.name for instance in case.resolved.instances])
    for name, offered in found.items():
        if offered & zones:
            yield ok(f"{name} in {', '.join(sorted(offered & zones))}")
        elif offered:
            yield missing(f"{name} is offered only in {', '.join(sorted(offered))}, where the job has no subnet",
                          f"give a --subnet there, or {OTHER_PLACE}")  # fmt: skip
        else:
            yield missing(f"{name} is not offered in {case.region}", OTHER_PLACE)


def prices(case: Ec2Case) -> Iterator[Verdict]:
    """Without the region's prices a job with a limit in USD is refused."""
    names, limit = [instance.name for instance in case.resolved.instances], case.resolved.options.max_usd
    try:
        found = pricelist.look_up(case.aws, names, case.now, None)
    except AwsError as error:
        verdict = warning if limit is None else missing
        yield verdict(*split(str(error)))
        return
    yield ok(found.source)


def reservation(case: Ec2Case) -> Iterator[Verdict]:
    options = case.resolved.options
    found = lookup.find_reservation(case.aws, options.capacity_reservation or options.capacity_block)
    if found is None:
        return
    if found.instance_type != case.resolved.instances[0].name:
        yield missing(f"{found.id} is for {found.instance_type}", f"--instance-type {found.instance_type}")
    elif found.free < options.nodes:
        yield missing(f"{found.id} has {found.free} instances free, and the job needs {options.nodes}",
                      f"--nodes {found.free}")  # fmt: skip
    else:
        yield ok(f"{found.id}: {found.free} instances free in {found.zone}")


def ami(case: Ec2Case) -> Iterator[Verdict]:
    found, root_gb = shared.ami(case), case.resolved.options.root_gb
    (row,) = case.aws.call("ec2", "DescribeImages", {"ImageIds": [found.id]})["Images"]
    name, state, processor = row.get("Name", ""), row.get("State", "available"), row.get("Architecture", "x86_64")
    if state != "available":
        yield missing(f"{found.id} is {state}", "use another --ami, or none")
    elif processor != "x86_64":
        yield missing(
            f"{found.id} is for {processor}; the types in the catalog are x86_64", "use another --ami, or none"
        )
    elif found.gib > root_gb:
        yield missing(f"{found.id} needs {found.gib} GiB and the root volume has {root_gb}", f"--root-gb {found.gib}")
    elif case.resolved.instances[0].is_gpu and not _is_for_gpus(name):
        fix = "leave out --ami, or make sure that the AMI has NVIDIA's driver and container toolkit, docker and aws"
        yield warning(f"the name of {found.id} ({name or 'none'}) mentions no NVIDIA driver", fix)
    else:
        yield ok(f"{found.id}: {name}")


def _is_for_gpus(name: str) -> bool:
    return re.search(r"nvidia|gpu|cuda|deep learning", name, re.IGNORECASE) is not None


def image(case: Ec2Case) -> Iterator[Verdict]:
    yield from examined(case, shared.image(case), case.resolved.instances[0], PUSH)
