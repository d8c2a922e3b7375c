"""Remove a job's instances and what was made for them, found by tag, and verify that nothing is left.  Idempotent."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from launch.aws.client import Aws
from launch.aws.instances.inventory import Fleet, Node, Resource, find, nodes_of
from launch.aws.instances.requests import GONE, deletion
from launch.aws.retry import STOP_RETRY_S, Retry, is_transient
from launch.core.clock import Clock
from launch.core.errors import AwsError, NotYetAllowed
from launch.core.terminal import Say

# Error codes for resources that are still in use; retry soon.
IN_USE = {"DependencyViolation", "InvalidGroup.InUse", "VolumeInUse", "InvalidPlacementGroup.InUse",
          "InvalidNetworkInterface.InUse", "InvalidParameterValue", "IncorrectState"}  # fmt: skip

# Terminating takes a minute or two; p4d and larger take up to twenty.
LIMIT_S, LOOK_EVERY_S = 1800.0, 3.0
EARLY_S = 30.0
# EC2 may list new nodes this much later.
SETTLE_S = 20.0


def remove(aws: Aws, job: str, clock: Clock, say: Say, remedy: str, *, unsure: bool = False) -> int:
    """Remove every resource of `job` and return how many there were.  Raises AwsError if one remains.

    remedy: the command that tries it again.
    unsure: a request for nodes may be unanswered, so check again a little later.
    """
    removed, terminated = set[str](), set[str]()
    until, sure_at = clock.now() + LIMIT_S, clock.now() + (SETTLE_S if unsure else 0.0)
    retries = _Retries(clock, say)
    while True:
        try:
            is_sure = clock.now() >= sure_at
            fleet = find(aws, job)
            if fleet.is_empty and is_sure:
                return len(removed)
            if clock.now() > until:
                raise AwsError(_what_remains(fleet, remedy), "StillThere")
            removed |= _names(fleet)
            is_done = _remove_some(aws, fleet, terminated, say, is_sure=is_sure)
            retries.success()
            if not is_done:
                # EC2 may list a new node that it cannot terminate yet: retry soon.
                is_open = any(node.id not in terminated for node in fleet.living)
                _wait_for_nodes(aws, fleet, job, clock, until=clock.now() if is_open else until, sure_at=sure_at)
        except AwsError as error:
            _end_nodes_after(error, aws, job, terminated, say)
            retries.failure(error)
            clock.sleep(LOOK_EVERY_S)


class _Retries:
    """Retries of a removal: after a denial for a shorter time, as the tags that allow it arrive within seconds."""

    def __init__(self, clock: Clock, say: Say) -> None:
        self._say, self._said = say, ""
        self._unavailable = Retry(clock, STOP_RETRY_S, is_transient)
        self._denied = Retry(clock, EARLY_S)

    def success(self) -> None:
        self._unavailable.success()
        self._denied.success()

    def failure(self, error: AwsError) -> None:
        """Show the error, unless it was the last one.  Raises it if it is final."""
        (self._denied if isinstance(error, NotYetAllowed) else self._unavailable).failure(error)
        if str(error) != self._said:
            self._say(f"warning: {error}\n  retrying")
        self._said = str(error)


def end_start(aws: Aws, job: str, started: datetime, clock: Clock, say: Say, *, unsure: bool) -> None:
    """Terminate the nodes of one start of `job`, not of a later one.  Raises AwsError.  unsure: see remove()."""
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
    request = deletion(resource.kind, resource.id)
    try:
        aws.call(request.service, request.operation, request.params)
    except AwsError as error:
        if error.aws_code in IN_USE:
            return False
        if error.aws_code not in GONE:
            raise
    say(f"removed {resource.kind} {resource.id}")
    return True


ORDER = ("volume", "network-interface", "security-group", "placement-group", "schedule")


def _what_remains(fleet: Fleet, remedy: str) -> str:
    names = [f"{node.id} ({node.state})" for node in fleet.present]
    names += [f"{resource.kind} {resource.id}" for resource in fleet.resources]
    return f"not removed in time: {', '.join(names)}; try again with {remedy}"


# A launch this young may have requested nodes that EC2 does not list yet.
YOUNG = timedelta(minutes=2)


def is_young(fleet: Fleet, job: str, now: datetime) -> bool:
    """Whether the job was started so recently that EC2 may not list all its nodes."""
    signs = [resource.created for resource in fleet.resources if resource.created]
    if job in fleet.started:
        signs.append(fleet.started[job])
    return bool(signs) and now - max(signs) < YOUNG
