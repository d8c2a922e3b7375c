"""Set up the account of a rehearsal: what the command line names, and who may do what in it.

Only the names are the user's: a rehearsal shows the life of the job, not that these resources fit together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from moto.ec2.models import amis, ec2_backends, elastic_block_store, security_groups, subnets

from launch.aws.instances.facts import FAMILIES
from launch.aws.lookup import PLACE
from launch.aws.names import ALLOWED_TAG, DATA_TAG, TOOLKIT, bucket_of
from launch.aws.published import NAME, prefix_of
from launch.core.secrets import read_references
from launch.rehearse.aws.access import Access
from launch.rehearse.aws.ec2.account import PROFILE, SCHEDULER_ROLE, Ec2Account
from launch.rehearse.aws.iam.policies import Policy, policy
from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from launch.rehearse.aws.sagemaker.rules import TrainingPlan
from launch.rehearse.backend import RehearsedJob
from launch.rehearse.environment import CREDENTIALS
from trainer.errors import SettingsError

# ---- EC2


GIB = 8  # size of each snapshot
FREE = 224  # from 172.31.224.0 on, the default VPC, 172.31.0.0/16, has no subnets yet
# The modules in which moto generates the ID of a new resource.
MAKERS = {"ami": amis, "security_group": security_groups, "snapshot": elastic_block_store, "subnet": subnets}
FORMS = {"ami": "ami", "security_group": "sg", "data_snapshot": "snap", "subnet": "subnet",
         "capacity_reservation": "cr", "capacity_block": "cr"}  # fmt: skip


def check_ec2(job: RehearsedJob) -> None:
    """Raise SettingsError for what a rehearsal cannot have, although an AWS account may."""
    options = job.options
    for region in job.regions:
        if region not in ec2_backends["123456789012"].regions:
            raise SettingsError(f"--region {region}: AWS has no such region; give one such as us-east-1.")
    for option, form in FORMS.items():
        for name in _names(options.get(option)):
            if not re.fullmatch(rf"{form}-[0-9a-f]{{8,17}}", name):
                raise SettingsError(f"--{option.replace('_', '-')} {name}: must look like {form}-0123456789abcdef0.")
    if options.get("proxy"):
        raise SettingsError("--proxy: a rehearsal has no proxy; leave it out.")
    _check_data(job)


def _check_data(job: RehearsedJob) -> None:
    if job.data is None:
        _check_without_data(job)
    elif not brings_data(job):
        raise SettingsError(
            f"--rehearse-data: no volume brings data to the nodes with --dataset {job.train.dataset}; "
            "add --dataset imagefolder, or --data-volume per-node."
        )
    elif not job.data.is_dir():
        raise SettingsError(f"--rehearse-data {job.data}: no such folder; give one with train/ and val/.")
    elif job.train.reads_folder and not (job.data / "train").is_dir():
        raise SettingsError(f"--rehearse-data {job.data}: has no folder train/; give one with train/ and val/.")


def _check_without_data(job: RehearsedJob) -> None:
    if brings_data(job):
        raise SettingsError(
            f"a rehearsal has no images for {job.data_name}; add --rehearse-data FOLDER, with train/ and val/ in it."
        )
    if job.train.downloads:
        raise SettingsError(
            f"{job.train.dataset} would be downloaded, and nodes of a rehearsal have no Internet access; add "
            "--rehearse-data FOLDER with its archive and --data-volume per-node, or rehearse with --dataset digits."
        )


def brings_data(job: RehearsedJob) -> bool:
    """Whether nodes get data from a volume or from S3; compare launch/ec2/checks.py."""
    if any(job.options.get(name) for name in ("data", "data_s3", "data_snapshot")):
        return True
    volume = job.options.get("data_volume", "auto")
    return job.train.reads_folder if volume == "auto" else volume != "none"


def fill_ec2(account: Ec2Account, job: RehearsedJob) -> None:
    """Set up the account as in infra/account.md, with all resources that the command line names."""
    options = job.options
    account.fill()
    _make_data(account, job)
    if bucket := options.get("bucket"):
        account.make_bucket(bucket)
    account.make_secrets(options.get("secret") or ())
    account.make_profile(options.get("instance_profile") or PROFILE)
    account.make_role(options.get("scheduler_role") or SCHEDULER_ROLE)
    _make_image(account, options.get("image") or TOOLKIT)
    if ami := options.get("ami"):
        _named("ami", ami, account.make_ami)
    _make_network(account, options)
    for name in (options.get("capacity_reservation"), options.get("capacity_block")):
        if name:
            account.rules.reservations[name] = _reservation(account, name, options)
            account.ec2.create_tags([name], {ALLOWED_TAG: "yes"})


def _make_data(account: Ec2Account, job: RehearsedJob) -> None:
    if name := job.options.get("data_snapshot"):
        _named("snapshot", name, partial(account.make_snapshot, job.data_name or "data", GIB))
    else:
        account.make_snapshot(job.data_name, GIB)
    if (target := job.options.get("data_s3") or job.train.data_url) and job.data:
        account.put_folder(target, job.data)


def fill_other_region(account: Ec2Account, job: RehearsedJob) -> None:
    """Set up another region that the job may run in."""
    account.fill_region()
    account.make_snapshot(job.data_name, GIB)
    account.make_secrets(job.options.get("secret") or ())
    _make_image(account, job.options.get("image") or TOOLKIT)


def vcpus(account: Ec2Account) -> dict[str, int]:
    """The limits of a queue's jobs: the account's quotas, by kind."""
    return {family.kind: int(account.rules.quota[family.code]) for family in FAMILIES}


def zones(account: Ec2Account) -> list[str]:
    """The names of the region's availability zones."""
    return sorted(zone.name for zone in account.ec2.describe_availability_zones())


def _names(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else value or []


def placeholder(account: Ec2Account, job: RehearsedJob) -> str:
    """The ID of the snapshot that fill() created for the data set."""
    tagged = f"tag:{DATA_TAG}"
    snapshots = account.ec2.snapshots.items()
    return next((name for name, one in snapshots if one.get_filter_value(tagged) == job.data_name), "")


def _named(kind: str, name: str, make: Callable[[], Any]) -> Any:
    """Call `make`, and give the resource that it creates the ID that the command line names."""
    with mock.patch.object(MAKERS[kind], f"random_{kind}_id", return_value=name):
        return make()


def _make_image(account: Ec2Account, image: str) -> None:
    """Create the image, unless it is in a registry outside AWS, which launchers do not look up."""
    host, slash, _ = image.partition("/")
    if slash and ("." in host or ":" in host):
        return
    repository, _, digest = image.partition("@")
    repository, _, tag = repository.partition(":")
    if (repository, digest) != (TOOLKIT, "") or tag not in ("", "latest"):
        account.make_image(repository, tag or "latest", digest)


def _make_network(account: Ec2Account, options: Mapping[str, Any]) -> None:
    """Create the user's subnets next to those of the default VPC, one per zone."""
    names, vpc = _names(options.get("subnet")), account.ec2.get_default_vpc().id
    zones_in_order = _zones_for(account, options)
    if len(names) > len(zones_in_order):
        count = len(zones_in_order)
        raise SettingsError(
            f"--subnet: a rehearsal has one per zone, {count} in {account.region}; name at most {count}."
        )
    for number, (zone, name) in enumerate(zip(zones_in_order, names, strict=False)):
        cidr = f"172.31.{FREE + number}.0/24"
        made = _named("subnet", name, partial(account.ec2.create_subnet, vpc, cidr, availability_zone=zone))
        made.map_public_ip_on_launch = True
    if group := options.get("security_group"):
        created = _named("security_group", group, partial(account.ec2.create_security_group, group, "own", vpc))
        account.rules.fresh.pop(group, None)
        created.add_tags({ALLOWED_TAG: "yes"})


def _zones_for(account: Ec2Account, options: Mapping[str, Any]) -> list[str]:
    """The region's zones: those of --zones in their order, then those that offer the job's first type."""
    kind, given = next(iter(options["instance_type"])), list(options.get("zones") or ())
    offers = account.ec2.describe_instance_type_offerings("availability-zone", filters={"instance-type": [kind]})
    offered = sorted(offer["Location"] for offer in offers)
    return [zone for zone in dict.fromkeys([*given, *offered, *zones(account)]) if zone in zones(account)]


def _reservation(account: Ec2Account, name: str, options: Mapping[str, Any]) -> SimpleNamespace:
    nodes = options.get("nodes") or 1
    return SimpleNamespace(
        capacity_reservation_id=name,
        availability_zone=_zones_for(account, options)[0],
        instance_type=next(iter(options["instance_type"])),
        available_instance_count=nodes,
        total_instance_count=nodes,
        state="active",
    )


# ---- SageMaker


def first_type(job: RehearsedJob) -> str:
    return str(job.options.get("instance_type")).partition(",")[0].strip()


def fill_sagemaker(account: SageMakerAccount, job: RehearsedJob) -> None:
    """Set up the account as in infra/account.md, with all resources that the command line names."""
    account.fill()
    if job.bucket:
        account.make_bucket(job.bucket)
    account.make_secrets(job.options.get("secret") or ())
    if role := job.options.get("role"):
        account.make_trusted(str(role))
    if plan := job.options.get("training_plan"):
        account.rules.plans[str(plan)] = TrainingPlan(first_type(job), job.nodes)
    _make_sagemaker_image(account, PLACE.fullmatch(job.options.get("image") or ""))
    if job.train.data_url and job.data:
        account.put_folder(job.train.data_url, job.data)
    for word in job.options.get("data") or ():
        _fill_channel(account, job, word)


def _make_sagemaker_image(account: SageMakerAccount, place: re.Match[str] | None) -> None:
    if place and place["account"] == account.id:
        SageMakerAccount(place["region"]).make_image(place["name"], place["tag"] or "latest", place["digest"] or "")


def _fill_channel(account: SageMakerAccount, job: RehearsedJob, word: str) -> None:
    """Put the job's data where `word`, [CHANNEL=]s3://... or fsx:// or efs://, expects them."""
    name, uri = "", word
    if "=" in word and not word.startswith(("s3:", "fsx:", "efs:")):
        name, uri = word.split("=", 1)
    if job.data is None:
        raise SettingsError(f"--data {word}: a rehearsal has no data there; add --rehearse-data FOLDER.")
    folder = job.data / name
    if not folder.is_dir():
        raise SettingsError(f"--data {word}: a rehearsal reads this from {folder}, which does not exist; create it.")
    if re.fullmatch(NAME, uri):  # of a published data set
        uri = f"s3://{bucket_of(account.id, account.region)}/{prefix_of(uri)}"
    if uri.startswith("s3://"):
        account.put_folder(uri, folder)
    else:
        system, _, path = uri.partition("://")[2].partition("/")
        account.rules.file_systems[system, f"/{path.rstrip('/')}"] = folder


# ---- permissions


# Actions on resources named by the user, which infra/iam cannot list: on AWS the user adds them, see infra/account.md.
ON_OWN_NAMES = ["s3:*Object", "s3:ListBucket", "s3:AbortMultipartUpload", "ecr:*", "iam:GetRole", "iam:PassRole",
                "iam:GetInstanceProfile", "ssm:GetParameter", "secretsmanager:GetSecretValue"]  # fmt: skip


def grant(access: Access, account: str, job: RehearsedJob, role: str, key: str, token: str) -> None:
    """Give the launcher, and machines that sign with `key`, the rights that infra/iam and the command line give them.

    role: of infra/iam, such as node; token: of the machines' session.
    """
    own: Policy = {"Statement": [{"Effect": "Allow", "Action": ON_OWN_NAMES, "Resource": sorted(set(_own_arns(job)))}]}
    # These jobs need further policies of infra/iam.
    more = [policy("sagemaker-extras")] if job.options.get("register") else []
    more += [policy("data")] if job.is_published else []
    more += [_in_vpc(job.options)] if role == "sagemaker" and job.options.get("subnet") else []
    access.add(CREDENTIALS["AWS_ACCESS_KEY_ID"], f"arn:aws:iam::{account}:user/launcher", "launcher", own, *more)
    access.add(key, f"arn:aws:sts::{account}:assumed-role/aws-ddp-toolkit-{role}/{role}", role, own)
    access.tokens |= {CREDENTIALS["AWS_ACCESS_KEY_ID"]: CREDENTIALS["AWS_SESSION_TOKEN"], key: token}


def _in_vpc(options: Mapping[str, Any]) -> Policy:
    """infra/iam/launcher-vpc.json for these subnets and security groups."""
    text = json.dumps(policy("launcher-vpc"))
    for placeholder, names in (("subnet-REPLACE", options["subnet"]), ("sg-REPLACE", options["security_group"])):
        text = text.replace(f'["{placeholder}"]', json.dumps(list(names)))
    filled: Policy = json.loads(text)
    return filled


def _own_arns(job: RehearsedJob) -> Iterator[str]:
    """The resources that the command line names."""
    options = job.options
    for bucket in (*_data_buckets(job), options.get("bucket") or ""):
        if bucket.startswith(f"{TOOLKIT}-"):  # infra/iam decides what may be read in it
            continue
        yield from (f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*")
    image = options.get("image") or ""
    place = PLACE.fullmatch(image)
    repository = place["name"] if place else image.partition("@")[0].partition(":")[0]
    yield f"arn:aws:ecr:*:*:repository/{repository}"
    for name in ("instance_profile", "scheduler_role", "role"):
        word = str(options.get(name)).rpartition("/")[2]
        yield from (f"arn:aws:iam::*:role/{word}", f"arn:aws:iam::*:instance-profile/{word}")
    for reference in read_references(options.get("secret") or ()).values():
        service, _, name = reference.partition(":")
        kind = "parameter" if service == "ssm" else "secret:"
        yield f"arn:aws:{service}:*:*:{kind}{name}*"


def _data_buckets(job: RehearsedJob) -> list[str]:
    """The buckets that the command line reads data from."""
    uris = [job.options.get("data_s3") or "", job.train.data_url or "", *(job.options.get("data") or ())]
    return [uri.partition("s3://")[2].partition("/")[0] for uri in uris if "s3://" in uri]
