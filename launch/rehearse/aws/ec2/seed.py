"""What a command line names, such as a subnet or a snapshot of the user's: there it is in the account.

In the user's own account it has more to it than its name; so a rehearsal shows the job's life, not that these fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from moto.ec2.models import ec2_backends

from launch.core.names import TOOLKIT
from launch.rehearse.aws.ec2.account import PROFILE, SCHEDULER_ROLE, Account
from launch.rehearse.stage.scene import Asked
from trainer.errors import SettingsError

IMAGES, GIB = ("imagefolder", "imagenet"), 8  # data sets that lie on volumes; of each snapshot
FORMS = {"ami": "ami", "security_group": "sg", "data_snapshot": "snap", "subnet": "subnet",
         "capacity_reservation": "cr", "capacity_block": "cr"}  # fmt: skip


def check(asked: Asked) -> None:
    """Raises SettingsError for what an AWS account may have and a rehearsal has not."""
    options = asked.options
    if asked.region not in ec2_backends["123456789012"].regions:
        raise SettingsError(f"--region {asked.region}: AWS has no such region.")
    for option, form in FORMS.items():
        for name in _names(options.get(option)):
            if not re.fullmatch(rf"{form}-[0-9a-f]{{8,17}}", name):
                raise SettingsError(f"--{option.replace('_', '-')} {name}: must look like {form}-0123456789abcdef0.")
    _check_data(asked)


def _check_data(asked: Asked) -> None:
    needed, folder = brings_data(asked), asked.data
    if folder is None and needed:
        raise SettingsError(
            f"a rehearsal has no images of {asked.dataset}; give it some: --rehearse-data FOLDER, with train/ and val/."
        )
    if folder is None and asked.dataset == "cifar10":
        raise SettingsError(
            "cifar10 would be downloaded, and nodes of a rehearsal have no Internet; give "
            "--rehearse-data FOLDER with its archive, and --data-volume per-node. Or rehearse with --dataset digits."
        )
    if folder is None:
        return
    if not needed:
        raise SettingsError(
            f"--rehearse-data: nothing brings data to the nodes with --dataset {asked.dataset}; "
            "add --dataset imagefolder, or --data-volume per-node."
        )
    if not folder.is_dir():
        raise SettingsError(f"--rehearse-data {folder}: there is no such folder.")
    if asked.dataset in IMAGES and not (folder / "train").is_dir():
        raise SettingsError(f"--rehearse-data {folder}: has no folder train/ in it.")


def brings_data(asked: Asked) -> bool:
    """Whether nodes get data from a volume or from S3; see launch/ec2/checks.py."""
    options = asked.options
    wanted = options.get("data_volume", "auto")
    return bool(
        options.get("data_s3")
        or options.get("data_snapshot")
        or (asked.dataset in IMAGES if wanted == "auto" else wanted != "none")
    )


def fill(account: Account, asked: Asked) -> None:
    """The account as infra/README.md makes it, and everything that the command line names."""
    options = asked.options
    account.fill()
    snapshot = account.make_snapshot(asked.dataset, GIB)
    if bucket := options.get("bucket"):
        account.make_bucket(bucket)
    account.make_secrets(options.get("secret") or ())
    _make_roles(account, options)
    _make_image(account, options.get("image") or TOOLKIT)
    if ami := options.get("ami"):
        _rename(account.ec2.amis, account.make_ami(), ami)
    if named := options.get("data_snapshot"):
        _rename(account.ec2.snapshots, snapshot, named)
    _make_network(account, options)
    for name in (options.get("capacity_reservation"), options.get("capacity_block")):
        if name:
            account.rules.reservations[name] = _reservation(account, name, options)
    if (target := options.get("data_s3")) and asked.data:
        _copy(account, asked.data, target)


def zones(account: Account) -> list[str]:
    """The names of the region's availability zones."""
    return sorted(zone.name for zone in account.ec2.describe_availability_zones())


def _names(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else value or []


def _rename(held: dict[str, Any], before: str, name: str) -> None:
    """Gives one of moto's things the id that the user knows it by."""
    held[name] = held.pop(before)
    held[name].id = name


def _make_roles(account: Account, options: Mapping[str, Any]) -> None:
    profile, role = options.get("instance_profile", PROFILE), options.get("scheduler_role", SCHEDULER_ROLE)
    if profile != PROFILE:
        account.make_profile(profile)
    if role not in (SCHEDULER_ROLE, profile):
        account.make_role(role)


def _make_image(account: Account, wanted: str) -> None:
    """Nothing for an image of somebody else's registry, which no launcher looks up."""
    host, slash, _ = wanted.partition("/")
    if slash and ("." in host or ":" in host):
        return
    repository, _, digest = wanted.partition("@")
    repository, _, tag = repository.partition(":")
    if (repository, digest) != (TOOLKIT, "") or tag not in ("", "latest"):
        account.make_image(repository, tag or "latest", digest)


def _make_network(account: Account, options: Mapping[str, Any]) -> None:
    """The user's subnets are the default VPC's, one per zone, in the order of --zones."""
    wanted, there = _names(options.get("subnet")), account.ec2.get_default_subnets()
    order = [zone for zone in options.get("zones") or () if zone in there]
    order += [zone for zone in sorted(there) if zone not in order]
    if len(wanted) > len(order):
        raise SettingsError(f"--subnet: a rehearsal has one per zone, {len(order)} in {account.region}.")
    for zone, name in zip(order, wanted, strict=False):
        _rename(account.ec2.subnets[zone], there[zone].id, name)
    if group := options.get("security_group"):
        vpc = there[order[0]].vpc_id
        made = account.ec2.create_security_group(group, "the user's own", vpc)
        _rename(account.ec2.groups[vpc], made.id, group)


def _reservation(account: Account, name: str, options: Mapping[str, Any]) -> SimpleNamespace:
    nodes = options.get("nodes") or 1
    return SimpleNamespace(
        capacity_reservation_id=name,
        availability_zone=next(iter(options.get("zones") or zones(account))),
        instance_type=next(iter(options["instance_type"])),
        available_instance_count=nodes,
        total_instance_count=nodes,
        state="active",
    )


def _copy(account: Account, folder: Path, target: str) -> None:
    bucket, _, prefix = target.removeprefix("s3://").partition("/")
    account.make_bucket(bucket)
    for file, name in _files(folder):
        account.put(bucket, f"{prefix.rstrip('/')}/{name}".lstrip("/"), file.read_bytes())


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    yield from ((file, str(file.relative_to(folder))) for file in sorted(folder.rglob("*")) if file.is_file())
