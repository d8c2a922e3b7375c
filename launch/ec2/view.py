"""Everything that is known of one job: its resources, and the files in its folder.  Reads only."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.names import TIME, Folder
from launch.core.outcomes import get_outcome
from launch.core.progress import newest, pace
from launch.ec2.costs import this_start
from launch.ec2.ends import with_ends
from launch.ec2.fleet import Fleet
from launch.ec2.names import BACKEND_NAME
from launch.ec2.outcome import Record, rank_of
from launch.ec2.watch import exit_records
from launch.ec2.written import members_of, spec_of
from trainer.errors import SettingsError
from trainer.outcome import Outcome
from trainer.script.pace import Pace

# The launcher's clock writes when a job started, the nodes' clocks when they ended.
CLOCKS_DIFFER_S = 600


@dataclass(frozen=True)
class View:
    """What is known of a job.

    fleet: its own; spec: job.json; members: cluster.json; exits: exit records by instance; epoch: the newest line of
    metrics.jsonl; pace: how far a script is; saved: outcome.json, perhaps of an earlier start; unread: why its folder
    could not be read.
    """

    region: str
    folder: Folder
    fleet: Fleet
    now: datetime
    spec: Record | None = None
    members: Record | None = None
    exits: Mapping[str, Record] = field(default_factory=dict)
    epoch: Record | None = None
    pace: Pace | None = None
    saved: Outcome | None = None
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
    def ended(self) -> datetime | None:
        """When the job ended, if that is known."""
        times = [datetime.fromtimestamp(record["at"], UTC) for record in self.records[-1:]]
        times += [node.ended_at for node in this_start(self.fleet) if node.ended_at]
        return _time(self.spec, "ended") or max(times, default=None)

    @property
    def outcome(self) -> Outcome | None:
        """outcome.json of this start; None for a job that runs, or was removed by an earlier version."""
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
        """The exit records of the job's last nodes, without those that were replaced."""
        last = ranks_in(self.members) or self.exits
        return tuple(record for record in self.records if record["instance"] in last)


def view(aws: Aws, fleet: Fleet, folder: Folder, now: datetime) -> View:
    """Looks up the job of `folder`.  fleet: of all jobs.  `unread` says if S3 refuses."""
    known = View(aws.region, folder, fleet.of(folder.job), now)
    try:
        spec, exits = spec_of(aws, folder, BACKEND_NAME), exit_records(aws, folder)
        epoch = newest(aws, folder)
        return replace(
            known,
            fleet=with_ends(known.fleet, folder.job, exits, spec),
            spec=spec,
            members=members_of(aws, folder),
            exits=exits,
            epoch=epoch,
            pace=pace(aws, folder, epoch),
            saved=get_outcome(aws, folder),
        )
    except AwsError as error:
        return replace(known, unread=str(error))
    except SettingsError as error:  # job.json says that it is another backend's
        if not known.fleet.nodes:
            raise
        return replace(known, unread=str(error))


def ranks_in(members: Record | None) -> dict[str, int]:
    """The ranks in cluster.json, by instance."""
    return {row["instance"]: row["rank"] for row in members["nodes"]} if members else {}


def _time(spec: Record | None, key: str) -> datetime | None:
    return datetime.fromtimestamp(spec[key], UTC) if spec and key in spec else None
