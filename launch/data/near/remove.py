"""Ends instances that publish a data set, and removes their groups and time limits: by run, or all of an owner's."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.names import TIME, TOOLKIT, bucket_of
from launch.core.patience import is_busy, patiently
from launch.core.perform import Say
from launch.core.refusals import DENIED
from launch.core.steps import Request
from launch.data.near import requests
from launch.data.near.facts import Group, Machine, Parts
from launch.data.near.lookup import find_parts, known_run
from launch.data.near.run import CHANGED, Run, put_run, stem_of

LOOK_S = 15.0
UNSEEN_S = 120.0  # EC2 does not list a new instance at once
GONE_S = 600.0  # until a terminated one has let go of its group
TRIES = 3
# EC2's and the scheduler's words for what is not there, and for a group that an instance still has.
GONE = (*requests.GONE, "InvalidInstanceID.NotFound")
IN_USE = ("DependencyViolation", "InvalidGroup.InUse")

Meant = Callable[[str, str], bool]  # run, owner -> whether what has these tags is to be removed


@dataclass(frozen=True)
class Remover:
    """aws: in the region of the data set called `name`.  Everything here can be repeated."""

    aws: Aws
    clock: Clock
    say: Say
    name: str

    def remove_run(self, run: Run) -> None:
        """Removes one run, and notes that it ended; another one of the same data set stays as it is.

        Raises AwsError for what stays.  A colleague's is left alone once it has ended: it is its owner's to remove.
        """
        if run.owner != self._me and not self._find(run.is_whose).living:
            self.say(f"its security group, which costs nothing, stays until its owner ({run.owner}) removes it")
            return
        self._remove(run.is_whose)

    def stop(self) -> int:
        """Removes what the caller has of the data set; where that is nothing, what others have, as AWS allows it.

        Returns how many things were removed.  Raises AwsError for what stays.
        """
        run, _, ended = self._known_or_ended(self._is_mine)
        open_run = run if run is not None and not ended else None
        mine = self._find(self._is_mine)
        has_some = mine.living or mine.groups or (open_run is not None and open_run.owner == self._me)
        theirs = self._find(lambda run, owner: owner != self._me).living
        for one in theirs:
            self.say(f"{one.id} publishes {self.name} for somebody else ({one.owner})")
        if has_some or not (theirs or open_run):
            return self._remove(self._is_mine)
        return self._stop_others(theirs, open_run)

    def _stop_others(self, theirs: tuple[Machine, ...], open_run: Run | None) -> int:
        runs = {*(one.run for one in theirs), *([open_run.id] if open_run else [])}
        try:
            return self._remove(lambda run, owner: run in runs and owner != self._me)
        except AwsError as error:
            if error.aws_code not in DENIED or error.operation != "TerminateInstances" or not theirs:
                raise
            names = ", ".join(one.id for one in theirs)
            words = (
                f"AWS lets nobody but its owner ({theirs[0].owner}) and administrators end {names}; ask one of them."
            )
            raise AwsError(words, error.aws_code, error.operation) from error

    # ---- parts of it

    @cached_property
    def _caller(self) -> Mapping[str, Any]:
        return patiently(lambda: self.aws.call("sts", "GetCallerIdentity"), self.clock, self.say, is_busy)

    @property
    def _me(self) -> str:
        return str(self._caller["UserId"])

    def _is_mine(self, run: str, owner: str) -> bool:
        return owner == self._me

    def _known(self) -> tuple[Run | None, str, str]:
        bucket = bucket_of(str(self._caller["Account"]), self.aws.region)
        return patiently(lambda: known_run(self.aws, bucket, self.name), self.clock, self.say)

    def _known_or_ended(self, is_meant: Meant) -> tuple[Run | None, str, str]:
        """The same.  Where S3 does not say it, the instances are ended all the same, which cost money."""
        try:
            return self._known()
        except AwsError:
            with suppress(AwsError):
                self._end([one.id for one in self._find(is_meant).living])
            raise

    def _find(self, is_meant: Meant) -> Parts:
        return patiently(lambda: find_parts(self.aws, self.name), self.clock, self.say).only(is_meant)

    def _remove(self, is_meant: Meant) -> int:
        known, _, ended = self._known_or_ended(is_meant)
        run = known if known and is_meant(known.id, known.owner) and not ended else None
        ends = self._end_all(is_meant, run)
        parts = self._find(is_meant)
        self._delete_groups(is_meant)
        runs = {*parts.runs, *([run.id] if run else [])}
        # Last of what could be billed: should this fail half-way, the time limit still ends the instance.
        for one in sorted(filter(self._has_limit, runs)):
            self._delete_limit(one)
        if run is not None:
            self._note_end(run)
        return ends + len(parts.groups)

    def _delete_limit(self, run: str) -> None:
        try:
            self._call(requests.delete_limit(f"{TOOLKIT}-{run}"))
        except AwsError as error:
            if error.aws_code not in GONE:
                raise

    def _has_limit(self, run: str) -> bool:
        """Whether it is a publication's name: by a tag with a job's, its time limit would go."""
        return re.fullmatch(re.escape(stem_of(self.name)) + r"\d{8}-\d{6}", run, re.ASCII) is not None

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
        patiently(lambda: self.aws.call(request.service, request.operation, request.params), self.clock, self.say)

    def _end_all(self, is_meant: Meant, run: Run | None) -> int:
        """Returns how many instances were ended, once all are terminated.

        run: that may have begun so recently that EC2 does not list its instance yet; not in the future, as any
        publisher may write there, and this clock may be behind.
        """
        asked, give_up = set[str](), self.clock.now() + GONE_S
        unsure_until = min(run.started.timestamp(), self.clock.now()) + UNSEEN_S if run else 0.0
        while True:
            machines = self._find(is_meant).machines
            asked |= self._end([one.id for one in machines if one.lives and one.id not in asked])
            is_sure = self.clock.now() > unsure_until or _is_listed(machines, run)
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

    def _delete_groups(self, is_meant: Meant) -> None:
        """Deletes them until none is listed: EC2 may not know a new one by its id yet, nor let go of one in use."""
        give_up, kept = self.clock.now() + GONE_S, set[str]()
        while groups := self._groups(is_meant, kept):
            kept |= {group.id for group in groups if self._stays(group, must=self.clock.now() > give_up)}
            if not self._groups(is_meant, kept):
                return
            self.clock.sleep(LOOK_S)

    def _groups(self, is_meant: Meant, kept: set[str]) -> list[Group]:
        """Those that are still to be deleted.  An instance that EC2 lists only now, and that has one, is ended."""
        parts = self._find(is_meant)
        self._end([one.id for one in parts.living])
        return [group for group in parts.groups if group.id not in kept]

    def _stays(self, group: Group, *, must: bool) -> bool:
        """Deletes it, if EC2 does so already; whether it is another's, whom AWS lets keep it: it costs nothing."""
        request = requests.delete_group(group.id)
        try:
            self._call(request)
        except AwsError as error:
            if error.aws_code in DENIED and group.owner != self._me:
                self.say(f"{group.id}, which costs nothing, stays until its owner ({group.owner}) removes it")
                return True
            if must or error.aws_code not in (*GONE, *IN_USE):
                raise
        return False


def _are_gone(machines: tuple[Machine, ...]) -> bool:
    return all(one.state == "terminated" for one in machines)


def _is_listed(machines: tuple[Machine, ...], run: Run | None) -> bool:
    return run is not None and any(one.run == run.id for one in machines)
