"""The plan of a run: one EC2 instance that publishes a data set, its price, and its requests.  Pure."""

from datetime import datetime, timedelta

from launch.aws.instances.facts import Ami, Subnet, quota_of, shortage
from launch.aws.instances.requests import (
    HTTPS,
    NEW_GROUP,
    NO_CAPACITY,
    Start,
    deletion,
    nothing_else_out,
    outbound,
    outbound_dns,
    security_group,
    time_limit,
)
from launch.aws.names import HOURLY_TAG, bucket_of, client_token, group_name
from launch.aws.pricelist import no_price
from launch.aws.upload import checksum
from launch.core import catalog
from launch.core.clock import duration
from launch.core.plan import Choice, Fact, Plan, Request, Try
from launch.core.price import Volume, usd
from launch.core.source.archive import Archive
from launch.core.templates import fill
from launch.data.costs import (
    BETWEEN_REGIONS_GB,
    CONNECTIONS,
    TYPES,
    Comparison,
    Work,
    compare,
    machine_of,
    no_room,
    types_for,
)
from launch.data.on_ec2.bundle import LOCK
from launch.data.on_ec2.facts import EXIT, PROFILE, PROGRESS, Facts, Run, new_id, put_run
from launch.data.options import PublishOptions
from launch.data.planner import PUBLISHED, SOME_ACCOUNT
from launch.data.source import work_with
from trainer.errors import SettingsError, TrainerError


def compared_for(options: PublishOptions, facts: Facts, vcpus: int) -> tuple[Work | None, Comparison | None]:
    """The work, and both ways of doing it; None if the source was not found.  vcpus: of this machine."""
    if facts.source is None:
        return None, None
    work = work_with(options, facts.source)
    offered = tuple(name for name in types_for(options.instance_type) if places(facts, name))
    return work, compare(options, work, vcpus, facts.prices, offered)


def plan_run(
    options: PublishOptions,
    name: str,
    facts: Facts,
    work: Work | None,
    compared: Comparison | None,
    code: Archive,
    now: datetime,
) -> Plan[Run]:
    """The plan of the instance.  work, compared: None if the source was not found."""
    goes_on = is_continued(options, name, facts, now)
    run = facts.run if facts.run and goes_on else _new_run(options, name, facts, compared, code.digest, now)
    begun = ": begun before; continues" if goes_on else ""
    return Plan(
        title=f"data set {name}, in {facts.region}, by a temporary instance",
        payload=run,
        facts=(
            Fact("account", facts.account or None, facts.account or f"not looked up; {SOME_ACCOUNT} stands in for it"),
            Fact("source", run.source, facts.source.words if facts.source else run.source),
            Fact("run", run.id, run.id + begun),
            Fact("instance", run.type, f"{run.type} with Amazon Linux 2023: nothing inbound, HTTPS outbound"),
            Fact("time_limit", run.deadline, f"{run.deadline:%Y-%m-%d %H:%M} UTC; then AWS ends it", "time limit"),
            Fact("reports", run.uri, f"{run.uri}: progress, log and end", "reports to"),
        ),
        steps=_steps(options, run, facts, code, goes_on=goes_on),
        rates=(*(compared.rates if compared else ()), *_after_loss(compared), *_at_most(run, facts)),
        warnings=(*facts.unknown, *_warnings(facts)),
        problems=(*facts.problems, *_problems(options, facts, work, compared, run, goes_on=goes_on)),
    )


def is_continued(options: PublishOptions, name: str, facts: Facts, now: datetime) -> bool:
    """Whether to continue a run: it is open, or has ended the same publication and its result is still unread."""
    return facts.is_open(now) or (facts.is_unseen and _is_same(options, name, facts))


def is_done(options: PublishOptions, name: str, facts: Facts) -> bool:
    """Whether the last run has published the same, so that nothing is left to do."""
    has_ended_well = bool(facts.ended) and facts.exit_record is not None and facts.exit_record.get("code") == 0
    return _is_published(facts) and has_ended_well and not options.replace and _is_same(options, name, facts)


def _is_published(facts: Facts) -> bool:
    return (facts.record or {}).get("state") == PUBLISHED


def _is_same(options: PublishOptions, name: str, facts: Facts) -> bool:
    source = facts.source.uri if facts.source else str(options.source)
    return facts.run is not None and (source, flags(options, name, facts.region)) == (
        facts.run.source, facts.run.words,
    )  # fmt: skip


def _new_run(
    options: PublishOptions, name: str, facts: Facts, compared: Comparison | None, sha256: str, now: datetime
) -> Run:
    account, started = facts.account or SOME_ACCOUNT, now.replace(microsecond=0)
    return Run(
        id=new_id(name, now, facts.letters),
        name=name,
        account=account,
        region=facts.region,
        bucket=bucket_of(account, facts.region),
        owner=facts.owner,
        source=facts.source.uri if facts.source else str(options.source),
        type=options.instance_type or (compared.instance.machine.name if compared and compared.instance else TYPES[0]),
        words=flags(options, name, facts.region),
        code=sha256,
        ami=facts.ami.id,
        root=facts.ami.root_device,
        gib=facts.ami.gib,
        started=started,
        deadline=started + timedelta(hours=options.max_hours),
    )


def _steps(
    options: PublishOptions, run: Run, facts: Facts, code: Archive, *, goes_on: bool
) -> tuple[Request | Choice, ...]:
    """The requests that are still to be made.  For a continued run they are the same as before."""
    if goes_on and not _would_start(run, facts):
        return ()
    begin: list[Request | Choice] = []
    if not goes_on:
        begin = [*_leftovers(facts), *_begin(run, facts, code), *clear(run, facts.run)]
    return (
        *begin,
        *time_limit(run.id, run.deadline, facts.role or "<role>", exists=False),
        *_network(run, facts),
        _start(run, facts),
    )


def _would_start(run: Run, facts: Facts) -> bool:
    """Whether a continued run never had an instance."""
    return not (facts.is_unseen or facts.nodes_of(run))


def most_usd(run: Run, facts: Facts) -> float:
    """The cost of the instance if only its time limit ends it."""
    return _hourly_usd(run, facts) * (run.deadline - run.started).total_seconds() / 3600


def _hourly_usd(run: Run, facts: Facts) -> float:
    """The price of the instance with its disk."""
    instance = catalog.find(run.type)
    return machine_of(instance, facts.prices.of(instance)).usd_per_hour


def _at_most(run: Run, facts: Facts) -> tuple[Fact, ...]:
    most = most_usd(run, facts)
    words = f"{usd(most)} for the instance, if only its time limit ends it"
    return (Fact("at_most", {"usd": round(most, 4)}, words, "at most"),)


def _after_loss(compared: Comparison | None) -> tuple[Fact, ...]:
    if compared is None or compared.instance is None:
        return ()
    estimate = compared.instance
    figures = {"seconds": round(estimate.again_s), "usd": round(estimate.again_usd, 4)}
    words = (
        f"at most {duration(timedelta(seconds=estimate.again_s))} and {usd(estimate.again_usd)} more each time: the "
        "images are prepared again, and what AWS has is not sent again"
    )
    return (Fact("if_lost", figures, words, "if it is lost"),)


def _warnings(facts: Facts) -> tuple[str, ...]:
    if facts.source is None or facts.source.bucket == bucket_of(facts.account, facts.region):
        return ()
    between = usd(facts.source.bytes / 1e9 * BETWEEN_REGIONS_GB)
    return (
        f"s3://{facts.source.bucket} is not the toolkit's bucket: the role aws-ddp-toolkit-publisher must be allowed "
        "to read it (infra/iam/publisher.json, launch.infra up), and it should be in the same region: from another "
        f"one, traffic costs some {between} more.",
    )


def _problems(
    options: PublishOptions, facts: Facts, work: Work | None, compared: Comparison | None, run: Run, *, goes_on: bool
) -> list[TrainerError]:
    """The first problem, beside those of the look-ups."""
    if facts.problems or work is None or compared is None:
        return []
    if goes_on:
        return _problems_of_continuing(options, facts, run)
    if _is_published(facts) and not options.replace:
        words = f"{run.name} is published already; add --replace to publish what is in {run.source} under this name."
        return [SettingsError(words)]
    if compared.instance is None:
        return [no_room(work, options.instance_type)]
    return _limits(options, facts, compared, run) or _places(facts, run)


def _problems_of_continuing(options: PublishOptions, facts: Facts, run: Run) -> list[TrainerError]:
    if not _is_same(options, run.name, facts):
        return [_of_another(run)]
    return _quota(facts, run) if _would_start(run, facts) else []


def _of_another(run: Run) -> SettingsError:
    return SettingsError(
        f"{run.name} is being published by {run.id}, from {run.source} and with other settings; wait for its end, or "
        f"end it first: python -m launch.data stop {run.name}"
    )


def _limits(options: PublishOptions, facts: Facts, compared: Comparison, run: Run) -> list[TrainerError]:
    assert compared.instance is not None
    hours, most = compared.instance.total_s / 3600, most_usd(run, facts)
    if hours > options.max_hours:
        words = f"it should take {hours:.1f} h, and --max-hours is {options.max_hours:g}; allow more."
        return [SettingsError(words)]
    if options.max_usd is None:
        return []
    if not facts.prices.are_known:
        return [no_price(options.max_usd, facts.region)]
    if most > options.max_usd:
        words = (
            f"it could cost {usd(most)} until its time limit, more than --max-usd {options.max_usd:g}; allow more, or "
            f"lower --max-hours (it should take {hours:.1f})."
        )
        return [SettingsError(words)]
    return []


def _quota(facts: Facts, run: Run) -> list[TrainerError]:
    instance = catalog.find(run.type)
    quota = facts.quotas.get(quota_of(instance, spot=False).name)
    instead = "publish it from a machine of yours (--by here)"
    problem = shortage(quota, instance.vcpus, f"one {run.type} needs", instead, facts.region)
    return [problem] if problem else []


def _places(facts: Facts, run: Run) -> list[TrainerError]:
    if places(facts, run.type):
        return _quota(facts, run)
    if facts.subnets and not any(map(facts.reachable, facts.subnets)):
        words = (
            "an instance could not reach S3, EBS and PyPI from any of the subnets: they have no way to the internet "
            "with a public address; give another with --subnet."
        )
        return [SettingsError(words)]
    zones = ", ".join(subnet.zone for subnet in facts.subnets)
    return [SettingsError(f"{run.type} is not offered in {zones}; give another --instance-type, or --subnet.")]


# ---- requests


def flags(options: PublishOptions, name: str, region: str) -> tuple[str, ...]:
    """The flags of launch.data publish on the instance, without the source."""
    given = [f"--resize={options.resize}"] if options.resize else []
    given += ["--originals"] if options.originals else []
    given += [f"--kms-key={options.kms_key}"] if options.kms_key else []
    given += ["--replace"] if options.replace else []
    return (f"--name={name}", f"--to={options.to}", f"--verify={options.verify}", *given, f"--region={region}")


def _begin(run: Run, facts: Facts, code: Archive) -> list[Request]:
    """Upload the code, then run.json, by which the same command recognizes the run."""
    place = {"Bucket": run.bucket, "Key": run.code_key, "ExpectedBucketOwner": run.account}
    digest = checksum(code.digest)
    params = {**place, "Body": code.content, "ChecksumAlgorithm": "SHA256", "ChecksumSHA256": digest}
    return [Request("s3", "PutObject", params, "send the code that it runs"), put_run(run, facts.etag)]


def _leftovers(facts: Facts) -> list[Request]:
    """Delete leftovers of ended runs: groups, which cost nothing, and time limits."""
    present = {node.job for node in facts.fleet.present}
    made = list[Request]()
    for group in facts.fleet.resources:
        if group.job not in present:
            limit = group_name(group.job)
            made.append(deletion("security-group", group.id, f"delete {group.id}, which is left"))
            made.append(deletion("schedule", limit, f"delete the time limit {limit}"))
    return made


def clear(run: Run, before: Run | None) -> list[Request]:
    """Delete the reports of the previous run, and its code if that differs."""
    files = [EXIT, PROGRESS]
    if before is not None and before.code_key != run.code_key:
        files.append(before.code_key.removeprefix(run.prefix))
    return [Request("s3", "DeleteObject", run.place(file), f"delete {file} of an earlier run") for file in files]


def _network(run: Run, facts: Facts) -> list[Request]:
    """A security group with nothing inbound, and HTTPS outbound."""
    vpc = facts.subnets[0].vpc if facts.subnets else "<vpc>"
    about, why = f"{run.id} publishes a data set: HTTPS out", "create a group that lets nothing in"
    create = [] if facts.group_of(run.id) else [security_group(run.id, about, vpc, run.tags, why)]
    group = facts.group_of(run.id) or NEW_GROUP
    https = outbound(group, [HTTPS], "outbound: HTTPS")
    return [*create, https, *outbound_dns(group, facts.dns), *nothing_else_out(group)]


def places(facts: Facts, kind: str) -> list[Subnet]:
    """The subnets that an instance of this type can start and work in."""
    offered = facts.offered.get(kind)
    zones = [one for one in facts.subnets if offered is None or one.zone in offered]
    return [subnet for subnet in zones if facts.reachable(subnet)]


def _start(run: Run, facts: Facts) -> Choice:
    """Start one instance, in the first zone with capacity."""
    subnets = places(facts, run.type) or [Subnet("<subnet>", "<zone>", "<vpc>")]
    tries = [Try(_run_instance(run, facts, one), (run.type, one.zone), run.type) for one in subnets]
    return Choice(tuple(tries), f"start one {run.type}", ("type", "zone", "answer"), NO_CAPACITY, {}, name="instance")


def _run_instance(run: Run, facts: Facts, subnet: Subnet) -> Request:
    groups = [facts.group_of(run.id) or NEW_GROUP]
    interface = {"DeviceIndex": 0, "SubnetId": subnet.id, "Groups": groups, "DeleteOnTermination": True}
    start = Start(
        count=1,
        type=run.type,
        ami=Ami(run.ami, run.root),
        root=Volume(run.gib),
        token=client_token(run.id, run.type, subnet.id),
        profile=PROFILE,
        interfaces=[interface],
        user_data=user_data(run),
        tags=run.tags,
        own_tags={HOURLY_TAG: f"{_hourly_usd(run, facts):.6g}"},
    )
    return start.request(f"start one {run.type} in {subnet.zone}", "instance")


def user_data(run: Run) -> str:
    minutes = round((run.deadline - run.started).total_seconds() / 60)
    return fill(
        "data/publish.sh",
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
