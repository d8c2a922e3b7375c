"""How the jobs of a region are, or one of them: nodes, money, time left, the training, how it ended.  Reads only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import duration
from launch.core.errors import AwsError
from launch.core.lookup import read_json, spec_of
from launch.core.names import Folder
from launch.core.price import usd
from launch.core.progress import Record, in_words, newest
from launch.core.tables import table
from launch.ec2.costs import cost_so_far, is_whole, most_it_cost, this_start, unpriced, usd_per_hour
from launch.ec2.fleet import Fleet, Node
from launch.ec2.judge import TAKEN
from launch.ec2.names import BACKEND
from launch.ec2.watch import exit_records
from trainer.config import TrainConfig
from trainer.contract import Exit

# The launcher's clock writes when a job started, the nodes' clocks when they ended.
CLOCKS_DIFFER_S = 600


@dataclass(frozen=True)
class View:
    """What there is to tell of a job.  fleet: its own; unread: why its folder could not be read."""

    region: str
    folder: Folder
    fleet: Fleet
    now: datetime
    spec: Record | None = None
    members: Record | None = None
    exits: Mapping[str, Record] = field(default_factory=dict)
    epoch: Record | None = None  # the newest line of metrics.jsonl
    unread: str = ""

    @property
    def job(self) -> str:
        return self.folder.job

    @property
    def started(self) -> datetime | None:
        return self.fleet.started.get(self.job) or _time(self.spec, "started")

    @property
    def deadline(self) -> datetime | None:
        return self.fleet.deadlines.get(self.job) or _time(self.spec, "deadline")

    @property
    def records(self) -> tuple[Record, ...]:
        """The exit records of this start, in the order in which the nodes ended."""
        since = self.started.timestamp() - CLOCKS_DIFFER_S if self.started else 0
        return tuple(sorted((r for r in self.exits.values() if r["at"] >= since), key=lambda r: (r["at"], _rank(r))))


def view(aws: Aws, fleet: Fleet, folder: Folder, now: datetime) -> View:
    """What is known of the job of `folder`.  fleet: of all jobs.  What S3 refuses is left out, and said."""
    seen = View(aws.region, folder, fleet.of(folder.job), now)
    try:
        return replace(
            seen,
            spec=spec_of(aws, folder, BACKEND),
            members=read_json(aws, folder.bucket, folder.cluster),
            exits=exit_records(aws, folder),
            epoch=newest(aws, folder),
        )
    except AwsError as error:
        return replace(seen, unread=str(error))


def wanted(aws: Aws, fleet: Fleet) -> dict[str, int]:
    """How many nodes each job shall have; as many as it had, where its job.json cannot tell."""
    return {job: _wanted(aws, fleet, job) for job in fleet.jobs}


def _wanted(aws: Aws, fleet: Fleet, job: str) -> int:
    bucket = fleet.buckets.get(job)
    try:
        spec = spec_of(aws, Folder(bucket, job), BACKEND) if bucket else None
    except AwsError:
        spec = None
    return int(spec["where"]["nodes"]) if spec else len(this_start(fleet.of(job)))


def all_as_text(fleet: Fleet, wanted: Mapping[str, int], region: str, now: datetime) -> str:
    """A row per job that has anything left."""
    if not fleet.jobs:
        return (
            f"no job in {region}.  One that is over is shown by its name: python -m launch.ec2 status JOB; "
            "what a new one would cost: python -m launch.ec2 --nodes 2 --dry-run"
        )
    columns = ("job", "nodes", "type", "zone", "age", "USD/hour", "USD so far", "time limit")
    rows = [_row(fleet.of(job), job, wanted[job], now) for job in fleet.jobs]
    total = f"{len(rows)} job{_s(rows)} in {region}, {usd(usd_per_hour(fleet))} per hour"
    return "\n".join([table(columns, rows), "", total, *_price_notes(fleet)])


def _row(fleet: Fleet, job: str, wanted: int, now: datetime) -> tuple[str, ...]:
    started, deadline = fleet.started.get(job), fleet.deadlines.get(job)
    return (
        job,
        f"{len(fleet.living)}/{wanted}",
        ",".join(sorted({node.type for node in fleet.living})) or "-",
        ",".join(sorted({node.zone for node in fleet.living})) or "-",
        duration(now - started) if started else "-",
        f"{usd_per_hour(fleet):.2f}",
        f"{cost_so_far(fleet, now):.2f}",
        _left(deadline, now) if deadline else "-",
    )


def _left(deadline: datetime, now: datetime) -> str:
    if deadline < now:
        return f"passed {duration(now - deadline)} ago"
    return f"{duration(deadline - now)} left"


def as_text(view: View) -> str:
    """All about one job, and what to type next."""
    lines = [_headline(view)]
    nodes = [node for node in view.fleet.nodes if node.state != "terminated"]
    if nodes:
        lines += ["", table(("rank", "node", "state", "type", "zone", "address", "age"), list(_node_rows(view, nodes)))]
    if ended := list(_end_rows(view)):
        columns = ("rank", "node", "code", "step", "restarts", "ended", "reason")
        lines += ["", "nodes that ended:", table(columns, ended)]
    facts = [*_facts(view)]
    width = max(len(label) for label, _ in facts)
    lines += ["", *(f"  {label:<{width}}  {text}" for label, text in facts)]
    lines += ["", "next:", *(f"  {command}" for command in _next(view))]
    return "\n".join([*lines, *_price_notes(view.fleet)])


def _headline(view: View) -> str:
    living, where = len(view.fleet.living), f"job {view.job} in {view.region}"
    total = view.spec["where"]["nodes"] if view.spec else len(this_start(view.fleet))
    since = f", started {duration(view.now - view.started)} ago" if view.started else ""
    if living:
        return f"{where}: {living} of {total} nodes{since}"
    if view.fleet.ending:
        return f"{where}: its nodes are shutting down{since}"
    if view.spec and "ended" not in view.spec and not view.records and not view.fleet.nodes and view.fleet.things:
        return f"{where}: no nodes yet, or none any more{since}"
    ended = _ended_at(view)
    return f"{where} is over{f', since {duration(view.now - ended)}' if ended else ''}: {how_it_went(view)}"


def how_it_went(view: View) -> str:
    """What the exit records of the job's last nodes tell."""
    last = ranks_in(view.members) or view.exits
    records = [record for record in view.records if record["instance"] in last]
    failed = [record for record in records if record["code"] != Exit.DONE and record["step"] not in TAKEN]
    if failed:
        # Of several, one that did not merely lose the others tells more.
        first = min(failed, key=lambda record: record["code"] == Exit.MACHINE)
        return f"node {_shown(first['rank'])} failed in step {first['step']} ({first['code']}): {first['reason']}"
    if any(record["code"] == Exit.DONE for record in records):
        return "the training is done"
    if records:
        return "its nodes were ended before the training was done"
    return "its nodes left no record; they were ended from outside, or never started"


def _ended_at(view: View) -> datetime | None:
    """When the job ended, as far as it is known."""
    times = [datetime.fromtimestamp(record["at"], UTC) for record in view.records[-1:]]
    times += [node.ended_at for node in this_start(view.fleet) if node.ended_at]
    return _time(view.spec, "ended") or max(times, default=None)


def _node_rows(view: View, nodes: Sequence[Node]) -> Iterator[tuple[str, ...]]:
    ranks = ranks_in(view.members)
    for node in sorted(nodes, key=lambda node: ranks.get(node.id, len(ranks))):
        age = duration(view.now - node.launched_at)
        state = f"{node.state}, spot" if node.spot else node.state
        yield (_shown(ranks.get(node.id)), node.id, state, node.type, node.zone, node.address or "-", age)


def ranks_in(members: Record | None) -> dict[str, int]:
    """The ranks in cluster.json, by instance."""
    return {row["instance"]: row["rank"] for row in members["nodes"]} if members else {}


def _end_rows(view: View) -> Iterator[tuple[str, ...]]:
    """What the nodes said when they ended; and for those that said nothing, what EC2 says."""
    for r in view.records:
        ago = duration(view.now - datetime.fromtimestamp(r["at"], UTC)) + " ago"
        yield (_shown(r["rank"]), r["instance"], str(r["code"]), r["step"], str(r["restarts"]), ago, r["reason"])
    for node in this_start(view.fleet):
        if node.state == "terminated" and node.id not in view.exits:
            ago = duration(view.now - node.ended_at) + " ago" if node.ended_at else "-"
            yield ("-", node.id, "-", "-", "-", ago, node.reason or "EC2 gives none")


def _facts(view: View) -> Iterator[tuple[str, str]]:
    if view.epoch:
        yield "training", in_words(view.epoch, _epochs(view.spec))
    elif view.fleet.living:
        yield "training", "no epoch is done yet"
    yield "cost", _cost(view)
    if view.deadline and view.fleet.ending:
        yield "time limit", f"{_left(view.deadline, view.now)}, {view.deadline:%Y-%m-%d %H:%M} UTC"
    yield "job folder", view.folder.uri
    if view.unread:
        yield "", f"it could not be read: {view.unread}"
    if view.fleet.things and not view.fleet.ending:
        yield "left", ", ".join(f"{thing.kind} {thing.id}" for thing in view.fleet.things)


def _epochs(spec: Record | None) -> str:
    """How many there shall be, from the job's own command line."""
    words = list(spec["train"]) if spec else []
    given = words[words.index("--epochs") + 1] if "--epochs" in words else TrainConfig.model_fields["epochs"].default
    return str(given) if spec else "?"


def _cost(view: View) -> str:
    nodes = this_start(view.fleet)
    if not nodes and view.spec:
        ended = min(_ended_at(view) or view.now, view.deadline or view.now)
        return f"at most about {usd(most_it_cost(view.spec, ended))}"
    bound = "at least" if not is_whole(view.fleet, view.now) else "at most" if any(n.spot for n in nodes) else "about"
    why = {"at least": "; nodes replaced over an hour ago are not counted", "at most": "; spot is cheaper"}
    rate = f" so far, {usd(usd_per_hour(view.fleet))} per hour now" if view.fleet.ending else ""
    return f"{bound} {usd(cost_so_far(view.fleet, view.now))}{rate}{why.get(bound, '')}"


def _price_notes(fleet: Fleet) -> list[str]:
    missing = unpriced(fleet)
    return ["", f"not counted, because infra/instances.yaml has no price: {', '.join(missing)}"] if missing else []


def _next(view: View) -> Iterator[str]:
    def command(verb: str, *flags: str) -> str:
        return " ".join(["python -m launch.ec2", verb, view.job, *flags, "--region", view.region])

    if view.fleet.living:
        yield command("logs", "--follow")
        yield command("ssh", "--node", "0")
    else:
        yield command("logs")
        yield f"aws s3 sync {view.folder.uri}/run runs/{view.job} --region {view.region}"
    if not view.fleet.is_empty:
        yield command("stop")


def _time(spec: Record | None, key: str) -> datetime | None:
    return datetime.fromtimestamp(spec[key], UTC) if spec and key in spec else None


def _rank(record: Record) -> int:
    return -1 if record["rank"] is None else int(record["rank"])


def _shown(rank: int | None) -> str:
    return "-" if rank is None else str(rank)


def _s(things: Sequence[Any]) -> str:
    return "" if len(things) == 1 else "s"
