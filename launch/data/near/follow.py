"""Follow an instance that publishes until it ends, and remove it with its other resources."""

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
    """Follows a run.  aws: in its region."""

    aws: Aws
    clock: Clock
    say: Say
    run: Run

    def follow(self) -> Mapping[str, Any]:
        """Wait for the end and remove all resources; return the record of its end, or raise its error."""
        record = self._wait()
        Remover(self.aws, self.clock, self.say, self.run.name).remove_run(self.run)
        code = record.get("code")
        if code != 0:
            words = f"{record.get('reason') or 'it gave no reason'}; its log: {self.run.uri}/{LOG}"
            known = code if isinstance(code, int) and 0 < code < 256 else 1
            raise error_with(known, f"{self.run.id} ended in step {record.get('step')}: {words}")
        return record

    def _wait(self) -> Mapping[str, Any]:
        retry, shown, began = Retry(self.clock, is_transient=is_transient), "", self.clock.now()
        has_been_seen = False
        while True:
            try:
                if (record := end_of(self.aws, self.run)) is not None:
                    return record
                shown = self._show_progress(shown)
                its = find_parts(self.aws, self.run.name).of(self.run.id).machines
                has_been_seen |= bool(its)
                if self._is_lost(its, began, has_been_seen=has_been_seen):
                    # It may have written its record meanwhile.
                    return end_of(self.aws, self.run) or self._unexplained()
                retry.success()
            except AwsError as error:
                retry.failure(error)
                self.say(f"warning: {error}")
            self.clock.sleep(LOOK_S)

    def _is_lost(self, its: tuple[Machine, ...], began: float, *, has_been_seen: bool) -> bool:
        """Whether the run is lost: no instance, and no record to expect."""
        if self.clock.utc() > self.run.deadline + timedelta(minutes=10):
            return True
        if any(one.lives for one in its):
            return False
        return has_been_seen or self.clock.now() - began > UNSEEN_S

    def _show_progress(self, shown: str) -> str:
        """Show the progress if it has changed; return it."""
        progress = read_json(self.aws, self.run.bucket, self.run.prefix + PROGRESS) or {}
        if progress.get("run") != self.run.id:
            return shown
        step, last = str(progress.get("step", "")), str(progress.get("last", "")).strip()
        words = last if step == "publish" and last else STEPS.get(step, step)
        if words != shown:
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


UNSEEN_S = 120.0  # EC2 may not list a new instance for a while
GONE_S = 600.0  # until a terminated instance has released its group
TRIES = 3
# Error codes of EC2 and the scheduler: not found, and a group in use.
GONE = (*requests.GONE, "InvalidInstanceID.NotFound")
IN_USE = ("DependencyViolation", "InvalidGroup.InUse")


@dataclass(frozen=True)
class Remover:
    """Removes runs of the data set `name`.  Every step is idempotent."""

    aws: Aws
    clock: Clock
    say: Say
    name: str

    def remove_run(self, run: Run) -> None:
        """Remove one run, and record its end; other runs of the data set stay as they are.

        Raises AwsError for what cannot be removed.
        """
        self._remove(run.id)

    def stop(self) -> int:
        """Remove all runs of the data set; return the number of resources.  Raises AwsError for the rest."""
        return self._remove(None)

    # ---- parts of it; run: its id, None for all

    @cached_property
    def _bucket(self) -> str:
        caller = retrying(lambda: self.aws.call("sts", "GetCallerIdentity"), self.clock, self.say, is_busy)
        return bucket_of(str(caller["Account"]), self.aws.region)

    def _known(self) -> tuple[Run | None, str, str]:
        return retrying(lambda: known_run(self.aws, self._bucket, self.name), self.clock, self.say)

    def _known_or_ended(self, run: str | None) -> tuple[Run | None, str, str]:
        """_known(), or nothing if S3 cannot be read: the instances are ended all the same, as they cost money."""
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
        # After everything that is billed: should this fail halfway, the time limit still ends the instance.
        for one in sorted(runs):
            self._delete_limit(one)
        if begun is not None:
            self._record_end(begun)
        return ends + len(parts.groups)

    def _delete_limit(self, run: str) -> None:
        try:
            self._call(requests.delete_limit(f"{TOOLKIT}-{run}"))
        except AwsError as error:
            if error.aws_code not in GONE:
                raise

    def _record_end(self, run: Run) -> None:
        """Record the end, unless another command or a request with a lost answer has."""
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
        """Call AWS with retries, as the account's limit of calls is shared, and what is not ended goes on costing."""
        retrying(lambda: self.aws.call(request.service, request.operation, request.params), self.clock, self.say)

    def _end_all(self, run: str | None, begun: Run | None) -> int:
        """Terminate the instances and wait until they are gone; return their number.

        begun: a run that may be so recent that EC2 does not list its instance yet.
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
        """Terminate instances; return those that EC2 accepts, as it may list one and not know its id yet."""
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
        """Delete the groups until none is listed: EC2 may not know a new id yet, or may refuse while one is in use."""
        give_up = self.clock.now() + GONE_S
        while groups := self._groups(run):
            for group in groups:
                self._delete_group(group, must=self.clock.now() > give_up)
            if not self._groups(run):
                return
            self.clock.sleep(LOOK_S)

    def _groups(self, run: str | None) -> tuple[Group, ...]:
        """The groups that are left.  Also ends an instance in one of them that EC2 lists only now."""
        parts = self._find(run)
        self._end([one.id for one in parts.living])
        return parts.groups

    def _delete_group(self, group: Group, *, must: bool) -> None:
        """Delete a group; a refusal is an error only if it must succeed now."""
        try:
            self._call(requests.delete_group(group.id))
        except AwsError as error:
            if must or error.aws_code not in (*GONE, *IN_USE):
                raise


def _are_gone(machines: tuple[Machine, ...]) -> bool:
    return all(one.state == "terminated" for one in machines)


def _is_listed(machines: tuple[Machine, ...], run: Run | None) -> bool:
    return run is not None and any(one.run == run.id for one in machines)
