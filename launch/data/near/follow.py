"""Follows an instance that publishes to its end, and removes all that it was: the only module here that acts."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.lookup import read_json
from launch.core.names import TIME, TOOLKIT, bucket_of
from launch.core.patience import Patience, may_pass
from launch.core.perform import Say
from launch.data.near import requests
from launch.data.near.facts import Machine
from launch.data.near.lookup import end_of, find_parts, known_run
from launch.data.near.run import LOG, PROGRESS, Run, put_run
from trainer.errors import MachineError, error_with

LOOK_S = 15.0
UNSEEN_S = 120.0  # EC2 does not list a new instance at once
GONE_S = 600.0  # until a terminated one has let go of its group
# EC2's and the scheduler's words for what is not there, and for a group that an instance still has.
GONE = (*requests.GONE, "InvalidInstanceID.NotFound")
IN_USE = ("DependencyViolation", "InvalidGroup.InUse")
STEPS = {
    "programs": "installing Python",
    "disk": "making a file system on its disks",
    "code": "getting the toolkit",
    "packages": "installing its packages",
    "publish": "publishing",
}


@dataclass
class Follower:
    """aws: in the run's region; run: which was begun."""

    aws: Aws
    clock: Clock
    say: Say
    run: Run

    def follow(self) -> Mapping[str, Any]:
        """The record of its end, once all of it is removed; raises what it ended with, unless that is success."""
        record = self._wait()
        remove(self.aws, self.clock, self.say, self.run.name)
        code = record.get("code")
        if code != 0:
            words = f"{record.get('reason') or 'it gave no reason'}; its log: {self.run.uri}/{LOG}"
            known = code if isinstance(code, int) and 0 < code < 256 else 1  # others may write there
            raise error_with(known, f"{self.run.id} ended in step {record.get('step')}: {words}")
        return record

    def _wait(self) -> Mapping[str, Any]:
        patience, told, began = Patience(self.clock, may_pass=may_pass), "", self.clock.now()
        has_been_seen = False
        while True:
            try:
                if (record := end_of(self.aws, self.run)) is not None:
                    return record
                told = self._tell(told)
                mine = [one for one in _machines(self.aws, self.run) if one.run == self.run.id]
                has_been_seen |= bool(mine)
                if self._is_lost(mine, began, has_been_seen=has_been_seen):
                    # It may have written its record since.
                    return end_of(self.aws, self.run) or self._unexplained()
                patience.success()
            except AwsError as error:
                patience.failure(error)
                self.say(f"warning: {error}")
            self.clock.sleep(LOOK_S)

    def _is_lost(self, mine: list[Machine], began: float, *, has_been_seen: bool) -> bool:
        """Whether nothing will come of it any more."""
        if self.clock.utc() > self.run.deadline + timedelta(minutes=10):
            return True
        if any(one.lives for one in mine):
            return False
        return has_been_seen or self.clock.now() - began > UNSEEN_S

    def _tell(self, told: str) -> str:
        """Says how far it is, if that has changed; returns what it has said."""
        progress = read_json(self.aws, self.run.bucket, self.run.prefix + PROGRESS) or {}
        if progress.get("run") != self.run.id:
            return told
        step, last = str(progress.get("step", "")), str(progress.get("last", "")).strip()
        words = last if step == "publish" and last else STEPS.get(step, step)
        if words != told:
            self.say(f"  {words}")
        return words

    def _unexplained(self) -> Mapping[str, Any]:
        if self.clock.utc() >= self.run.deadline:
            reason = "its time limit has come; run the same command again, with more --max-hours: it goes on from there"
        else:
            reason = "it ended without a record of why; run the same command again"
        return {"code": MachineError.code, "step": "publish", "reason": reason}


def _machines(aws: Aws, run: Run) -> tuple[Machine, ...]:
    found: tuple[Machine, ...] = find_parts(aws, run.name)["machines"]
    return found


def remove(aws: Aws, clock: Clock, say: Say, name: str) -> int:
    """Ends all instances that publish this data set, removes groups and time limits, and notes it.

    Returns how many things were removed.  Raises AwsError for what stays.  Can be repeated.
    """
    account = str(aws.call("sts", "GetCallerIdentity")["Account"])
    run, etag, ended = known_run(aws, bucket_of(account, aws.region), name)
    ends = _end_all(aws, clock, say, name, run if not ended else None)
    parts = find_parts(aws, name)
    machines: tuple[Machine, ...] = parts["machines"]
    runs = {*parts["groups"], *(one.run for one in machines), *([run.id] if run else [])}
    _delete_groups(aws, clock, name)
    # Last of what could be billed: should this fail half-way, the time limit still ends the instance.
    for one in sorted(runs):
        request = requests.delete_limit(f"{TOOLKIT}-{one}")
        _call(aws, request.service, request.operation, request.params)
    if run is not None and not ended:
        note = put_run(run, etag, clock.utc().strftime(TIME))
        _call(aws, note.service, note.operation, note.params)
    return ends + len(parts["groups"])


def _call(aws: Aws, service: str, operation: str, params: Mapping[str, Any]) -> None:
    """Makes the call; what is not there any more is no failure."""
    try:
        aws.call(service, operation, params)
    except AwsError as error:
        if error.aws_code not in GONE:
            raise


def _end_all(aws: Aws, clock: Clock, say: Say, name: str, run: Run | None) -> int:
    """Returns how many instances were ended, once all are terminated.

    run: that may have begun so recently that EC2 does not list its instance yet.
    """
    asked, give_up = set[str](), clock.now() + GONE_S
    unsure_until = run.started.timestamp() + UNSEEN_S if run else 0.0
    while True:
        machines: tuple[Machine, ...] = find_parts(aws, name)["machines"]
        asked |= _end(aws, [one.id for one in machines if one.lives and one.id not in asked], say)
        is_sure = clock.now() > unsure_until or _is_listed(machines, run)
        if is_sure and _are_gone(machines):
            return len(asked)
        if clock.now() > give_up:
            raise AwsError(f"the instance that publishes {name} has not ended; try again: launch.data stop {name}")
        clock.sleep(LOOK_S)


def _are_gone(machines: tuple[Machine, ...]) -> bool:
    return all(one.state == "terminated" for one in machines)


def _is_listed(machines: tuple[Machine, ...], run: Run | None) -> bool:
    return run is not None and any(one.run == run.id for one in machines)


def _end(aws: Aws, ids: list[str], say: Say) -> set[str]:
    if ids:
        say(f"terminate {', '.join(ids)}")
        _call(aws, "ec2", "TerminateInstances", {"InstanceIds": ids})
    return set(ids)


def _delete_groups(aws: Aws, clock: Clock, name: str) -> None:
    """Deletes them until none is listed: EC2 may not know a new one by its id yet, nor let go of one in use."""
    give_up = clock.now() + GONE_S
    while groups := find_parts(aws, name)["groups"]:
        for group in groups.values():
            _delete_group(aws, group, must=clock.now() > give_up)
        if not find_parts(aws, name)["groups"]:
            return
        clock.sleep(LOOK_S)


def _delete_group(aws: Aws, group: str, *, must: bool) -> None:
    request = requests.delete_group(group)
    try:
        aws.call(request.service, request.operation, request.params)
    except AwsError as error:
        if must or error.aws_code not in (*GONE, *IN_USE):
            raise
