"""Follows an instance that publishes to its end, and removes it with all that was made for it."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from launch.aws.client import Aws
from launch.aws.lookup import read_json
from launch.aws.names import TIME, TOOLKIT, bucket_of
from launch.aws.retry import Retry, is_busy, is_transient, retrying
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.plan import Request
from launch.core.terminal import Say
from launch.data.near import requests
from launch.data.near.facts import CHANGED, LOG, PROGRESS, Group, Machine, Parts, Run, put_run
from launch.data.near.lookup import end_of, find_parts, known_run
from trainer.errors import MachineError, error_with

LOOK_S = 15.0
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
        Remover(self.aws, self.clock, self.say, self.run.name).remove_run(self.run)
        code = record.get("code")
        if code != 0:
            words = f"{record.get('reason') or 'it gave no reason'}; its log: {self.run.uri}/{LOG}"
            known = code if isinstance(code, int) and 0 < code < 256 else 1
            raise error_with(known, f"{self.run.id} ended in step {record.get('step')}: {words}")
        return record

    def _wait(self) -> Mapping[str, Any]:
        retry, told, began = Retry(self.clock, is_transient=is_transient), "", self.clock.now()
        has_been_seen = False
        while True:
            try:
                if (record := end_of(self.aws, self.run)) is not None:
                    return record
                told = self._tell(told)
                its = find_parts(self.aws, self.run.name).of(self.run.id).machines
                has_been_seen |= bool(its)
                if self._is_lost(its, began, has_been_seen=has_been_seen):
                    # It may have written its record since.
                    return end_of(self.aws, self.run) or self._unexplained()
                retry.success()
            except AwsError as error:
                retry.failure(error)
                self.say(f"warning: {error}")
            self.clock.sleep(LOOK_S)

    def _is_lost(self, its: tuple[Machine, ...], began: float, *, has_been_seen: bool) -> bool:
        """Whether nothing will come of it any more."""
        if self.clock.utc() > self.run.deadline + timedelta(minutes=10):
            return True
        if any(one.lives for one in its):
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
            reason = (
                "its time limit has come; run the same command again, with more --max-hours: it continues from there"
            )
        else:
            reason = "it ended without a record of why; run the same command again"
        return {"code": MachineError.code, "step": "publish", "reason": reason}


UNSEEN_S = 120.0  # EC2 does not list a new instance at once
GONE_S = 600.0  # until a terminated one has let go of its group
TRIES = 3
# EC2's and the scheduler's words for what is not there, and for a group that an instance still has.
GONE = (*requests.GONE, "InvalidInstanceID.NotFound")
IN_USE = ("DependencyViolation", "InvalidGroup.InUse")


@dataclass(frozen=True)
class Remover:
    """aws: in the region of the data set called `name`.  Everything here can be repeated."""

    aws: Aws
    clock: Clock
    say: Say
    name: str

    def remove_run(self, run: Run) -> None:
        """Removes one run, and notes that it ended; another one of the same data set stays as it is.

        Raises AwsError for what stays.
        """
        self._remove(run.id)

    def stop(self) -> int:
        """Removes all runs of the data set; returns how many things were removed.  Raises AwsError for what stays."""
        return self._remove(None)

    # ---- parts of it; run: its id, None for all

    @cached_property
    def _bucket(self) -> str:
        caller = retrying(lambda: self.aws.call("sts", "GetCallerIdentity"), self.clock, self.say, is_busy)
        return bucket_of(str(caller["Account"]), self.aws.region)

    def _known(self) -> tuple[Run | None, str, str]:
        return retrying(lambda: known_run(self.aws, self._bucket, self.name), self.clock, self.say)

    def _known_or_ended(self, run: str | None) -> tuple[Run | None, str, str]:
        """The same.  Where S3 does not say it, the instances are ended all the same, which cost money."""
        try:
            return self._known()
        except AwsError:
            with suppress(AwsError):
                self._end([one.id for one in self._find(run).living])
            raise

    def _find(self, run: str | None) -> Parts:
        return retrying(lambda: find_parts(self.aws, self.name), self.clock, self.say).of(run)

    def _remove(self, run: str | None) -> int:
        known, _, ended = self._known_or_ended(run)
        begun = known if known and run in (None, known.id) and not ended else None
        ends = self._end_all(run, begun)
        parts = self._find(run)
        self._delete_groups(run)
        runs = {*parts.runs, *([begun.id] if begun else [])}
        # Last of what could be billed: should this fail half-way, the time limit still ends the instance.
        for one in sorted(runs):
            self._delete_limit(one)
        if begun is not None:
            self._note_end(begun)
        return ends + len(parts.groups)

    def _delete_limit(self, run: str) -> None:
        try:
            self._call(requests.delete_limit(f"{TOOLKIT}-{run}"))
        except AwsError as error:
            if error.aws_code not in GONE:
                raise

    def _note_end(self, run: Run) -> None:
        """Unless that is noted: by somebody else who removes it, or by a request whose answer was lost."""
        for left in reversed(range(TRIES)):
            known, etag, ended = self._known()
            if known is None or known.id != run.id or ended:
                return
            note = put_run(run, etag, self.clock.utc().strftime(TIME))
            try:
                self._call(note)
                return
            except AwsError as error:
                if not left or error.aws_code not in CHANGED:
                    raise

    def _call(self, request: Request) -> None:
        """All users and tools of an account share a limit of calls, and what is not ended for that goes on costing."""
        retrying(lambda: self.aws.call(request.service, request.operation, request.params), self.clock, self.say)

    def _end_all(self, run: str | None, begun: Run | None) -> int:
        """Returns how many instances were ended, once all are terminated.

        begun: that may have begun so recently that EC2 does not list its instance yet.
        """
        asked, give_up = set[str](), self.clock.now() + GONE_S
        unsure_until = begun.started.timestamp() + UNSEEN_S if begun else 0.0
        while True:
            machines = self._find(run).machines
            asked |= self._end([one.id for one in machines if one.lives and one.id not in asked])
            is_sure = self.clock.now() > unsure_until or _is_listed(machines, begun)
            if is_sure and _are_gone(machines):
                return len(asked)
            if self.clock.now() > give_up:
                words = f"the instance that publishes {self.name} has not ended; try again: "
                raise AwsError(f"{words}python -m launch.data stop {self.name}")
            self.clock.sleep(LOOK_S)

    def _end(self, ids: list[str]) -> set[str]:
        """Returns those that EC2 ends: what it lists, and does not know by its id yet, is to be asked for again."""
        return {one for one in ids if self._ends(one)}

    def _ends(self, name: str) -> bool:
        self.say(f"terminate {name}")
        try:
            self._call(requests.terminate(name))
        except AwsError as error:
            if error.aws_code not in GONE:
                raise
            return False
        return True

    def _delete_groups(self, run: str | None) -> None:
        """Deletes them until none is listed: EC2 may not know a new one by its id yet, nor let go of one in use."""
        give_up = self.clock.now() + GONE_S
        while groups := self._groups(run):
            for group in groups:
                self._delete_group(group, must=self.clock.now() > give_up)
            if not self._groups(run):
                return
            self.clock.sleep(LOOK_S)

    def _groups(self, run: str | None) -> tuple[Group, ...]:
        """Those that are left.  An instance that EC2 lists only now, and that has one, is ended."""
        parts = self._find(run)
        self._end([one.id for one in parts.living])
        return parts.groups

    def _delete_group(self, group: Group, *, must: bool) -> None:
        """Deletes it, if EC2 does so already."""
        try:
            self._call(requests.delete_group(group.id))
        except AwsError as error:
            if must or error.aws_code not in (*GONE, *IN_USE):
                raise


def _are_gone(machines: tuple[Machine, ...]) -> bool:
    return all(one.state == "terminated" for one in machines)


def _is_listed(machines: tuple[Machine, ...], run: Run | None) -> bool:
    return run is not None and any(one.run == run.id for one in machines)
