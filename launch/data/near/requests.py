"""The requests of an instance that publishes, one function each.  Pure; plan.py orders them."""

import base64
import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from functools import cache
from importlib.abc import Traversable
from importlib.resources import files
from typing import Any

from launch.aws.instances import requests as instances
from launch.aws.instances.facts import Subnet
from launch.aws.names import HOURLY_TAG, TOOLKIT, client_token
from launch.core import catalog
from launch.core.plan import Choice, FromAnswer, Request, Try
from launch.core.templates import fill
from launch.data.near.facts import EXIT, PROFILE, PROGRESS, Near, Run, put_run
from launch.data.near.work import CONNECTIONS, machine_of
from launch.data.options import PublishOptions

# RunInstances' errors after which another zone may have capacity.
NO_CAPACITY = {
    "InsufficientInstanceCapacity": "no capacity",
    "InsufficientHostCapacity": "no capacity",
    "Unsupported": "not offered",
    "InsufficientFreeAddressesInSubnet": "no addresses left",
}
HOP_LIMIT = 1
GONE = ("InvalidGroup.NotFound", "InvalidGroupId.NotFound", "ResourceNotFoundException")
GROUP = "security group"


def words(options: PublishOptions, name: str, region: str) -> tuple[str, ...]:
    """The flags of launch.data publish on the instance, without the source."""
    given = [f"--resize={options.resize}"] if options.resize else []
    given += ["--originals"] if options.originals else []
    given += [f"--kms-key={options.kms_key}"] if options.kms_key else []
    given += ["--replace"] if options.replace else []
    return (f"--name={name}", f"--to={options.to}", f"--verify={options.verify}", *given, f"--region={region}")


def begin(run: Run, near: Near, code: bytes) -> list[Request]:
    """Upload the code, then run.json, by which the same command recognizes the run."""
    sum_ = base64.b64encode(hashlib.sha256(code).digest()).decode()
    place = {"Bucket": run.bucket, "Key": run.code_key, "ExpectedBucketOwner": run.account}
    params = {**place, "Body": code, "ChecksumAlgorithm": "SHA256", "ChecksumSHA256": sum_}
    return [Request("s3", "PutObject", params, "send the code that it runs"), put_run(run, near.etag)]


def leftovers(near: Near) -> list[Request]:
    """Delete leftovers of ended runs: groups, which cost nothing, and time limits."""
    made = list[Request]()
    for run, group in near.groups.items():
        living = any(one.run == run and one.state != "terminated" for one in near.machines)
        if not living:
            made.append(delete_group(group))
            made.append(delete_limit(f"{TOOLKIT}-{run}"))
    return made


def terminate(instance: str) -> Request:
    return Request("ec2", "TerminateInstances", {"InstanceIds": [instance]}, f"terminate {instance}")


def delete_group(group: str) -> Request:
    return Request("ec2", "DeleteSecurityGroup", {"GroupId": group}, f"delete {group}, which is left", GONE)


def delete_limit(name: str) -> Request:
    params = {"GroupName": instances.SCHEDULE_GROUP, "Name": name}
    return Request("scheduler", "DeleteSchedule", params, f"delete the time limit {name}", GONE)


def clear(run: Run, before: Run | None) -> list[Request]:
    """Delete the reports of the previous run, and its code if that differs."""
    files = [EXIT, PROGRESS]
    if before is not None and before.code_key != run.code_key:
        files.append(before.code_key.removeprefix(run.prefix))
    return [Request("s3", "DeleteObject", run.place(file), f"delete {file} of an earlier run") for file in files]


def time_limit(run: Run, role: str) -> list[Request]:
    return instances.time_limit(run.id, run.deadline, role or "<role>", exists=False)


def network(run: Run, near: Near) -> list[Request]:
    """A security group with nothing inbound, and HTTPS outbound."""
    there = near.groups.get(run.id)
    group: str | FromAnswer = there or FromAnswer(GROUP, "GroupId")
    rules = [instances.outbound(group, [instances.HTTPS], "outbound: HTTPS"), *instances.nothing_else_out(group)]
    if there:
        return rules
    params = {
        "GroupName": run.group,
        "Description": f"{run.id} publishes a data set: HTTPS out",
        "VpcId": near.subnets[0].vpc if near.subnets else "<vpc>",
        "TagSpecifications": [{"ResourceType": "security-group", "Tags": run.tags}],
    }
    return [Request("ec2", "CreateSecurityGroup", params, "create a group that lets nothing in", name=GROUP), *rules]


def places(near: Near, kind: str) -> list[Subnet]:
    """The subnets that an instance of this type can start and work in."""
    offered = near.offered.get(kind)
    zones = [one for one in near.subnets if offered is None or one.zone in offered]
    return [subnet for subnet in zones if near.reachable(subnet)]


def start(run: Run, near: Near) -> Choice:
    """Start one instance, in the first zone with capacity.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html
    """
    subnets = places(near, run.type) or [Subnet("<subnet>", "<zone>", "<vpc>")]
    tries = [Try(_run_instances(run, near, one), (run.type, one.zone), run.type) for one in subnets]
    return Choice(tuple(tries), f"start one {run.type}", ("type", "zone", "answer"), NO_CAPACITY, {}, name="instance")


def _run_instances(run: Run, near: Near, subnet: Subnet) -> Request:
    group: str | FromAnswer = near.groups.get(run.id) or FromAnswer(GROUP, "GroupId")
    disk = {"VolumeSize": run.gib, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    interface = {"DeviceIndex": 0, "SubnetId": subnet.id, "Groups": [group], "DeleteOnTermination": True}
    instance = catalog.find(run.type)
    price = machine_of(instance, near.prices.of(instance)).usd_per_hour
    params: dict[str, Any] = {
        "ImageId": run.ami,
        "InstanceType": run.type,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": client_token(run.id, run.type, subnet.id),
        "IamInstanceProfile": {"Name": PROFILE},
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": HOP_LIMIT},
        "NetworkInterfaces": [interface],
        "BlockDeviceMappings": [{"DeviceName": run.root, "Ebs": disk}],
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": [*run.tags, {"Key": HOURLY_TAG, "Value": f"{price:.6g}"}]},
            {"ResourceType": "volume", "Tags": run.tags},
            {"ResourceType": "network-interface", "Tags": run.tags},
        ],
        "UserData": user_data(run),
    }
    why = f"start one {run.type} in {subnet.zone}"
    return Request("ec2", "RunInstances", params, why, name="instance", retry_after=instances.NOT_YET)


def user_data(run: Run) -> str:
    minutes = round((run.deadline - run.started).total_seconds() / 60)
    return fill(
        "data/near.sh",
        {
            "RUN": run.id,
            "REGION": run.region,
            "FOLDER": run.uri,
            "CODE": f"s3://{run.bucket}/{run.code_key}",
            "CODE_SHA256": run.code,
            "LOCK": LOCK,
            "MINUTES": str(max(1, minutes)),
            "PUBLISH": [run.source, *run.words, "--by=here", f"--connections={CONNECTIONS}",
                        "--prepared=prepared", "--work-dir=publishing"],
        },
    )  # fmt: skip


PACKAGES = ("trainer", "launch", "infra")
SUFFIXES = (".py", ".yaml", ".json", ".txt")
# What publishing imports and reads of this repository.  Packages are installed by infra/locks/publish.txt, with hashes.
LOCK = "infra/locks/publish.txt"
NEEDED = ("trainer/", "launch/__init__.py", "launch/core/", "launch/aws/", "launch/data/", "infra/")
NOT_NEEDED = (
    "launch/aws/examination/", "infra/locks/", "infra/cloudformation/", "infra/rehearse/", "infra/report/",
    "infra/sbom.cdx.json",
)  # fmt: skip


@cache
def bundle() -> bytes:
    """The code as a .tar.gz without owners and times; cached."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=6) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in sorted(_contents()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _contents() -> Iterator[tuple[str, bytes]]:
    for package in PACKAGES:
        for name, file in _below(package, files(package)):
            if name == LOCK or (name.startswith(NEEDED) and not name.startswith(NOT_NEEDED)):
                yield name, file.read_bytes()


def _below(name: str, folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        inner = f"{name}/{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _below(inner, entry)
        elif entry.name.endswith(SUFFIXES):
            yield inner, entry
