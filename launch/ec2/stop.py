"""Takes a job down and makes sure of it.  Idempotent; everything is found by tags, so it needs no memory."""

import json
import re
from collections.abc import Sequence

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError, NoAnswer
from launch.core.lookup import spec_of
from launch.core.names import Folder
from launch.core.perform import Say
from launch.ec2.fleet import Fleet, Node, Thing, find
from launch.ec2.names import BACKEND, SCHEDULE_GROUP

# Codes that mean: gone already.
GONE = {"InvalidInstanceID.NotFound", "InvalidVolume.NotFound", "InvalidGroup.NotFound",
        "InvalidPlacementGroup.Unknown", "InvalidNetworkInterfaceID.NotFound", "ResourceNotFoundException"}  # fmt: skip
# Codes that mean: something still holds it, look again soon.
HELD = {"DependencyViolation", "VolumeInUse", "InvalidPlacementGroup.InUse", "InvalidNetworkInterface.InUse",
        "InvalidParameterValue", "IncorrectState"}  # fmt: skip

# Terminating takes a minute or two; p4d and larger take up to twenty.
LIMIT_S, LOOK_EVERY_S = 1800.0, 3.0
# Newly started nodes may show up this much later: EC2's listings follow its answers.
SETTLE_S = 20.0
# How long AWS may be out of reach while nodes are being ended.
PATIENCE_S = 120.0


def stop(aws: Aws, job: str, clock: Clock, say: Say, *, unsure: bool = False) -> int:
    """Removes everything of `job` and returns how many things that were.  Raises AwsError if something stays.

    unsure: nodes may have been asked for without an answer, so look again a little later.
    """
    removed, asked = set[str](), set[str]()
    until, sure_at = clock.now() + LIMIT_S, clock.now() + (SETTLE_S if unsure else 0.0)
    trouble_since: float | None = None
    while True:
        try:
            fleet, is_sure = find(aws, job), clock.now() >= sure_at
            if fleet.is_empty and is_sure:
                return len(removed)
            if clock.now() > until:
                raise AwsError(_what_stays(fleet, job), "StillThere")
            removed |= {node.id for node in fleet.ending} | {f"{thing.kind} {thing.id}" for thing in fleet.things}
            _terminate(aws, [node for node in fleet.living if node.id not in asked], asked, say)
            waits = bool(fleet.ending) or not is_sure or not _delete(aws, fleet, say)
            trouble_since = None
        except AwsError as error:
            trouble_since = clock.now() if trouble_since is None else trouble_since
            if not may_pass(error) or clock.now() - trouble_since > PATIENCE_S:
                raise
            say(f"warning: {error}\n  trying again")
            waits = True
        if waits:
            clock.sleep(LOOK_EVERY_S)


def may_pass(error: AwsError) -> bool:
    """Whether AWS did not refuse, but could not be reached, or stumbled."""
    return isinstance(error, NoAnswer) or not error.aws_code


def _terminate(aws: Aws, nodes: Sequence[Node], asked: set[str], say: Say) -> None:
    ids = [node.id for node in nodes]
    if ids:
        say(f"ending {len(ids)} node{'s' if len(ids) > 1 else ''}: {', '.join(ids)}")
    while ids:
        try:
            aws.call("ec2", "TerminateInstances", {"InstanceIds": ids})
            asked.update(ids)
            return
        except AwsError as error:
            if error.aws_code not in GONE:
                raise
            # One that is gone makes EC2 refuse the whole call.
            unknown = set(re.findall(r"i-[0-9a-f]+", str(error)))
            ids = [name for name in ids if name not in unknown] if unknown & set(ids) else []


def _delete(aws: Aws, fleet: Fleet, say: Say) -> bool:
    """Deletes what is left once no node runs; true if all of it went.  What something holds stays for the next time.

    The time limit goes last: if this fails half-way, it still ends the nodes.
    """
    others = [thing for thing in fleet.things if thing.kind != "schedule"]
    due = sorted(others, key=lambda thing: ORDER.index(thing.kind)) or fleet.things
    gone = [_try_to_delete(aws, thing, say) for thing in due]
    return bool(gone) and all(gone)


def _try_to_delete(aws: Aws, thing: Thing, say: Say) -> bool:
    service, operation, params = _deletion(thing)
    try:
        aws.call(service, operation, params)
    except AwsError as error:
        if error.aws_code in HELD:
            return False
        if error.aws_code not in GONE:
            raise
    say(f"removed {thing.kind} {thing.id}")
    return True


ORDER = ("volume", "network-interface", "security-group", "placement-group", "schedule")


def _deletion(thing: Thing) -> tuple[str, str, dict[str, str]]:
    return {
        "volume": ("ec2", "DeleteVolume", {"VolumeId": thing.id}),
        "network-interface": ("ec2", "DeleteNetworkInterface", {"NetworkInterfaceId": thing.id}),
        "security-group": ("ec2", "DeleteSecurityGroup", {"GroupId": thing.id}),
        "placement-group": ("ec2", "DeletePlacementGroup", {"GroupName": thing.id}),
        "schedule": ("scheduler", "DeleteSchedule", {"GroupName": SCHEDULE_GROUP, "Name": thing.id}),
    }[thing.kind]


def _what_stays(fleet: Fleet, job: str) -> str:
    things = [f"{node.id} ({node.state})" for node in fleet.ending]
    things += [f"{thing.kind} {thing.id}" for thing in fleet.things]
    return (
        f"still there after {LIMIT_S / 60:g} minutes: {', '.join(things)}; run python -m launch.ec2 stop {job} again."
    )


def mark_ended(aws: Aws, folder: Folder, clock: Clock, say: Say) -> None:
    """Writes into job.json that this start of the job is over: who still follows it stops, and the next start has a
    time limit of its own.  Before anything is ended, or a follower would replace it.
    """
    try:
        spec = spec_of(aws, folder, BACKEND)
        if spec is None or "ended" in spec:
            return
        body = json.dumps({**spec, "ended": int(clock.now())}, indent=1)
        params = {"Bucket": folder.bucket, "Key": folder.spec, "Body": body, "ContentType": "application/json"}
        aws.call("s3", "PutObject", params)
    except AwsError as error:
        say(f"warning: job.json still says that the job runs: {error}")
