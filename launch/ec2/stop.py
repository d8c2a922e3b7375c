"""Removes a job's resources and verifies that none is left.  Idempotent: everything is found by tags."""

import json
import re
from collections.abc import Sequence

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError, NoAnswer
from launch.core.lookup import spec_of
from launch.core.names import Folder
from launch.core.patience import Patience
from launch.core.perform import Say
from launch.ec2.fleet import Fleet, Node, Resource, find
from launch.ec2.names import BACKEND_NAME, SCHEDULE_GROUP, command
from trainer.errors import TrainerError

# Codes for what is already gone.
GONE = {"InvalidInstanceID.NotFound", "InvalidVolume.NotFound", "InvalidGroup.NotFound",
        "InvalidPlacementGroup.Unknown", "InvalidNetworkInterfaceID.NotFound", "ResourceNotFoundException"}  # fmt: skip
# Codes for what is still in use; retry soon.
IN_USE = {"DependencyViolation", "VolumeInUse", "InvalidPlacementGroup.InUse", "InvalidNetworkInterface.InUse",
          "InvalidParameterValue", "IncorrectState"}  # fmt: skip

# Terminating takes a minute or two; p4d and larger take up to twenty.
LIMIT_S, LOOK_EVERY_S = 1800.0, 3.0
# EC2 may list new nodes this much later.
SETTLE_S = 20.0
# How long AWS may be unreachable while nodes are terminated.
PATIENCE_S = 120.0


def stop(aws: Aws, job: str, clock: Clock, say: Say, *, unsure: bool = False) -> int:
    """Removes every resource of `job` and returns how many there were.  Raises AwsError if something remains.

    unsure: nodes may have been requested without an answer, so check again a little later.
    """
    removed, terminated = set[str](), set[str]()
    until, sure_at = clock.now() + LIMIT_S, clock.now() + (SETTLE_S if unsure else 0.0)
    patience = Patience(clock, PATIENCE_S, may_pass)
    while True:
        is_done = False
        try:
            is_sure = clock.now() >= sure_at
            fleet = find(aws, job)
            if fleet.is_empty and is_sure:
                return len(removed)
            if clock.now() > until:
                raise AwsError(_what_remains(fleet, job, aws.region), "StillThere")
            removed |= _names(fleet)
            is_done = _remove_some(aws, fleet, terminated, say, is_sure=is_sure)
            patience.success()
        except AwsError as error:
            patience.failure(error)
            say(f"warning: {error}\n  retrying")
        if not is_done:
            clock.sleep(LOOK_EVERY_S)


def may_pass(error: TrainerError) -> bool:
    """Whether AWS did not refuse, but could not be reached or failed on its side."""
    return isinstance(error, NoAnswer) or (isinstance(error, AwsError) and not error.aws_code)


def _names(fleet: Fleet) -> set[str]:
    nodes = {node.id for node in fleet.present}
    return nodes | {f"{resource.kind} {resource.id}" for resource in fleet.resources}


def _remove_some(aws: Aws, fleet: Fleet, terminated: set[str], say: Say, *, is_sure: bool) -> bool:
    """Terminates the nodes, or deletes the rest once all have ended.  Returns whether everything is deleted.

    is_sure: no node can appear any more.  Until then its group and its time limit must stay.
    """
    _terminate(aws, [node for node in fleet.living if node.id not in terminated], terminated, say)
    return is_sure and not fleet.present and _delete(aws, fleet, say)


def _terminate(aws: Aws, nodes: Sequence[Node], terminated: set[str], say: Say) -> None:
    """Terminates `nodes`, and adds their ids to `terminated`."""
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
            # EC2 refuses the whole call because of one unknown id.
            unknown = set(re.findall(r"i-[0-9a-f]+", str(error)))
            ids = [name for name in ids if name not in unknown] if unknown & set(ids) else []


def _delete(aws: Aws, fleet: Fleet, say: Say) -> bool:
    """Deletes what is left once no node runs; returns whether all of it is gone.  What is in use remains.

    The time limit is deleted last: should this fail half-way, it still terminates the nodes.
    """
    others = [resource for resource in fleet.resources if resource.kind != "schedule"]
    due = sorted(others, key=lambda resource: ORDER.index(resource.kind)) or fleet.resources
    gone = [_try_to_delete(aws, resource, say) for resource in due]
    return bool(gone) and all(gone)


def _try_to_delete(aws: Aws, resource: Resource, say: Say) -> bool:
    service, operation, params = _deletion(resource)
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


def _deletion(resource: Resource) -> tuple[str, str, dict[str, str]]:
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
    return (
        f"not removed after {LIMIT_S / 60:g} minutes: {', '.join(names)}; try again with {command('stop', job, region)}"
    )


def mark_ended(aws: Aws, folder: Folder, clock: Clock, say: Say) -> bool:
    """Writes into job.json that this start of the job has ended; returns False if there is no job.json.

    Followers then stop, and the next start gets a time limit of its own.  Called before anything is terminated, or a
    follower would replace it.
    """
    try:
        spec = spec_of(aws, folder, BACKEND_NAME)
        if spec is None:
            return False
        if "ended" not in spec:
            body = json.dumps({**spec, "ended": int(clock.now())}, indent=1)
            params = {"Bucket": folder.bucket, "Key": folder.spec, "Body": body, "ContentType": "application/json"}
            aws.call("s3", "PutObject", params)
    except AwsError as error:
        say(f"warning: job.json still says that the job is running: {error}")
    return True
