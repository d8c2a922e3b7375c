"""The verbs publish, stop, list, show, copy and delete: each looks up, decides in a planner, and acts here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from launch.aws.client import Aws
from launch.aws.lookup import Lookups, read_json, region_or_some
from launch.aws.names import bucket_of
from launch.aws.published import check_name
from launch.core import shell
from launch.core.clock import Clock
from launch.core.manifest import RECORD
from launch.core.options import RegionOptions
from launch.core.perform import perform
from launch.core.plan import dry_run
from launch.core.shell import this_python
from launch.core.terminal import Say
from launch.data import copying, planner, show
from launch.data.costs import vcpus
from launch.data.image import Which, find_tools
from launch.data.lookup import find_snapshots, look_up, place_of
from launch.data.on_ec2 import commands as on_ec2
from launch.data.on_ec2.facts import find_reports, running
from launch.data.options import CopyOptions, DeleteOptions, NameOptions, PublishOptions
from launch.data.pool import Pool
from launch.data.prepared import (
    Prepared,
    check_nothing_else,
    check_source,
    count_source,
    is_prepared,
    read_plain,
    read_prepared,
)
from launch.data.publish import Publisher
from launch.data.snapshot import State
from launch.data.source import Copying, Source, find_source, is_in_s3, name_of, not_in_s3, place_in_s3, plan_copy_here
from launch.data.upload import progress
from trainer.contract import Exit
from trainer.errors import DataError, SettingsError, error_with


@dataclass(frozen=True)
class Runtime:
    """What the commands need from outside."""

    make_aws: Callable[[str | None], Aws]  # calls to a region; None: the configured one
    which: Which  # finds the path of a program
    env: Mapping[str, str]  # of child processes
    clock: Clock
    say: Say
    confirm: Callable[[str], None]  # raises SettingsError unless the user agrees


class Commands:
    """Each verb takes its options and returns the exit code."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._say = runtime, runtime.say

    def publish(self, options: PublishOptions) -> int:
        """Prepare the images if necessary, and bring them to S3 and into a snapshot."""
        source = str(_given(options.source, "a folder", "publish photos --name photos"))
        if options.plain:
            _check_plain(options, source)
        if is_in_s3(source):
            return self._from_s3(options, source)
        if options.by == "instance":
            raise not_in_s3(source)
        return self._from_here(options, Path(source))

    def _from_s3(self, options: PublishOptions, source: str) -> int:
        name = options.name or check_name(name_of(place_in_s3(source).key))
        aws = self._runtime.make_aws(options.region)
        copy_here = partial(self._copy_here, options, name, aws)
        if options.by == "here":
            return copy_here()
        return on_ec2.OnEc2(self._runtime, copy_here, self.show).publish(options, name, aws)

    def _copy_here(self, options: PublishOptions, name: str, aws: Aws) -> int:
        """Copy the source in S3 to this machine, and publish it from here."""
        folder, lookups = Path(f"{name}-source").absolute(), Lookups()
        nothing: Source | None = None
        source = lookups.required(partial(find_source, aws, str(options.source)), nothing)
        plan = plan_copy_here(options, source, folder, vcpus(), lookups.problems)
        if options.dry_run:
            return dry_run(plan, options.dry_run, self._say)
        if source is None:
            raise lookups.problems[0]
        self._say(plan.brief)
        self._say(f"copy {source.uri} to {folder}")
        pool = self._pool(options.region, options.connections)
        shown = progress(self._runtime.clock, self._say, "copied")
        copied = Copying(pool, source, folder, shown).copy()
        at = {"source": str(copied), "name": name, "prepared": options.prepared or Path(f"{name}-prepared").absolute()}
        return self._from_here(options.model_copy(update=at), copied)

    def _from_here(self, options: PublishOptions, source: Path) -> int:
        """Publish a folder of this machine."""
        name = options.name or check_name(name_of(str(source.resolve())))
        aws = self._runtime.make_aws(options.region)
        tools = find_tools(self._runtime.which) if options.to != "s3" else None
        prepared = self._prepared(options, source)
        if prepared is None:
            target, size = _target(options, source), count_source(source)
            plan = planner.plan_unprepared(options, name, source, target, size, region_or_some(aws), vcpus())
            return dry_run(plan, options.dry_run, self._say)
        facts = look_up(aws, name, prepared, with_users=options.replace)
        to_do = planner.plan_publish(options, name, prepared, facts, self._runtime.clock.utc(), vcpus())
        if options.dry_run:
            return dry_run(to_do, options.dry_run, self._say)
        if to_do.problem:
            raise to_do.problem
        publication = to_do.payload
        state = State(options.work_dir or prepared.folder.with_name(f"{prepared.folder.name}-publishing"))
        if planner.is_done(publication, facts):
            self._say(f"{name} is already published and unchanged.")
            state.clear()  # an earlier run may have ended before this
        else:
            self._say(to_do.brief)
            earlier = facts.record if facts.record and facts.record.get("digest") == prepared.digest else {}
            pool = self._pool(options.region, options.connections)
            runtime = self._runtime
            publisher = Publisher(aws, pool, runtime.clock, self._say, runtime.env, state, tools)
            publisher.publish(to_do, options, earlier)
        return self.show(NameOptions(name=name, region=options.region))

    def list(self, options: RegionOptions) -> int:
        """Print a line per data set, including unfinished ones."""
        aws = self._runtime.make_aws(options.region)
        account = str(aws.call("sts", "GetCallerIdentity")["Account"])
        bucket = bucket_of(account, aws.region)
        query = {"Bucket": bucket, "Prefix": "data/", "Delimiter": "/", "ExpectedBucketOwner": account}
        folders = aws.pages("s3", "ListObjectsV2", "CommonPrefixes", query)
        names = [row["Prefix"].split("/")[1] for row in folders]
        records = {name: read_json(aws, bucket, f"data/{name}/{RECORD}") for name in names}
        self._say(show.listing(aws.region, records, find_snapshots(aws)))
        for line in running(aws).values():
            self._say(line)
        return Exit.DONE

    def stop(self, options: NameOptions) -> int:
        """Stop the instance that publishes a data set."""
        name = _given(options.name, "the name of a data set", "stop photos")
        return on_ec2.stop(self._runtime, name, options.region)

    def show(self, options: NameOptions) -> int:
        """Print everything about a data set, and the commands that use it."""
        name = _given(options.name, "the name of a data set", "show photos")
        aws = self._runtime.make_aws(options.region)
        facts = look_up(aws, name)
        if facts.problems:
            raise facts.problems[0]
        if facts.record is None and not facts.snapshots:
            raise SettingsError(f"there is no data set {name} in {facts.region}; see python -m launch.data list.")
        self._say(show.details(name, place_of(name, facts.account, facts.region), facts))
        return Exit.DONE

    def copy(self, options: CopyOptions) -> int:
        """Copy a published data set to another region."""
        name = _given(options.name, "the name of a data set", "copy photos --to-region eu-west-1")
        region = _given(options.to_region, "--to-region", "copy photos --to-region eu-west-1")
        here, there = self._runtime.make_aws(options.region), self._runtime.make_aws(region)
        plan = copying.plan_copy(name, look_up(here, name), look_up(there, name, with_users=True), options.kms_key)
        if options.dry_run:
            return dry_run(plan, options.dry_run, self._say)
        if plan.problem:
            raise plan.problem
        self._say(plan.brief)
        copying.carry_out(plan, there, self._pool(region, 16), self._runtime.clock, self._say)
        return self.show(NameOptions(name=name, region=region))

    def delete(self, options: DeleteOptions) -> int:
        """Delete what launch.data has published under a name."""
        name = _given(options.name, "the name of a data set", "delete photos")
        aws = self._runtime.make_aws(options.region)
        facts = look_up(aws, name, with_users=True)
        reports = find_reports(aws, name, facts.account, facts.region) if not facts.problems else ()
        plan = planner.plan_removal(name, facts, reports)
        if options.dry_run:
            return dry_run(plan, options.dry_run, self._say)
        if plan.problem:
            raise plan.problem
        if name in (published := running(aws)):
            raise SettingsError(published[name])
        self._say(plan.brief)
        for fact in plan.facts:
            self._say(f"  {fact.name}: {fact.text}")
        if not options.yes:
            self._runtime.confirm(f"this deletes data set {name} in {aws.region}")
        perform(plan.steps, aws.call, lambda line: None, self._runtime.clock.sleep)
        self._say(
            f"deleted {len(plan.steps)} snapshots and objects of {name}; the bucket keeps old versions for a week"
        )
        return Exit.DONE

    # ---- parts of them

    def _prepared(self, options: PublishOptions, source: Path) -> Prepared | None:
        """The prepared data set, made by trainer.prepare if necessary; None for a dry run that would make it."""
        if options.plain:
            return read_plain(source, options.name or source.resolve().name)
        if is_prepared(source):
            return _read(source, options)
        target = _target(options, source)
        count_source(source)
        if not is_prepared(target):
            if options.dry_run:
                return None
            self._prepare(options, source, target)
        else:
            self._say(f"{target} was prepared before and is used as it is; delete it to prepare it again")
            _check_flags(target, options)
            check_source(read_prepared(target), source)
        return _read(target, options)

    def _prepare(self, options: PublishOptions, source: Path, target: Path) -> None:
        """Run trainer.prepare in its own process, as launch imports nothing that decodes images."""
        command = planner.prepare_command(options, source, target, *this_python())
        self._say(f"$ {' '.join(planner.prepare_command(options, source, target, 'python'))}")
        code = shell.run(command, self._runtime.env)
        if code:
            raise error_with(code, "trainer.prepare did not finish; its last lines are above.")
        if not is_prepared(target):
            raise DataError(f"trainer.prepare left no manifest in {target}; run it by itself to see why.")

    def _pool(self, region: str | None, connections: int) -> Pool:
        return Pool(lambda: self._runtime.make_aws(region), self._runtime.clock, connections)


def _read(folder: Path, options: PublishOptions) -> Prepared:
    prepared = read_prepared(folder)
    if options.to != "s3":
        check_nothing_else(prepared)
    return prepared


def _check_plain(options: PublishOptions, source: str) -> None:
    """Raise SettingsError for options that contradict --plain."""
    for name in ("prepared", "resize", "originals"):
        if getattr(options, name):
            raise SettingsError(f"--plain publishes a folder as it is, and --{name} is for images; leave one out.")
    if is_in_s3(source):
        raise SettingsError(f"{source} is in S3, and --plain publishes a folder of this machine; copy it here first.")


def _check_flags(folder: Path, options: PublishOptions) -> None:
    """Raise SettingsError if an earlier run prepared with other flags than those given now."""
    resize, found = 0 if options.originals else options.resize, read_prepared(folder).content.px
    if resize is not None and resize != found:
        was = f"--resize {found}" if found else "--originals"
        raise SettingsError(f"{folder} was prepared with {was}; delete it, or give another folder with --prepared.")


def _target(options: PublishOptions, source: Path) -> Path:
    folder = source.resolve()
    return options.prepared or folder.with_name(f"{folder.name}-prepared")


def _given(value: Any, what: str, example: str) -> Any:
    if value is None:
        raise SettingsError(f"give {what}, as in python -m launch.data {example}")
    return value
