"""Removes a job's resources by their tags, verifies that none is left, and saves the outcome.  Idempotent."""

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from launch.aws.client import Aws
from launch.aws.machines import SCHEDULE_GROUP
from launch.aws.names import Folder
from launch.aws.progress import put_outcome
from launch.aws.retry import STOP_RETRY_S, Retry, is_busy, is_transient, retrying
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.plan import CONFLICT, TAKEN
from launch.core.price import usd
from launch.core.terminal import Say
from launch.ec2.costs import cost_so_far
from launch.ec2.inventory import Fleet, Node, Resource, find, nodes_of
from launch.ec2.job_folder import Record, folder_of, put_marker, spec_of, spec_version, start_of
from launch.ec2.names import BACKEND_NAME, command
from launch.ec2.records import at_time_limit, completed, of_records, stopped
from launch.ec2.requests import put_version
from launch.ec2.status import View, view
from launch.ec2.watch import find_ends
from trainer.errors import SettingsError, TrainerError
from trainer.outcome import Outcome

# Error codes for resources that no longer exist.
GONE = {"InvalidInstanceID.NotFound", "InvalidVolume.NotFound", "InvalidGroup.NotFound",
        "InvalidPlacementGroup.Unknown", "InvalidNetworkInterfaceID.NotFound", "ResourceNotFoundException"}  # fmt: skip
# Error codes for resources that are still in use; retry soon.
IN_USE = {"DependencyViolation", "InvalidGroup.InUse", "VolumeInUse", "InvalidPlacementGroup.InUse",
          "InvalidNetworkInterface.InUse", "InvalidParameterValue", "IncorrectState"}  # fmt: skip

# Terminating takes a minute or two; p4d and larger take up to twenty.
LIMIT_S, LOOK_EVERY_S = 1800.0, 3.0
# EC2 may list new nodes this much later.
SETTLE_S = 20.0


def stop(aws: Aws, job: str, clock: Clock, say: Say, *, unsure: bool = False) -> int:
    """Remove every resource of `job` and return how many there were.  Raises AwsError if one remains.

    unsure: a request for nodes may be unanswered, so check again a little later.
    """
    removed, terminated = set[str](), set[str]()
    until, sure_at = clock.now() + LIMIT_S, clock.now() + (SETTLE_S if unsure else 0.0)
    retry = Retry(clock, STOP_RETRY_S, is_transient)
    while True:
        try:
            is_sure = clock.now() >= sure_at
            fleet = find(aws, job)
            if fleet.is_empty and is_sure:
                return len(removed)
            if clock.now() > until:
                raise AwsError(_what_remains(fleet, job, aws.region), "StillThere")
            removed |= _names(fleet)
            is_done = _remove_some(aws, fleet, terminated, say, is_sure=is_sure)
            retry.success()
            if not is_done:
                # EC2 may list a new node that it cannot terminate yet: retry soon.
                is_open = any(node.id not in terminated for node in fleet.living)
                _wait_for_nodes(aws, fleet, job, clock, until=clock.now() if is_open else until, sure_at=sure_at)
        except AwsError as error:
            _end_nodes_after(error, aws, job, terminated, say)
            retry.failure(error)
            say(f"warning: {error}\n  retrying")
            clock.sleep(LOOK_EVERY_S)


def end_start(aws: Aws, job: str, started: datetime, clock: Clock, say: Say, *, unsure: bool) -> None:
    """Terminate the nodes of one start of `job`, not of a later one.  Raises AwsError.  unsure: see stop()."""
    terminated, until = set[str](), clock.now() + (SETTLE_S if unsure else 0.0)
    while True:
        living = [node for node in nodes_of(aws, job).living if node.started == started]
        _terminate(aws, [node for node in living if node.id not in terminated], terminated, say)
        if clock.now() >= until:
            return
        clock.sleep(LOOK_EVERY_S)


def _end_nodes_after(error: AwsError, aws: Aws, job: str, terminated: set[str], say: Say) -> None:
    """Terminate the nodes, which cost money, even if other resources cannot be looked up or removed."""
    if error.operation == "TerminateInstances":
        return
    with suppress(AwsError):
        _terminate(aws, [node for node in nodes_of(aws, job).living if node.id not in terminated], terminated, say)


def _wait_for_nodes(aws: Aws, fleet: Fleet, job: str, clock: Clock, *, until: float, sure_at: float) -> None:
    """Sleep until a node has ended or appeared, or all are surely gone, polling with one request instead of six."""
    present = {node.id for node in fleet.present}
    clock.sleep(LOOK_EVERY_S)
    while clock.now() < until and (present or clock.now() < sure_at):
        listed = {node.id for node in nodes_of(aws, job).present}
        if listed != present:
            return
        clock.sleep(LOOK_EVERY_S)


def _names(fleet: Fleet) -> set[str]:
    nodes = {node.id for node in fleet.present}
    return nodes | {f"{resource.kind} {resource.id}" for resource in fleet.resources}


def _remove_some(aws: Aws, fleet: Fleet, terminated: set[str], say: Say, *, is_sure: bool) -> bool:
    """Terminate the nodes, or delete the rest once all have ended.  Returns whether everything is deleted.

    is_sure: no node can appear any more.  Until then the group and the time limit must stay.
    """
    _terminate(aws, [node for node in fleet.living if node.id not in terminated], terminated, say)
    return is_sure and not fleet.present and _delete(aws, fleet, say)


def _terminate(aws: Aws, nodes: Sequence[Node], terminated: set[str], say: Say) -> None:
    """Terminate `nodes`, and add their ids to `terminated`."""
    ids = [node.id for node in nodes]
    if ids:
        say(f"terminating {len(ids)} node{'s' if len(ids) > 1 else ''}: {', '.join(ids)}")
    while ids:
        try:
            aws.call("ec2", "TerminateInstances", {"InstanceIds": ids})
            terminated.update(ids)
            return
        except AwsError as error:
            if error.aws_code not in GONE:
                raise
            # EC2 rejects the whole call if one id is unknown.
            unknown = set(re.findall(r"i-[0-9a-f]+", str(error)))
            ids = [name for name in ids if name not in unknown] if unknown & set(ids) else []


def _delete(aws: Aws, fleet: Fleet, say: Say) -> bool:
    """Delete what is left once no node runs; return whether all of it is gone.  Resources in use remain.

    The time limit is deleted last: if this fails half-way, it still terminates the nodes.
    """
    due = sorted(fleet.resources, key=lambda resource: ORDER.index(resource.kind))
    others = [resource for resource in due if resource.kind != "schedule"]
    gone = [_try_to_delete(aws, resource, say) for resource in others]
    return all(gone) and all(_try_to_delete(aws, limit, say) for limit in due[len(others) :])


def _try_to_delete(aws: Aws, resource: Resource, say: Say) -> bool:
    service, operation, params = deletion(resource)
    try:
        aws.call(service, operation, params)
    except AwsError as error:
        if error.aws_code in IN_USE:
            return False
        if error.aws_code not in GONE:
            raise
    say(f"removed {resource.kind} {resource.id}")
    return True


ORDER = ("volume", "network-interface", "security-group", "placement-group", "schedule")


def deletion(resource: Resource) -> tuple[str, str, dict[str, str]]:
    """The request that deletes `resource`."""
    return {
        "volume": ("ec2", "DeleteVolume", {"VolumeId": resource.id}),
        "network-interface": ("ec2", "DeleteNetworkInterface", {"NetworkInterfaceId": resource.id}),
        "security-group": ("ec2", "DeleteSecurityGroup", {"GroupId": resource.id}),
        "placement-group": ("ec2", "DeletePlacementGroup", {"GroupName": resource.id}),
        "schedule": ("scheduler", "DeleteSchedule", {"GroupName": SCHEDULE_GROUP, "Name": resource.id}),
    }[resource.kind]


def _what_remains(fleet: Fleet, job: str, region: str) -> str:
    names = [f"{node.id} ({node.state})" for node in fleet.present]
    names += [f"{resource.kind} {resource.id}" for resource in fleet.resources]
    return f"not removed in time: {', '.join(names)}; try again with {command('stop', job, region)}"


def mark_ended(aws: Aws, folder: Folder, clock: Clock, say: Say) -> Record | None:
    """Record in job.json that this start has ended; return job.json: None without one, empty if it cannot be read.

    Followers then stop, and the next start gets a new time limit.  Call it before terminating nodes, which a follower
    would otherwise replace.
    """
    try:
        # A launcher that waits for capacity sees the stop only there, and would start nodes later.
        return retrying(partial(_mark, aws, folder, int(clock.now())), clock, say, _is_transient)
    except (AwsError, SettingsError) as error:
        say(f"warning: job.json still says that the job is running: {error}")
    return {}


def _is_transient(error: TrainerError) -> bool:
    """Whether AWS was busy, or another command wrote job.json between the read and the write."""
    return is_busy(error) or (isinstance(error, AwsError) and error.aws_code in (TAKEN, CONFLICT))


def _mark(aws: Aws, folder: Folder, now: int) -> Record | None:
    spec, etag = spec_version(aws, folder, BACKEND_NAME)
    if spec is not None and "ended" not in spec:
        aws.call("s3", "PutObject", put_version(folder, {"ended": now, **spec}, etag, "save the end").params)
    return spec


def mark_stopped(aws: Aws, folder: Folder, started: datetime | None, clock: Clock, say: Say) -> bool:
    """mark_ended() for a stop, with the marker for a launcher that still runs; return whether the job has a folder.

    started: from the tags, in case job.json cannot be read.
    """
    spec = mark_ended(aws, folder, clock, say)
    started = start_of(spec or {}) or started
    if spec is not None and started is not None:
        try:
            retrying(partial(put_marker, aws, folder, started), clock, say, is_busy)
        except AwsError as error:
            say(f"warning: a launcher of the job that still runs may not see the stop: {error}")
    return spec is not None


AT_ONCE = 256  # jobs: each takes a thread and 2 MB of clients
# A launch this young may have requested nodes that EC2 does not list yet.
YOUNG = timedelta(minutes=2)


@dataclass(frozen=True)
class Target:
    """A job to remove."""

    aws: Aws  # in its region
    job: str
    fleet: Fleet  # its own, or of all jobs
    bucket: str | None = None  # of its folder, if known


def remove(target: Target, clock: Clock, say: Say) -> None:
    """Remove all resources of a job and verify it.

    Raises AwsError if a resource remains, and SettingsError if none exists and the job belongs to another backend.
    """
    aws, job, own = target.aws, target.job, target.fleet.of(target.job)
    folder = folder_of(aws, target.fleet, job, target.bucket)
    if own.is_empty:
        with suppress(AwsError):
            spec_of(aws, folder, BACKEND_NAME)
    cost = cost_so_far(find_ends(aws, folder, own), clock.utc())
    has_folder = mark_stopped(aws, folder, own.started.get(job), clock, say)
    removed = 0 if own.is_empty else stop(aws, job, clock, say, unsure=is_young(own, job, clock.utc()))
    if not removed:
        say(f"{job} has no resources in {aws.region}")
        return
    resources = "1 resource" if removed == 1 else f"{removed} resources"
    say(f"removed {resources} of {job}; none is left in {aws.region}.  The job cost about {usd(cost)}")
    if has_folder:
        _save_outcome(target, folder, cost, clock, say)


def _save_outcome(target: Target, folder: Folder, cost: float, clock: Clock, say: Say) -> None:
    """Write outcome.json, unless this start has one or job.json belongs to another backend.  A failure is a warning."""
    now, known = clock.utc(), None
    with suppress(SettingsError):
        known = view(target.aws, target.fleet, folder, now)
    if known is None or known.outcome is not None:
        return
    outcome = completed(_outcome(known), target.job, known.started, now, cost)
    if warning := put_outcome(target.aws, folder, outcome):
        say(f"warning: {warning}")


def _outcome(known: View) -> Outcome:
    """The outcome of a stopped job: its nodes may have finished or failed before."""
    if outcome := of_records(known.last_records):
        return outcome
    if known.deadline is not None and known.now >= known.deadline:
        return at_time_limit(known.job)
    return stopped("stopped on request")


def remove_all(targets: Iterable[Target], clock: Clock, say: Say) -> tuple[str, ...]:
    """Remove many jobs concurrently, as terminating takes minutes; return a sentence for each failure."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        answers = list(pool.map(lambda target: _try_to_remove(target, clock, say), targets))
    return tuple(sentence for sentence in answers if sentence)


def _try_to_remove(target: Target, clock: Clock, say: Say) -> str:
    try:
        remove(target, clock, lambda text: say(f"{target.job}: {text}"))
    except TrainerError as error:
        return f"{target.job} in {target.aws.region}: {error}"
    return ""


def is_young(fleet: Fleet, job: str, now: datetime) -> bool:
    """Whether the job was started so recently that EC2 may not list all its nodes."""
    signs = [resource.created for resource in fleet.resources if resource.created]
    if job in fleet.started:
        signs.append(fleet.started[job])
    return bool(signs) and now - max(signs) < YOUNG
