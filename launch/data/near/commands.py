"""Publish data that are in S3: by a temporary instance, or by a copy on this machine."""

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from launch.aws.client import Aws
from launch.aws.names import DEADLINE_TAG, bucket_of, is_ours, tag_values
from launch.aws.published import NAME, check_name
from launch.core.errors import AwsError
from launch.core.perform import NothingLeft, perform
from launch.core.plan import Fact, Plan, Request, dry_run
from launch.data.near import requests
from launch.data.near.facts import CHANGED, LIVING, PUBLISHES_TAG, Near, Run
from launch.data.near.follow import Follower, Remover
from launch.data.near.lookup import look_up, look_up_source
from launch.data.near.plan import Bundle, is_continued, is_done, plan_near
from launch.data.near.requests import bundle
from launch.data.near.source import Copying, Source, name_of, place_in_s3
from launch.data.near.work import Ways, Work, here, types_for, ways_of, work_of
from launch.data.options import NameOptions, PublishOptions
from trainer.contract import Exit
from trainer.errors import SettingsError, TrainerError

if TYPE_CHECKING:
    from launch.data.commands import Runtime
    from launch.data.pool import Pool

# The state has changed since the plan: another command has started a run, or a request with a lost answer has.
OVERTAKEN = (*CHANGED, "InvalidGroup.Duplicate")
TRIES, RETRY_DELAY_S = 3, 5.0
INSTEAD = "Try again later, or with another --instance-type, --subnet or --region."


@dataclass(frozen=True)
class NearCommands:
    """publish and stop, for data in S3."""

    runtime: "Runtime"
    pool: "Callable[[str | None, int], Pool]"  # for a region and a number of connections
    from_here: Callable[[PublishOptions, Path], int]  # publishes a local folder
    show: Callable[[NameOptions], int]  # the verb show

    def publish(self, options: PublishOptions, source: str) -> int:
        """source: s3://..."""
        name = options.name or check_name(name_of(place_in_s3(source).key))
        aws = self.runtime.make_aws(options.region)
        if options.by == "here":
            return self._by_here(options, name, aws)
        return self._by_instance(options, name, aws)

    # ---- by an instance

    def _by_instance(self, options: PublishOptions, name: str, aws: Aws) -> int:
        near, plan, by = self._planned(options, name, aws)
        if by == "here":
            self.runtime.say("--by cheaper: publishing it from here costs no more than an instance would")
            return self._by_here(options, name, aws)
        if options.dry_run:
            return dry_run(plan, options.dry_run, self.runtime.say)
        if is_done(options, name, near):
            self.runtime.say(f"{name} is already published from there; add --replace if its content has changed.")
            return self.show(NameOptions(name=name, region=near.region))
        if plan.problem:
            raise plan.problem
        self.runtime.say(plan.brief)
        run = self._start(options, name, aws, plan)
        self.runtime.say(
            f"{run.id} has begun; Ctrl-C leaves it running.  The same command follows it again, and "
            f"python -m launch.data stop {name} ends it."
        )
        Follower(aws, self.runtime.clock, self.runtime.say, run).follow()
        return self.show(NameOptions(name=name, region=near.region))

    def _planned(self, options: PublishOptions, name: str, aws: Aws) -> tuple[Near, Plan[Run], str]:
        """The facts, the plan, and which way it is."""
        now = self.runtime.clock.utc()
        types = types_for(options.instance_type)
        near = look_up(aws, name, str(options.source), types, options.subnet, now)
        work, ways = _ways(options, near)
        content = bundle()
        code = Bundle(content, hashlib.sha256(content).hexdigest())
        by = (
            ways.cheaper
            if ways and options.by == "cheaper" and not is_continued(options, name, near, now)
            else "instance"
        )
        return near, plan_near(options, name, near, work, ways, code, now), by

    def _start(self, options: PublishOptions, name: str, aws: Aws, plan: Plan[Run]) -> Run:
        """Make the requests; continue a run that another command, or a request with a lost answer, has started."""
        for left in reversed(range(TRIES)):
            try:
                self._perform(aws, plan)
                break
            except AwsError as error:
                if not left or error.aws_code not in OVERTAKEN:
                    raise
                self.runtime.clock.sleep(RETRY_DELAY_S)
                _, plan, _ = self._planned(options, name, aws)
                if plan.problem:
                    raise plan.problem from error
        return plan.payload

    def _perform(self, aws: Aws, plan: Plan[Run]) -> None:
        """Perform the plan; remove what it has made if AWS refuses the instance."""
        try:
            perform(plan.steps, aws.call, self.runtime.say, self.runtime.clock.sleep)
        except AwsError as error:
            if error.operation == "RunInstances" or error.aws_code == "NothingLeftToTry":
                self.runtime.say("no instance was started; remove what was made for it")
                self._remover(aws, plan.payload.name).remove_run(plan.payload)
            if isinstance(error, NothingLeft):
                raise AwsError(error.table_and(INSTEAD), error.aws_code) from error
            raise

    def _remover(self, aws: Aws, name: str) -> Remover:
        return Remover(aws, self.runtime.clock, self.runtime.say, name)

    def stop(self, name: str, region: str | None) -> int:
        """Stop the runs that publish a data set."""
        aws = self.runtime.make_aws(region)
        if not self._remover(aws, name).stop():
            self.runtime.say(f"no instance publishes {name} in {aws.region}")
            return Exit.DONE
        self.runtime.say(
            f"nothing of it runs any more in {aws.region}; the same publish command continues with its snapshot"
        )
        return Exit.DONE

    # ---- by a copy here

    def _by_here(self, options: PublishOptions, name: str, aws: Aws) -> int:
        folder = Path(f"{name}-source").absolute()
        near = look_up_source(aws, str(options.source))
        _, ways = _ways(options, near)
        plan = plan_copy_here(near, ways, folder)
        if options.dry_run:
            return dry_run(plan, options.dry_run, self.runtime.say)
        if plan.problem:
            raise plan.problem
        assert near.source is not None
        self.runtime.say(plan.brief)
        self.runtime.say(f"copy {near.source.uri} to {folder}")
        copied = self._copy(near.source, folder, options)
        at = {"source": str(copied), "name": name, "prepared": options.prepared or Path(f"{name}-prepared").absolute()}
        return self.from_here(options.model_copy(update=at), copied)

    def _copy(self, source: Source, folder: Path, options: PublishOptions) -> Path:
        last = began = self.runtime.clock.now()

        def show(done: int, total: int) -> None:
            nonlocal last
            now = self.runtime.clock.now()
            if done == total or now - last >= 10.0:
                last = now
                rate = done / 1e6 / max(1e-3, now - began)
                self.runtime.say(f"  {done / 1e9:,.2f} of {total / 1e9:,.2f} GB copied, {rate:,.0f} MB/s")

        return Copying(self.pool(options.region, options.connections), source, folder, show).copy()


def plan_copy_here(near: Near, ways: Ways | None, folder: Path) -> Plan[None]:
    """The plan of copying the source to this machine, and what an instance would take instead."""
    source = near.source
    words = f"{source.uri}: {len(source.items):,} objects, {source.bytes / 1e9:,.2f} GB" if source else "not found"
    get = {"Bucket": source.bucket if source else "<bucket>", "Key": "<key>", "IfMatch": "<its ETag>"}
    return Plan(
        title=f"copy {source.uri if source else 'the source'} to this machine, and publish it from here",
        payload=None,
        facts=(Fact("source", source.uri if source else None, words), Fact("folder", str(folder))),
        rates=ways.rates if ways else (),
        problems=near.problems,
        later=(("for each object, above 16 MiB in parts:", (Request("s3", "GetObject", get, "copy it here"),)),),
    )


def _ways(options: PublishOptions, near: Near) -> tuple[Work | None, Ways | None]:
    if near.source is None:
        return None, None
    source, originals = near.source, options.originals
    work = work_of(source.bytes, len(source.items), are_archives=source.are_archives, is_prepared=source.is_prepared,
                   resized=not originals)  # fmt: skip
    work = replace(work, to_s3=options.to != "snapshot", to_snapshot=options.to != "s3", verify=options.verify)
    mine = here(vcpus(), options.upload_mbit_s, options.connections)
    types = types_for(options.instance_type)
    offered = tuple(name for name in types if requests.places(near, name))
    return work, ways_of(work, mine, near.prices, offered or types)


def vcpus() -> int:
    """This machine's."""
    return os.cpu_count() or 1


def on_this_machine(source: str) -> TrainerError:
    """Why an instance cannot take a local folder, and what to do."""
    place = quote(f"s3://{bucket_of('ACCOUNT', 'REGION')}/sources/{Path(source).name}")
    return SettingsError(
        f"{source} is on this machine, and an instance reads from S3 alone; copy it there first (aws s3 cp "
        f"{quote(source)} {place} --recursive), and publish {place}; or publish it --by here."
    )


def running(aws: Aws) -> dict[str, str]:
    """A line for each data set that an instance is publishing, by name."""
    filters = [{"Name": "tag-key", "Values": [PUBLISHES_TAG]}, {"Name": "instance-state-name", "Values": list(LIVING)}]
    lines = dict[str, str]()
    for row in aws.pages("ec2", "DescribeInstances", "Reservations", {"Filters": filters}):
        for node in row["Instances"]:
            tags = tag_values(node)
            name = tags[PUBLISHES_TAG]  # which is part of a command that the user copies
            if is_ours(tags) and re.fullmatch(NAME, name):
                until = tags.get(DEADLINE_TAG, "its time limit")
                lines[name] = (
                    f"{node['InstanceId']} ({node['InstanceType']}) publishes {name}, until {until} at the latest; "
                    f"python -m launch.data stop {name} ends it"
                )
    return lines
