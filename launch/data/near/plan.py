"""The plan of an instance that publishes a data set, from facts.  Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from launch.aws.instances.facts import quota_of, shortage
from launch.aws.names import bucket_of
from launch.aws.pricelist import no_price
from launch.core import catalog
from launch.core.clock import duration
from launch.core.plan import Choice, Fact, Plan, Request
from launch.core.price import usd
from launch.data.near import requests
from launch.data.near.facts import Near, Run, new_id
from launch.data.near.work import TYPES, Ways, Work, machine_of, no_room
from launch.data.options import PublishOptions
from launch.data.prices import BETWEEN_REGIONS_GB
from launch.data.requests import PUBLISHED, SOME_ACCOUNT
from trainer.errors import SettingsError, TrainerError

NEEDED = "the policies that launch.ec2 needs, and aws-ddp-toolkit-data (infra/data.md)"


@dataclass(frozen=True)
class Bundle:
    """The code for the instance.  sha256: hexadecimal."""

    content: bytes
    sha256: str


def plan_near(
    options: PublishOptions, name: str, near: Near, work: Work | None, ways: Ways | None, code: Bundle, now: datetime
) -> Plan[Run]:
    """The plan of the instance.  work, ways: None if the source was not found."""
    goes_on = is_continued(options, name, near, now)
    run = near.run if near.run and goes_on else _new_run(options, name, near, ways, code.sha256, now)
    begun = ": begun before; continues" if goes_on else ""
    return Plan(
        title=f"data set {name}, in {near.region}, by a temporary instance",
        payload=run,
        facts=(
            Fact("account", near.account or None, near.account or f"not looked up; {SOME_ACCOUNT} stands in for it"),
            Fact("source", run.source, _source_words(near, run)),
            Fact("run", run.id, run.id + begun),
            Fact("instance", run.type, f"{run.type} with Amazon Linux 2023: nothing inbound, HTTPS outbound"),
            Fact("time_limit", run.deadline, f"{run.deadline:%Y-%m-%d %H:%M} UTC; then AWS ends it", "time limit"),
            Fact("reports", run.uri, f"{run.uri}: progress, log and end", "reports to"),
        ),
        steps=_steps(options, run, near, code, goes_on=goes_on),
        rates=(*(ways.rates if ways else ()), *_after_loss(ways), *_at_most(run, near)),
        warnings=(*near.unknown, *_warnings(near)),
        problems=(*near.problems, *_problems(options, near, work, ways, run, goes_on=goes_on)),
    )


def is_continued(options: PublishOptions, name: str, near: Near, now: datetime) -> bool:
    """Whether to continue a run: it is open, or has ended the same publication and its result is still unread."""
    return near.is_open(now) or (near.is_unseen and _is_same(options, name, near))


def is_done(options: PublishOptions, name: str, near: Near) -> bool:
    """Whether the last run has published the same, so that nothing is left to do."""
    has_ended_well = bool(near.ended) and near.over is not None and near.over.get("code") == 0
    return _is_published(near) and has_ended_well and not options.replace and _is_same(options, name, near)


def _is_published(near: Near) -> bool:
    return (near.record or {}).get("state") == PUBLISHED


def _is_same(options: PublishOptions, name: str, near: Near) -> bool:
    source = near.source.uri if near.source else str(options.source)
    return near.run is not None and (source, requests.words(options, name, near.region)) == (
        near.run.source, near.run.words,
    )  # fmt: skip


def _new_run(options: PublishOptions, name: str, near: Near, ways: Ways | None, sha256: str, now: datetime) -> Run:
    account, started = near.account or SOME_ACCOUNT, now.replace(microsecond=0)
    return Run(
        id=new_id(name, now, near.letters),
        name=name,
        account=account,
        region=near.region,
        bucket=bucket_of(account, near.region),
        owner=near.owner,
        source=near.source.uri if near.source else str(options.source),
        type=options.instance_type or (ways.instance.machine.name if ways and ways.instance else TYPES[0]),
        words=requests.words(options, name, near.region),
        code=sha256,
        ami=near.ami.id,
        root=near.ami.root,
        gib=near.ami.gib,
        started=started,
        deadline=started + timedelta(hours=options.max_hours),
    )


def _source_words(near: Near, run: Run) -> str:
    if near.source is None:
        return run.source
    return f"{near.source.uri}: {len(near.source.items):,} objects, {near.source.bytes / 1e9:,.2f} GB"


def _steps(
    options: PublishOptions, run: Run, near: Near, code: Bundle, *, goes_on: bool
) -> tuple[Request | Choice, ...]:
    """The requests that are still to be made.  For a continued run they are the same as before."""
    if goes_on and not _would_start(run, near):
        return ()
    begin: list[Request | Choice] = []
    if not goes_on:
        begin = [*requests.leftovers(near), *requests.begin(run, near, code.content), *requests.clear(run, near.run)]
    return (*begin, *requests.time_limit(run, near.role), *requests.network(run, near), requests.start(run, near))


def _would_start(run: Run, near: Near) -> bool:
    """Whether a continued run never had an instance."""
    return not (near.is_unseen or near.machines_of(run))


def most_usd(run: Run, near: Near) -> float:
    """The cost of the instance if only its time limit ends it."""
    instance = catalog.find(run.type)
    hourly = machine_of(instance, near.prices.of(instance)).usd_per_hour
    return hourly * (run.deadline - run.started).total_seconds() / 3600


def _at_most(run: Run, near: Near) -> tuple[Fact, ...]:
    most = most_usd(run, near)
    words = f"{usd(most)} for the instance, if only its time limit ends it"
    return (Fact("at_most", {"usd": round(most, 4)}, words, "at most"),)


def _after_loss(ways: Ways | None) -> tuple[Fact, ...]:
    if ways is None or ways.instance is None:
        return ()
    way = ways.instance
    figures = {"seconds": round(way.again_s), "usd": round(way.again_usd, 4)}
    words = (
        f"at most {duration(timedelta(seconds=way.again_s))} and {usd(way.again_usd)} more each time: the images are "
        "prepared again, and what AWS has is not sent again"
    )
    return (Fact("if_lost", figures, words, "if it is lost"),)


def _warnings(near: Near) -> tuple[str, ...]:
    if near.source is None or near.source.bucket == bucket_of(near.account, near.region):
        return ()
    between = usd(near.source.bytes / 1e9 * BETWEEN_REGIONS_GB)
    return (
        f"s3://{near.source.bucket} is not the toolkit's bucket: the role aws-ddp-toolkit-publisher must be allowed to "
        "read it (infra/iam/publisher.json, launch.infra up), and it should be in the same region: from another one, "
        f"traffic costs some {between} more.",
    )


def _problems(
    options: PublishOptions, near: Near, work: Work | None, ways: Ways | None, run: Run, *, goes_on: bool
) -> list[TrainerError]:
    """The first problem, beside those of the look-ups."""
    if near.problems or work is None or ways is None:
        return []
    if goes_on:
        return _problems_of_continuing(options, near, run)
    if _is_published(near) and not options.replace:
        words = f"{run.name} is published already; add --replace to publish what is in {run.source} under this name."
        return [SettingsError(words)]
    if ways.instance is None:
        return [no_room(work, options.instance_type)]
    return _limits(options, near, ways, run) or _places(near, run)


def _problems_of_continuing(options: PublishOptions, near: Near, run: Run) -> list[TrainerError]:
    if not _is_same(options, run.name, near):
        return [_of_another(run)]
    return _quota(near, run) if _would_start(run, near) else []


def _of_another(run: Run) -> SettingsError:
    return SettingsError(
        f"{run.name} is being published by {run.id}, from {run.source} and with other settings; wait for its end, or "
        f"end it first: python -m launch.data stop {run.name}"
    )


def _limits(options: PublishOptions, near: Near, ways: Ways, run: Run) -> list[TrainerError]:
    assert ways.instance is not None
    hours, most = ways.instance.total_s / 3600, most_usd(run, near)
    if hours > options.max_hours:
        words = f"it should take {hours:.1f} h, and --max-hours is {options.max_hours:g}; allow more."
        return [SettingsError(words)]
    if options.max_usd is None:
        return []
    if not near.prices.are_known:
        return [no_price(options.max_usd, near.region)]
    if most > options.max_usd:
        words = (
            f"it could cost {usd(most)} until its time limit, more than --max-usd {options.max_usd:g}; allow more, or "
            f"lower --max-hours (it should take {hours:.1f})."
        )
        return [SettingsError(words)]
    return []


def _quota(near: Near, run: Run) -> list[TrainerError]:
    instance = catalog.find(run.type)
    quota = near.quotas.get(quota_of(instance, spot=False).name)
    instead = "publish it from a machine of yours (--by here)"
    problem = shortage(quota, instance.vcpus, f"one {run.type} needs", instead)
    return [problem] if problem else []


def _places(near: Near, run: Run) -> list[TrainerError]:
    if requests.places(near, run.type):
        return _quota(near, run)
    if near.subnets and not any(map(near.reachable, near.subnets)):
        words = (
            "an instance could not reach S3, EBS and PyPI from any of the subnets: they have no way to the internet "
            "with a public address; give another with --subnet."
        )
        return [SettingsError(words)]
    zones = ", ".join(subnet.zone for subnet in near.subnets)
    return [SettingsError(f"{run.type} is not offered in {zones}; give another --instance-type, or --subnet.")]
