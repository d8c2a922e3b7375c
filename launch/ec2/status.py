"""The status of a job, from its resources and its folder, and of all jobs in a region, as text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from launch.aws.client import Aws
from launch.aws.instances.inventory import Fleet
from launch.aws.lookup import spec_of
from launch.aws.names import TIME, Folder
from launch.aws.progress import get_outcome, in_words, newest, pace, pace_in_words
from launch.core.clock import duration, minute
from launch.core.errors import AwsError
from launch.core.jobs import Overview, Phase, State, Summary, phases_of
from launch.core.metrics import values_of
from launch.core.price import usd
from launch.core.terminal import table
from launch.core.training.options import epochs_in
from launch.ec2.backend import BACKEND_NAME, command
from launch.ec2.costs import cost_so_far, is_whole, most_it_cost, this_start, unpriced, usd_per_hour
from launch.ec2.job_folder import exit_records, members_of, read_exits, written_by_nodes
from launch.ec2.records import Record, first_marks, of_records, rank_of, stopped
from launch.ec2.warm import warm_until
from launch.ec2.watch import with_ends
from trainer.contract import Exit
from trainer.errors import SettingsError
from trainer.outcome import Outcome
from trainer.script.pace import Pace

# Allowed difference between the launcher's clock, which sets a job's start, and the nodes' clocks, which set the end.
CLOCKS_DIFFER_S = 600


@dataclass(frozen=True)
class View:
    """Everything known about a job."""

    region: str
    folder: Folder
    fleet: Fleet  # of this job only
    now: datetime
    spec: Record | None = None  # job.json
    members: Record | None = None  # cluster.json
    exits: Mapping[str, Record] = field(default_factory=dict)  # exit records, by instance
    marks: Mapping[str, datetime] = field(default_factory=dict)  # when this start reached each boot step
    epoch: Record | None = None  # the newest line of metrics.jsonl
    pace: Pace | None = None  # the progress of a script
    saved: Outcome | None = None  # outcome.json, possibly of an earlier start
    unread: str = ""  # why the folder could not be read

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
    def ended(self) -> datetime | None:
        """When the job ended; None if unknown."""
        times = [datetime.fromtimestamp(record["at"], UTC) for record in self.records[-1:]]
        times += [node.ended_at for node in this_start(self.fleet) if node.ended_at]
        return _time(self.spec, "ended") or max(times, default=None)

    @property
    def warm_until(self) -> datetime | None:
        """When the first of its nodes ends itself, if they wait for a next job."""
        return warm_until(self.fleet, self.exits)

    @property
    def outcome(self) -> Outcome | None:
        """outcome.json of this start; None if the job runs, or was removed by an earlier version."""
        if self.saved is None or self.started is None:
            return self.saved
        return self.saved if self.saved.ended >= self.started.strftime(TIME) else None

    @property
    def records(self) -> tuple[Record, ...]:
        """The exit records of this start, in the order in which the nodes ended."""
        since = self.started.timestamp() - CLOCKS_DIFFER_S if self.started else 0
        records = [record for record in self.exits.values() if record["at"] >= since]
        return tuple(sorted(records, key=lambda record: (record["at"], rank_of(record))))

    @property
    def last_records(self) -> tuple[Record, ...]:
        """The exit records of the job's last nodes, without replaced ones."""
        last = ranks_in(self.members) or self.exits
        return tuple(record for record in self.records if record["instance"] in last)


def view(aws: Aws, fleet: Fleet, folder: Folder, now: datetime) -> View:
    """Look up the job of `folder`.  fleet: of all jobs.  If S3 fails, `unread` has the reason."""
    known = View(aws.region, folder, fleet.of(folder.job), now)
    try:
        spec, listed = spec_of(aws, folder, BACKEND_NAME), written_by_nodes(aws, folder)
        exits, epoch = read_exits(aws, folder, listed), newest(aws, folder)
        known = replace(known, fleet=with_ends(known.fleet, folder.job, exits, spec), spec=spec)
        return replace(
            known,
            members=members_of(aws, folder),
            exits=exits,
            marks=first_marks(folder, listed, known.started),
            epoch=epoch,
            pace=pace(aws, folder, epoch),
            saved=get_outcome(aws, folder),
        )
    except AwsError as error:
        return replace(known, unread=str(error))
    except SettingsError as error:  # job.json belongs to another backend
        if not known.fleet.nodes:
            raise
        return replace(known, unread=str(error))


def ranks_in(members: Record | None) -> dict[str, int]:
    """The ranks in cluster.json, by instance."""
    return {row["instance"]: row["rank"] for row in members["nodes"]} if members else {}


def _time(spec: Record | None, key: str) -> datetime | None:
    return datetime.fromtimestamp(spec[key], UTC) if spec and key in spec else None


def views(aws: Aws, fleet: Fleet, now: datetime) -> list[View]:
    """Each job that has resources, with what its nodes wrote only if they may be warm, or are gone."""
    return [_short_view(aws, fleet, job, now) for job in fleet.jobs]


def _short_view(aws: Aws, fleet: Fleet, job: str, now: datetime) -> View:
    folder = Folder(fleet.buckets.get(job, ""), job)
    known = View(aws.region, folder, fleet.of(job), now)
    try:
        if folder.bucket and not known.fleet.present:
            return view(aws, fleet, folder, now)  # only its folder has how it ended, or that it waits for machines
        spec = spec_of(aws, folder, BACKEND_NAME) if folder.bucket else None
        exits = exit_records(aws, folder) if spec and spec.get("where", {}).get("keep_warm") else {}
    except (AwsError, SettingsError):
        return known
    return replace(known, spec=spec, exits=exits)


def _nodes(spec: Record | None) -> int:
    """The number of nodes in job.json; 0 if it is missing."""
    return int((spec or {}).get("where", {}).get("nodes", 0))


def all_as_text(fleet: Fleet, views: Sequence[View], region: str) -> str:
    """A table with a row per job that has resources.  fleet: of all jobs."""
    if not views:
        return "\n".join(
            [
                f"no jobs in {region}.  For those that have ended, all or one:",
                "  python -m launch.ec2 status --ended",
                "  python -m launch.ec2 status JOB",
                "To see what a new one would cost:",
                "  python -m launch.ec2 --nodes 2 --dry-run",
            ]
        )
    columns = ("job", "nodes", "type", "zone", "age", "USD/hour", "USD so far", "time limit")
    rows = [_row(view) for view in views]
    total = f"{len(rows)} job{'' if len(rows) == 1 else 's'} in {region}, {usd(usd_per_hour(fleet))} per hour"
    return "\n".join([table(columns, rows), "", total, *_price_notes(fleet)])


def overview(aws: Aws, fleet: Fleet, now: datetime) -> Overview:
    """all_as_text(), also for programs."""
    found = views(aws, fleet, now)
    return Overview(all_as_text(fleet, found, aws.region), [summary_of(view) for view in found])


def _row(view: View) -> tuple[str, ...]:
    fleet, now, started, deadline = view.fleet, view.now, view.started, view.deadline
    limit = _left(deadline, now) if deadline else "-"
    return (
        view.job,
        f"{len(fleet.living)}/{_nodes(view.spec) or len(this_start(fleet))}",
        ",".join(sorted({node.type for node in fleet.living})) or "-",
        ",".join(sorted({node.zone for node in fleet.living})) or "-",
        duration(now - started) if started else "-",
        f"{usd_per_hour(fleet):.2f}",
        f"{cost_so_far(fleet, now):.2f}",
        f"warm, {_left(view.warm_until, now)}" if view.warm_until else limit,
    )


def _left(deadline: datetime, now: datetime) -> str:
    if deadline < now:
        return f"passed {duration(now - deadline)} ago"
    return f"{duration(deadline - now)} left"


def job_state(view: View) -> State:
    """The full status of one job, with the next commands."""
    tables = []
    if view.fleet.present:
        columns = ("rank", "node", "state", "type", "zone", "address", "age")
        tables.append(table(columns, list(_node_rows(view))))
    if ended := list(_end_rows(view)):
        columns = ("rank", "node", "exit code", "step", "restarts", "ended", "reason")
        tables.append(f"nodes that ended:\n{table(columns, ended)}")
    summary = replace(summary_of(view), next=tuple(_next(view)))
    return State(summary, _headline(view), tuple(_facts(view)), tables, _price_notes(view.fleet), phases(view))


def phases(view: View) -> tuple[Phase, ...]:
    """The phases of this start, as a rehearsal's receipt names them; none if too little is known of them."""
    launched, goes_on = min((node.begun for node in this_start(view.fleet)), default=None), _goes_on(view)
    if view.unread or not (view.marks or goes_on):
        return ()
    first = "provision and boot" if launched is None and view.marks else "provision"
    steps: list[tuple[str, datetime | None]] = [(first, view.started), ("boot", launched)]
    steps += [(step, view.marks.get(step)) for step in ("data", "image", "train")]
    return phases_of([*steps, ("tear down", _last_end(view))], None if goes_on else view.ended)


def _last_end(view: View) -> datetime | None:
    """When the last node recorded its end; None while a node lives, or without a record."""
    ends = [datetime.fromtimestamp(record["at"], UTC) for record in view.records[-1:]]
    return ends[0] if ends and not view.fleet.living else None


def summary_of(view: View) -> Summary:
    """The job for programs."""
    fleet = view.fleet
    known = Summary(
        view.job,
        "running" if fleet.living else "stopping" if this_start(fleet) else "waiting",
        region=view.region,
        nodes=len(fleet.living),
        started=view.started,
        deadline=view.deadline,
        usd_per_hour=usd_per_hour(fleet),
        usd=cost_so_far(fleet, view.now),
        folder=view.folder.uri if view.folder.bucket else None,
        metrics=values_of(view.epoch) if view.epoch else None,
    )
    if _goes_on(view):
        return known
    outcome = outcome_of(view)
    cost = known.usd if view.warm_until else outcome.usd
    return replace(known, ended=view.ended, usd=cost).ended_with(outcome)


def _goes_on(view: View) -> bool:
    """Whether the job has not ended, as far as is known."""
    if view.fleet.present:
        return view.warm_until is None
    return bool(view.fleet.resources) and (view.spec is None or _is_between_nodes(view))


def _headline(view: View) -> str:
    job = f"job {view.job} in {view.region}"
    since = f", started {duration(view.now - view.started)} ago" if view.started else ""
    living = len(view.fleet.living)
    if view.fleet.present and not view.warm_until:
        total = _nodes(view.spec) or len(this_start(view.fleet))
        return f"{job}: {f'{living} of {total} nodes' if living else 'its nodes are shutting down'}{since}"
    if _is_between_nodes(view):
        return f"{job}: no nodes yet, or none any more{since}"
    ago = f" {duration(view.now - view.ended)} ago" if view.ended else ""
    outcome = outcome_of(view)
    nodes = f"; its {living} nodes are warm" if living else ""
    return f"{job} ended{ago}: {outcome.reason or 'the training is done'}{nodes}"


def _is_between_nodes(view: View) -> bool:
    """Whether a launch has no nodes yet, or has lost them all without a record."""
    if view.spec is None or "ended" in view.spec:
        return False
    if ranks_in(view.members) and (view.members or {}).get("started") == view.spec.get("started", 0):
        return False  # it had nodes, and EC2 has forgotten them
    return bool(view.fleet.resources) and not view.records and not view.fleet.nodes


def outcome_of(view: View) -> Outcome:
    """The outcome: from outcome.json, else from the nodes' records."""
    known = view.outcome or of_records(view.last_records)
    if known is not None:
        return known
    if view.last_records:
        return stopped("the nodes were stopped before the training was done")
    return Outcome("failed", Exit.MACHINE, "the nodes left no exit record; they were terminated, or never started")


def _node_rows(view: View) -> Iterator[tuple[str, ...]]:
    ranks = ranks_in(view.members)
    for node in sorted(view.fleet.present, key=lambda node: ranks.get(node.id, len(ranks))):
        age = duration(view.now - node.launched_at)
        state = f"{node.state}, spot" if node.spot else node.state
        yield (_shown(ranks.get(node.id)), node.id, state, node.type, node.zone, node.address or "-", age)


def _end_rows(view: View) -> Iterator[tuple[str, ...]]:
    """The nodes' exit records; EC2's reason for nodes without one."""
    for record in view.records:
        ago = _ago(view, datetime.fromtimestamp(record["at"], UTC))
        code, restarts = str(record["code"]), str(record["restarts"])
        yield (_shown(record["rank"]), record["instance"], code, record["step"], restarts, ago, record["reason"])
    for node in this_start(view.fleet):
        if node.state == "terminated" and node.id not in view.exits:
            yield ("-", node.id, "-", "-", "-", _ago(view, node.ended_at), node.reason or "EC2 gives none")


def _ago(view: View, time: datetime | None) -> str:
    return f"{duration(view.now - time)} ago" if time else "-"


def _facts(view: View) -> Iterator[tuple[str, str]]:
    yield from _progress(view)
    yield "cost", _cost(view)
    yield from _limit(view)
    if owner := next((node.owner for node in view.fleet.present if node.owner), ""):
        yield "started by", owner
    yield "job folder", view.folder.uri
    if view.unread:
        yield "", f"cannot be read: {view.unread}"
    if view.fleet.resources and not view.fleet.present:
        yield "left", ", ".join(f"{resource.kind} {resource.id}" for resource in view.fleet.resources)


def _limit(view: View) -> Iterator[tuple[str, str]]:
    """When its nodes end at the latest."""
    end, label = (view.warm_until, "warm nodes") if view.warm_until else (view.deadline, "time limit")
    if end and view.fleet.present:
        yield label, f"{_left(end, view.now)}, {minute(end)}"


def _progress(view: View) -> Iterator[tuple[str, str]]:
    if view.epoch:
        yield "training", in_words(view.epoch, _epochs(view.spec))
    elif view.fleet.living:
        yield "training", "nothing is measured yet" if _epochs(view.spec) == "?" else "the first epoch is not done yet"
    if view.pace:
        yield "progress", pace_in_words(view.pace, view.now.timestamp() if view.fleet.living else None)


def _epochs(spec: Record | None) -> str:
    """The number of epochs, from the job's command line; ? if unknown."""
    if not spec or "train" not in spec:
        return "?"
    return epochs_in(spec["train"])


def _cost(view: View) -> str:
    if view.fleet.present:
        return _cost_of_nodes(view, f" so far, {usd(usd_per_hour(view.fleet))} per hour now")
    if view.outcome and view.outcome.usd is not None:
        return _final_cost(view.outcome, is_spot=bool((view.spec or {}).get("where", {}).get("spot")))
    if view.spec and _has_price(view.spec) and not this_start(view.fleet):
        ended = min(view.ended or view.now, view.deadline or view.now)
        return f"at most about {usd(most_it_cost(view.spec, ended))}"
    return _cost_of_nodes(view, "")


def _has_price(spec: Record) -> bool:
    """Whether job.json has what most_it_cost() needs."""
    where = spec.get("where", {})
    return "started" in spec and {"nodes", "root_gb"} <= where.keys() and bool(where.get("instance_type"))


def _cost_of_nodes(view: View, rate: str) -> str:
    bound, why = "about", ""
    if not is_whole(view.fleet, view.now):
        bound, why = "at least", "; nodes replaced over an hour ago are not counted"
    elif any(node.spot for node in this_start(view.fleet)):
        bound, why = "at most", "; spot is cheaper"
    return f"{bound} {usd(cost_so_far(view.fleet, view.now))}{rate}{why}"


def _final_cost(outcome: Outcome, *, is_spot: bool) -> str:
    bound, why = ("at most", "; spot is cheaper") if is_spot else ("about", "")
    hours = "" if outcome.seconds is None else f" in {duration(timedelta(seconds=outcome.seconds))}"
    return f"{bound} {usd(outcome.usd or 0.0)}{hours}{why}"


def _price_notes(fleet: Fleet) -> list[str]:
    missing = unpriced(fleet)
    return ["", f"not counted, because infra/instances.yaml has no price: {', '.join(missing)}"] if missing else []


def _next(view: View) -> Iterator[str]:
    job, region = view.job, view.region
    if view.fleet.living:
        yield command("logs", job, region, "--follow")
        yield command("ssh", job, region, "--node", "0")
    else:
        yield command("logs", job, region)
        yield command("fetch", job, region)
    if not view.fleet.is_empty:
        yield command("stop", job, region)


def _shown(rank: int | None) -> str:
    return "-" if rank is None else str(rank)
