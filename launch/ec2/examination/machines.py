"""Checks of quotas, offerings, AMI and network: whether EC2 can start the nodes, and they can reach AWS.  At the end
those of the data's snapshot, and of the keys of the volumes created from it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from launch.aws import containers, pricelist
from launch.aws.examination.case import Verdict, missing, ok, split, unknown, warning
from launch.aws.examination.image import PUSH, examined
from launch.aws.examination.permissions import use_of_key
from launch.aws.instances.facts import Quota, closed_dns, offered_zones, quota_of
from launch.aws.names import parse_s3
from launch.aws.network import without_dns
from launch.aws.refusals import DENIED, quota_increase
from launch.core.catalog import Instance
from launch.core.errors import AwsError
from launch.core.plan import FromAnswer, Request
from launch.ec2 import describe, lookup, requests
from launch.ec2.examination import shared
from launch.ec2.examination.shared import Ec2Case
from launch.ec2.facts import Facts
from launch.ec2.requests import Cluster
from launch.ec2.volume_init import volume_init

OTHER_PLACE = "use another --instance-type, --zones or --region"


def quotas(case: Ec2Case) -> Iterator[Verdict]:
    if case.resolved.options.capacity_block:
        return  # capacity blocks have no quota
    found = lookup.quotas_of(case.aws, case.resolved)
    for instance in case.resolved.instances:
        family = quota_of(instance, case.resolved.options.spot)
        if not instance.is_known:
            yield unknown(f"{instance.name} is not in the catalog: the launch looks it up")
        elif family.code:
            yield _room(case, instance, found[family.name])


def _room(case: Ec2Case, instance: Instance, quota: Quota) -> Verdict:
    needed = case.resolved.options.nodes * instance.vcpus
    text = f"{quota.name}: {needed} vCPUs for {case.resolved.options.nodes} x {instance.name}, {quota.running} in use"
    if needed + quota.running <= quota.limit:
        return ok(f"{text}, of {quota.limit:g}")
    return missing(
        f"{text}, and the quota is {quota.limit:g}",
        quota_increase("ec2", quota.code, needed + quota.running, case.region),
    )


def offerings(case: Ec2Case) -> Iterator[Verdict]:
    zones = {subnet.zone for subnet in shared.subnets(case)}
    found = offered_zones(case.aws, [instance.name for instance in case.resolved.instances])
    for name, offered in found.items():
        if offered & zones:
            yield ok(f"{name} in {', '.join(sorted(offered & zones))}")
        elif offered:
            yield missing(f"{name} is offered only in {', '.join(sorted(offered))}, where the job has no subnet",
                          f"give a --subnet there, or {OTHER_PLACE}")  # fmt: skip
        else:
            yield missing(f"{name} is not offered in {case.region}", OTHER_PLACE)


def prices(case: Ec2Case) -> Iterator[Verdict]:
    """Whether the region's prices are known; without them a job with --max-usd is refused."""
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
    uri = shared.image(case)
    if containers.is_of_aws(uri):
        yield ok(f"{uri}: AWS's, with the trainer sent beside it; an image of your own starts sooner: {PUSH}")
    else:
        yield from examined(case, uri, case.resolved.instances[0], PUSH)


YES = "DryRunOperation"
FIX = "see which permissions are missing above; infra/iam/launcher.json grants them"


@dataclass(frozen=True)
class Trial:
    """A request to try with DryRun: as the launch would make it, without resources that do not exist yet."""

    request: Request
    lacks_group: bool = False


def dry_run(case: Ec2Case) -> Iterator[Verdict]:
    cluster = shared.cluster(case, shared.facts(case))
    for trial in trials(case, cluster):
        yield _tried(case, trial)


def trials(case: Ec2Case, cluster: Cluster) -> Iterator[Trial]:
    """The requests of a launch that create resources."""
    subnet, instance, options = shared.subnets(case)[0], case.resolved.instances[0], cluster.resolved.options
    if options.security_group is None:
        yield Trial(requests.security_group(cluster, subnet.vpc, ())[0])
    if requests.is_placed(cluster.resolved):
        yield Trial(requests.placement_group(cluster, requests.placement_name(cluster.job, 1)))
    if cluster.resolved.data_volume == "multi-attach":
        yield Trial(requests.shared_volume(cluster, subnet.zone, 1))
    fill = volume_init(cluster.resolved, instance, cluster.snapshot, cluster.prices)
    yield _instances(requests.run_instances(cluster, instance, subnet, options.nodes, 1, fill, ""))


def _instances(request: Request) -> Trial:
    """RunInstances without the groups that the launch creates first; EC2 then uses the VPC's default group."""
    params = {name: value for name, value in request.params.items() if name not in ("Placement", "ClientToken")}
    lacks_group = any(isinstance(group, FromAnswer) for one in params["NetworkInterfaces"] for group in one["Groups"])
    if lacks_group:
        params["NetworkInterfaces"] = [_without_groups(one) for one in params["NetworkInterfaces"]]
    return Trial(Request(request.service, request.operation, params, request.why), lacks_group)


def _without_groups(interface: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in interface.items() if name != "Groups"}


def _tried(case: Ec2Case, trial: Trial) -> Verdict:
    request = trial.request
    try:
        case.aws.call(request.service, request.operation, {**request.params, "DryRun": True})
    except AwsError as error:
        return _verdict(error, trial)
    return unknown(f"EC2 did not say whether it would accept {request.operation}")


def _verdict(error: AwsError, trial: Trial) -> Verdict:
    operation = trial.request.operation
    if error.aws_code == YES:
        return ok(f"EC2 would accept {operation}")
    if error.aws_code not in DENIED:
        text, remedy = split(str(error))
        return missing(f"EC2 refuses {operation}: {text}", remedy)
    # IAM evaluates each resource.  A real launch uses a group with the job's tag instead of the default one.
    if trial.lacks_group and re.search(r":security-group/", str(error.__cause__)):
        return unknown(f"{operation}: refused only for the default security group, which no job uses")
    return missing(f"EC2 refuses {operation}: {str(error).partition(';')[0]}", FIX)


EXCLUDED = ("create-complete", "update-complete")  # states of an exclusion that holds
DEFAULT_VPC = "aws ec2 create-default-vpc, or give --subnet subnet-..."


def subnets(case: Ec2Case) -> Iterator[Verdict]:
    """The default VPC's, or those that the job names."""
    zones = ", ".join(subnet.zone for subnet in shared.subnets(case))
    yield ok(f"{len(shared.subnets(case))} in {shared.subnets(case)[0].vpc}: {zones}")


def connectivity(case: Ec2Case) -> Iterator[Verdict]:
    """Whether nodes can reach AWS from each subnet.  Otherwise a paid node neither logs nor leaves a record."""
    facts = Facts(
        case.region, case.account, subnets=shared.subnets(case), exits=shared.exits(case), image=shared.image(case),
        now=case.now,
    )  # fmt: skip
    cluster = shared.cluster(case, facts)
    problems, reached = list[str](), set[str]()
    for instance in case.resolved.instances:
        for subnet in shared.subnets(case):
            why = describe.why_unreachable(cluster, facts, instance, subnet)
            if why:
                problems.append(why)
            else:
                reached.add(subnet.id)
    if not problems:
        yield ok(f"from all {len(shared.subnets(case))} subnets")
    elif reached:
        for sentence in dict.fromkeys(problems):
            yield warning(*split(sentence))
    else:
        yield missing(*split(problems[0]))
    group = case.resolved.options.security_group
    if mute := without_dns(group, closed_dns(case.aws, (group,) if group else (), facts.dns)):
        yield missing(*split(mute))


def public_access(case: Ec2Case) -> Iterator[Verdict]:
    """Whether VPC Block Public Access stops internet gateways in the region, which routes do not show.

    https://docs.aws.amazon.com/vpc/latest/userguide/security-vpc-bpa.html
    """
    options = case.aws.call("ec2", "DescribeVpcBlockPublicAccessOptions")["VpcBlockPublicAccessOptions"]
    mode, vpc = options.get("InternetGatewayBlockMode", "off"), shared.subnets(case)[0].vpc
    by_gateway = [subnet for subnet in shared.subnets(case) if shared.exits(case)[subnet.id].way == "gateway"]
    if mode == "off" or not by_gateway:
        yield ok("internet gateways are not blocked" if mode == "off" else f"{mode}; no subnet has an internet gateway")
        return
    excluded = _excluded(case)
    blocked = [subnet.id for subnet in by_gateway if not {vpc, subnet.id} & excluded]
    if not blocked:
        yield ok(f"{mode}, and the job's subnets are excluded from it")
        return
    fix = f"aws ec2 create-vpc-block-public-access-exclusion --region {case.region} --vpc-id {vpc}"
    yield missing(
        f"VPC Block Public Access is {mode} in {case.region}: nodes in {', '.join(blocked)} could not report",
        f"{fix} --internet-gateway-exclusion-mode allow-bidirectional",
    )


def _excluded(case: Ec2Case) -> set[str]:
    """The VPCs and subnets to which the block does not apply."""
    rows = case.aws.pages("ec2", "DescribeVpcBlockPublicAccessExclusions", "VpcBlockPublicAccessExclusions")
    return {row["ResourceArn"].rpartition("/")[2] for row in rows if row.get("State") in EXCLUDED}


PUBLISH = "python -m launch.data publish FOLDER --name NAME (infra/data.md); or --data-s3 s3://BUCKET/FOLDER"

GRANTED_TO_SPOT = ("Decrypt", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext", "CreateGrant",
                   "DescribeKey", "ReEncryptFrom", "ReEncryptTo")  # fmt: skip
# Name -> offset in a volume, and magic number there.  ext4: Documentation/filesystems/ext4/super.rst; XFS: xfs_sb;
# a partition table begins with GPT's own magic in the second sector, or ends the first one with 55 AA.
_MAGIC = {"ext4": (1080, b"\x53\xef"), "xfs": (0, b"XFSB"), "gpt": (512, b"EFI PART"), "mbr": (510, b"\x55\xaa")}


def snapshot(case: Ec2Case) -> Iterator[Verdict]:
    """State and size; launch.ec2 finds it by its tag."""
    found = shared.snapshot(case)
    if found is not None:
        yield ok(f"{found.id}, {found.gib} GiB, for --dataset {case.job.train.dataset}")


def file_system(case: Ec2Case) -> Iterator[Verdict]:
    """The file system in the first block, which boot.sh must be able to mount.

    https://docs.aws.amazon.com/ebs/latest/userguide/ebs-accessing-snapshot.html: 0.003 USD per thousand blocks read.
    """
    found = shared.snapshot(case)
    if found is None:
        return
    listed = {"SnapshotId": found.id, "StartingBlockIndex": 0, "MaxResults": 100}
    blocks = case.aws.call("ebs", "ListSnapshotBlocks", listed).get("Blocks", ())
    first = next((block for block in blocks if block["BlockIndex"] == 0), None)
    if first is None:
        yield missing(f"{found.id} has an empty first block, so there is no file system on it", PUBLISH)
        return
    token = {"SnapshotId": found.id, "BlockIndex": 0, "BlockToken": first["BlockToken"]}
    yield _mountable(found.id, case.aws.call("ebs", "GetSnapshotBlock", token)["BlockData"].read())


def _mountable(snapshot_id: str, block: bytes) -> Verdict:
    kind = kind_of(block)
    if kind in ("ext4", "xfs"):
        return ok(kind)
    if kind in ("gpt", "mbr"):
        return warning(f"{snapshot_id} has a partition table; nodes mount its first partition", PUBLISH)
    return missing(f"{snapshot_id} does not begin with a file system that nodes can mount (ext4 or XFS)", PUBLISH)


def kind_of(block: bytes) -> str:
    """ext4 (or ext2, ext3), xfs, gpt, mbr, or "" for anything else."""
    return next((name for name, (at, magic) in _MAGIC.items() if block[at : at + len(magic)] == magic), "")


def in_s3(case: Ec2Case) -> Iterator[Verdict]:
    """Whether any object exists under --data-s3."""
    place = parse_s3(case.resolved.options.data_s3) if case.resolved.options.data_s3 else None
    if place is None:
        return
    bucket, prefix = place.bucket, place.key
    found = case.aws.call("s3", "ListObjectsV2", {"Bucket": bucket, "Prefix": prefix, "MaxKeys": 1})
    if found.get("KeyCount"):
        yield ok(f"s3://{bucket}/{prefix}")
    else:
        yield missing(f"there is nothing under s3://{bucket}/{prefix}", f"aws s3 sync FOLDER s3://{bucket}/{prefix}")


def default_key(case: Ec2Case) -> Iterator[Verdict]:
    """The key of new volumes.  Without permission for the launcher to use it, nodes end as soon as they start.

    https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html
    """
    key = str(case.aws.call("ec2", "GetEbsDefaultKmsKeyId")["KmsKeyId"])
    if key == "alias/aws/ebs":
        yield ok("new volumes: AWS's own key")
    else:
        yield from use_of_key(case, key, "new volumes")
        yield from _spots_use_of_key(case, key, "new volumes")


def snapshots_key(case: Ec2Case) -> Iterator[Verdict]:
    """The key of the snapshot, if it belongs to another account."""
    found = shared.snapshot(case)
    if found is None:
        return
    (row,) = case.aws.pages("ec2", "DescribeSnapshots", "Snapshots", {"SnapshotIds": [found.id]})
    key = row.get("KmsKeyId") if row.get("Encrypted") else None
    if key is None:
        yield ok(f"{found.id} is not encrypted; volumes made from it are")
        return
    yield from use_of_key(case, key, found.id)
    yield from _spots_use_of_key(case, key, found.id)


def _spots_use_of_key(case: Ec2Case, key: str, what: str) -> Iterator[Verdict]:
    """The spot role's grant on a customer-managed key: without it spot nodes end as soon as they start.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html
    """
    if not case.resolved.options.spot or key.startswith("alias/aws/"):
        return
    described = case.aws.call("kms", "DescribeKey", {"KeyId": key})["KeyMetadata"]
    if described.get("KeyManager") == "AWS":
        return
    role = f"arn:aws:iam::{case.account}:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    grants = case.aws.pages("kms", "ListGrants", "Grants", {"KeyId": described["Arn"]})
    if any(grant.get("GranteePrincipal") == role for grant in grants):
        yield ok(f"{what}: spot's role has a grant on the key")
        return
    operations = " ".join(GRANTED_TO_SPOT)
    make = f"aws kms create-grant --region {case.region} --key-id {described['Arn']} --grantee-principal {role}"
    text = (
        f"{what}: AWSServiceRoleForEC2Spot has no grant on your key {key}; unless its policy allows it, spot nodes end"
    )
    yield warning(f"{text} as they start", f"{make} --operations {operations}")
