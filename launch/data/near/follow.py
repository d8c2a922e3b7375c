"""Follows an instance that publishes to its end, and has all that it was removed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from launch.aws.client import Aws
from launch.aws.lookup import read_json
from launch.aws.retry import Retry, is_transient
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.terminal import Say
from launch.data.near.facts import Machine
from launch.data.near.lookup import end_of, find_parts
from launch.data.near.remove import UNSEEN_S, Remover
from launch.data.near.run import LOG, PROGRESS, Run
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
