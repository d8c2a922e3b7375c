"""Which launcher leads a job that went into a queue: the one whose name is in lease.json, until its time is over.

A leader extends its lease while it sleeps, which every launcher does between two looks.  S3's conditional writes let
one of several launchers take a lease that has run out:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from launch.aws.client import Aws
from launch.aws.names import Folder
from launch.aws.retry import is_transient, retrying
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.plan import CONFLICT, TAKEN, Request, unless_changed
from launch.core.signals import Hangup
from launch.core.terminal import Say
from trainer.errors import TrainerError

LEASE_S = 120.0  # a leader that is not heard of for so long has ended
RENEW_S, LOOK_EVERY_S = 30.0, 5.0


@dataclass
class Lease:
    """The lease of one job, for one launcher."""

    aws: Aws
    folder: Folder
    clock: Clock
    say: Say
    holder: str = field(default_factory=lambda: uuid.uuid4().hex)
    _version: str = ""  # the ETag of lease.json
    _renewed: float = 0.0

    def is_free(self) -> bool:
        """Whether no other launcher leads the job.  Raises AwsError."""
        content, self._version = self._read()
        return content.get("holder", self.holder) == self.holder or float(content["expires"]) < self.clock.now()

    def take(self) -> None:
        """Wait until no other launcher leads the job, and lead it.  Raises AwsError."""
        is_announced = False
        while not (retrying(self.is_free, self.clock, self.say) and self._write(LEASE_S)):
            if not is_announced:
                self.say(f"another launcher leads {self.folder.job}; waiting for it")
            is_announced = True
            self.clock.sleep(LOOK_EVERY_S)

    def renew(self) -> None:
        """Extend the lease, if it is time.  Raises Hangup if another launcher has taken it, or may have."""
        if self.clock.now() - self._renewed < RENEW_S:
            return
        try:
            if self._write(LEASE_S) or (self.is_free() and self._write(LEASE_S)):
                return
        except TrainerError as error:
            if not is_transient(error):
                self.say(f"warning: the lease of {self.folder.job} cannot be extended: {error}")
            if self.clock.now() - self._renewed < LEASE_S:
                return
        raise Hangup(f"another launcher leads {self.folder.job}, or may lead it")

    def leave(self) -> None:
        """Let the next launcher lead at once."""
        with suppress(TrainerError):
            self._write(-1.0)

    def _read(self) -> tuple[Mapping[str, Any], str]:
        text, version = self.aws.read_version(self.folder.bucket, self.folder.lease)
        return json.loads(text or b"{}"), version

    def _write(self, seconds: float) -> bool:
        """Whether it was written: no other launcher has written it since it was read."""
        body = json.dumps({"holder": self.holder, "expires": self.clock.now() + seconds})
        params = {"Bucket": self.folder.bucket, "Key": self.folder.lease, "Body": body}
        put = unless_changed(Request("s3", "PutObject", params, "lead the job"), self._version)
        try:
            answer = self.aws.call("s3", "PutObject", put.params)
        except AwsError as error:
            if error.aws_code in (TAKEN, CONFLICT):
                return False
            raise
        self._version, self._renewed = str(answer["ETag"]), self.clock.now()
        return True


@contextmanager
def leading(aws: Aws, folder: Folder, clock: Clock, say: Say) -> Iterator[Clock]:
    """Lead the job inside the block, with a clock whose sleep() extends the lease."""
    lease = Lease(aws, folder, clock, say)
    lease.take()

    def sleep(seconds: float) -> None:
        until = clock.now() + seconds
        while True:
            lease.renew()
            left = until - clock.now()
            if left <= 0:
                return
            clock.sleep(min(left, RENEW_S))

    try:
        yield replace(clock, sleep=sleep)
    finally:
        lease.leave()
