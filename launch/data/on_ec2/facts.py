"""The facts about publishing a data set by an instance: its run, the account and the source.  Reads only.

A run is an instance's work for one data set.  run.json in S3 records it, so that the same command continues it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from launch.aws import pricelist
from launch.aws.client import SMALL_BYTES, Aws
from launch.aws.instances.facts import (
    Ami,
    Quota,
    Subnet,
    describe_ami,
    find_exits,
    find_quotas,
    find_subnets,
    offered_zones,
    quota_of,
    ssm_parameter,
)
from launch.aws.instances.inventory import LIVE, Fleet, Node, find_tagged
from launch.aws.lookup import Lookups, check_bucket, describe_profile, describe_role, read_json, region_or_some
from launch.aws.names import DEADLINE_TAG, SCHEDULER_ROLE, TIME, TOOLKIT, bucket_of, is_ours, tag_values, tags
from launch.aws.network import INTERNET, Exit
from launch.aws.published import NAME
from launch.core import catalog
from launch.core.errors import AwsError
from launch.core.manifest import RECORD
from launch.core.plan import Request, unless_changed
from launch.core.price import CATALOGS, Prices
from launch.data.lookup import place_of
from launch.data.source import Source, find_source
from launch.data.upload import Place, sizes
from trainer.contract import TIME_IN_NAMES, random_letters
from trainer.errors import TrainerError

PUBLISHES_TAG = f"{TOOLKIT}:publishes"  # on the instance and its group: the name of the data set
PROFILE = f"{TOOLKIT}-publisher"
AMI_PARAMETER = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
ROOT_GIB = 16
NO_AMI = Ami("<ami>", "/dev/xvda", ROOT_GIB)
INSTEAD = "--by here"
# Files of a run in S3.
RUN, EXIT, PROGRESS, LOG = "run.json", "exit.json", "progress.json", "log.txt"


@dataclass(frozen=True)
class Run:
    """An instance's work for one data set; a command with an equal run continues it."""

    id: str  # its job name
    name: str
    account: str
    region: str
    bucket: str
    owner: str  # aws:userid of the user who started it
    source: str  # s3://...
    type: str  # of the instance
    words: tuple[str, ...]  # flags of launch.data on the instance
    code: str  # SHA-256 of the bundle
    ami: str  # of the instance
    root: str  # device of the AMI's root volume
    gib: int  # of the root volume
    started: datetime  # UTC
    deadline: datetime  # UTC

    @property
    def prefix(self) -> str:
        return prefix_of(self.name)

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def code_key(self) -> str:
        return f"{self.prefix}code-{self.code[:16]}.tar.gz"

    @property
    def tags(self) -> list[dict[str, str]]:
        """The tags of a job's machines, for the time limit, the sweeper and `launch.ec2 leaks`, and PUBLISHES_TAG."""
        ours = tags(self.id, self.bucket, self.started, self.deadline, self.owner)
        return [*ours, {"Key": PUBLISHES_TAG, "Value": self.name}]

    def place(self, file: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.prefix + file, "ExpectedBucketOwner": self.account}


def prefix_of(name: str) -> str:
    """The prefix of the files that instance and launcher share; the data set is elsewhere."""
    return f"data-runs/{name}/"


def new_id(name: str, now: datetime, letters: str) -> str:
    """A job name such as data-photos-20261123-134500-k3v7q, of at most 48 characters.  letters: random."""
    return f"data-{name[:21].rstrip('-')}-{now:{TIME_IN_NAMES}}-{letters}"


def put_run(run: Run, known_as: str, ended: str = "") -> Request:
    """Write run.json, unless another command has meanwhile.  known_as: see unless_changed()."""
    body = json.dumps({**asdict(run), "started": run.started.strftime(TIME), "deadline": run.deadline.strftime(TIME),
                       "ended": ended}, indent=1)  # fmt: skip
    params = {**run.place(RUN), "Body": body.encode(), "ContentType": "application/json"}
    why = "note that it ended" if ended else "note what is begun"
    return unless_changed(Request("s3", "PutObject", params, why), known_as)


@dataclass(frozen=True)
class Facts:
    """The facts of a region for one data set."""

    region: str
    account: str = ""
    owner: str = ""
    letters: str = field(default_factory=random_letters)  # for the id of a new run
    source: Source | None = None
    record: Mapping[str, Any] | None = None  # published.json
    run: Run | None = None  # of run.json
    etag: str = ""  # of run.json
    ended: str = ""  # when the run ended, by run.json
    exit_record: Mapping[str, Any] | None = None  # of the run, once it has ended
    fleet: Fleet = field(default_factory=Fleet)  # instances and groups of all runs of the data set
    subnets: tuple[Subnet, ...] = ()
    exits: Mapping[str, Exit] = field(default_factory=dict)  # by subnet
    offered: Mapping[str, frozenset[str]] = field(default_factory=dict)  # zones by type
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # of vCPUs, by name
    ami: Ami = NO_AMI  # the newest Amazon Linux
    role: str = ""  # of the time limit
    prices: Prices = CATALOGS
    problems: tuple[TrainerError, ...] = ()
    unknown: tuple[str, ...] = ()

    def is_open(self, now: datetime) -> bool:
        """Whether a run has not ended, so that the same command continues it."""
        if self.run is None or self.ended or self.exit_record is not None or now >= self.run.deadline:
            return False
        nodes = self.nodes_of(self.run)
        return not nodes or any(node.lives for node in nodes)

    def nodes_of(self, run: Run) -> tuple[Node, ...]:
        return self.fleet.of(run.id).nodes

    def group_of(self, run: str) -> str:
        """The id of the run's security group; empty without one."""
        return next((group.id for group in self.fleet.resources if group.job == run), "")

    @property
    def is_unseen(self) -> bool:
        """Whether a run has ended, and no command has read its result and removed its resources."""
        return self.run is not None and self.exit_record is not None and not self.ended

    @property
    def dns(self) -> tuple[str, ...]:
        """The addresses of the VPC's own DNS servers."""
        return next((found.dns for found in self.exits.values()), ())

    def reachable(self, subnet: Subnet) -> bool:
        """Whether an instance there can reach AWS and the packages; true if that is not known."""
        way = self.exits.get(subnet.id)
        return way is None or not way.missing((INTERNET,), has_address=subnet.gives_addresses)


def look_up(
    aws: Aws,
    name: str,
    source: str,
    types: tuple[str, ...],
    subnets: tuple[str, ...],
    now: datetime,
) -> Facts:
    """Look up all facts; AWS's failures become problems."""
    lookups = Lookups()
    try:
        facts = _with_run(aws, name)
    except TrainerError as problem:
        return Facts(region_or_some(aws), problems=(problem,))
    nothing: Source | None = None
    no_subnets: tuple[Subnet, ...] = ()
    nowhere: dict[str, frozenset[str]] = {}
    no_quotas: dict[str, Quota] = {}
    place = place_of(name, facts.account, facts.region)
    there = lookups.required(partial(find_subnets, aws, subnets, ()), no_subnets)
    offered = lookups.optional("zones of the types", partial(offered_zones, aws, types), nowhere)
    sold = [name for name in types if offered.get(name)] or list(types)
    prices: Prices = lookups.optional(
        "the region's prices",
        partial(pricelist.look_up, aws, sold, now, None),
        replace(CATALOGS, are_known=False),
    )
    lookups.required(partial(describe_profile, aws, PROFILE, INSTEAD), None)
    facts = replace(
        facts,
        source=lookups.required(partial(find_source, aws, source), nothing),
        record=lookups.required(partial(read_json, aws, place.bucket, place.prefix + RECORD), None),
        subnets=there,
        exits=lookups.optional("routes out of the subnets", partial(find_exits, aws, there), {}),
        offered=offered,
        quotas=lookups.optional("vCPU quotas", partial(_find_quotas, aws, types), no_quotas),
        ami=lookups.required(partial(_find_ami, aws), NO_AMI),
        role=lookups.required(partial(_find_role, aws), ""),
        prices=prices,
    )
    return replace(facts, problems=tuple(lookups.problems), unknown=tuple(lookups.unknown))


def _with_run(aws: Aws, name: str) -> Facts:
    """The facts of an existing run.  Raises AwsError."""
    caller = aws.call("sts", "GetCallerIdentity")
    account = str(caller["Account"])
    bucket = bucket_of(account, aws.region)
    check_bucket(aws, bucket, account)
    run, etag, ended = known_run(aws, bucket, name)
    return Facts(
        aws.region,
        account,
        str(caller.get("UserId", "")),
        run=run,
        etag=etag,
        ended=ended,
        exit_record=exit_record_of(aws, run) if run else None,
        fleet=find_tagged(aws, PUBLISHES_TAG, name),
    )


def known_run(aws: Aws, bucket: str, name: str) -> tuple[Run | None, str, str]:
    """The run in run.json, the object's ETag, and when the run ended; no run if it is damaged."""
    try:
        answer = aws.call("s3", "GetObject", {"Bucket": bucket, "Key": prefix_of(name) + RUN})
    except AwsError as error:
        if error.aws_code == "NoSuchKey":
            return None, "", ""
        raise
    etag = str(answer["ETag"])
    try:
        content = json.loads(answer["Body"].read(SMALL_BYTES))
        return TypeAdapter(Run).validate_python(content), etag, str(content.get("ended", ""))
    except ValueError:  # written by another version
        return None, etag, ""


def exit_record_of(aws: Aws, run: Run) -> Mapping[str, Any] | None:
    """The record of the run's end; None while there is none, or one of another run."""
    found = read_json(aws, run.bucket, run.prefix + EXIT)
    return found if found is not None and found.get("run") == run.id else None


def _find_quotas(aws: Aws, types: tuple[str, ...]) -> dict[str, Quota]:
    return find_quotas(aws, {quota_of(catalog.find(name), spot=False) for name in types})


def _find_ami(aws: Aws) -> Ami:
    """Amazon Linux's newest."""
    ami = describe_ami(aws, ssm_parameter(aws, AMI_PARAMETER), f"give {INSTEAD}")
    return replace(ami, gib=max(ROOT_GIB, ami.gib))


def _find_role(aws: Aws) -> str:
    return str(describe_role(aws, SCHEDULER_ROLE, INSTEAD)["Arn"])


def find_reports(aws: Aws, name: str, account: str, region: str) -> tuple[dict[str, str], ...]:
    """Reports and code that instances have left, as parameters of requests for an object."""
    place = Place(bucket_of(account, region), prefix_of(name), account)
    return tuple(place.of(file) for file in sizes(aws, place))


def running(aws: Aws) -> dict[str, str]:
    """A line for each data set that an instance is publishing, by name."""
    filters = [{"Name": "tag-key", "Values": [PUBLISHES_TAG]}, {"Name": "instance-state-name", "Values": list(LIVE)}]
    lines = dict[str, str]()
    for row in aws.pages("ec2", "DescribeInstances", "Reservations", {"Filters": filters}):
        for node in row["Instances"]:
            values = tag_values(node)
            name = values[PUBLISHES_TAG]  # which is part of a command that the user copies
            if is_ours(values) and re.fullmatch(NAME, name):
                until = values.get(DEADLINE_TAG, "its time limit")
                lines[name] = (
                    f"{node['InstanceId']} ({node['InstanceType']}) publishes {name}, until {until} at the latest; "
                    f"python -m launch.data stop {name} ends it"
                )
    return lines
