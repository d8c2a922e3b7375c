"""Lets faults happen: at a request, at an epoch, from the start."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from launch.rehearse.aws.server import Refusal
from launch.rehearse.stage.faults import Fault
from launch.rehearse.stage.progress import newest_epoch
from launch.rehearse.stage.scene import KILLED, Scene
from trainer.contract import Exit

THROTTLED = Refusal(503, "RequestLimitExceeded", "Request limit exceeded.")
SLOW_DOWN = Refusal(503, "SlowDown", "Please reduce your request rate.")  # S3's word for it


class Injection:
    """happened: what was done, with when (monotonic, s)."""

    def __init__(self, faults: Sequence[Fault], scene: Scene, note: Callable[[str], None]) -> None:
        """Raises SettingsError for a fault that cannot happen in this scene."""
        self.happened: list[tuple[float, str]] = []
        self._killed = False
        self.throttled = 0
        self._scene, self._note = scene, note
        self._due, self._calls = list(faults), 0
        self._launcher: int | None = None
        self._throttles = any(fault.kind == "throttle" for fault in faults)
        for fault in faults:
            if what := scene.set_up(fault):
                self._done(fault, what)

    def summary(self) -> list[str]:
        """What happened not once, but again and again; and what never came about."""
        often = [f"throttle: {self.throttled} requests of the launcher were refused"] if self._throttles else []
        never = [f"{fault}: it did not come to that" for fault in self._due if fault.kind != "throttle"]
        return often + never

    def mend(self, code: int) -> str | None:
        """After a command that ended with `code`: what is over now, so that the same command again goes on; or None."""
        if code == KILLED:
            was_us, self._killed = self._killed, False
            return "the launcher was killed" if was_us else None
        return None if code == Exit.DONE else self._scene.mend()

    def aim(self, launcher: int | None) -> None:
        """The process id of the launcher that runs, if one does."""
        self._launcher = launcher

    def give_up(self, trouble: str) -> None:
        """Lets the launcher take everything down."""
        self._send(signal.SIGTERM)
        self._note(f"the rehearsal itself fails: {trouble}")

    def refuse(self, by_launcher: bool, service: str, operation: str) -> Refusal | None:
        """Before each request: what AWS answers instead, if anything."""
        if not by_launcher:
            return None
        self._calls += 1
        for fault in [f for f in self._due if f.kind == "launcher-killed" and f.number == self._calls]:
            self._done(fault, f"the launcher is killed at request {self._calls}, {service}:{operation}")
            self._killed = True
            self._send(signal.SIGKILL)
        if self._throttles and self._calls % 3 == 0:
            self.throttled += 1
            return SLOW_DOWN if service == "s3" else THROTTLED
        return None

    def look(self) -> None:
        """Now and then: whether an epoch is reached at which something happens."""
        waiting = [fault for fault in self._due if fault.has_epoch]
        if not waiting:
            return
        epoch = newest_epoch(self._scene.account)
        for fault in [fault for fault in waiting if fault.number <= epoch]:
            if what := self._scene.strike(fault):
                self._done(fault, f"{what}, after epoch {epoch}")

    def _send(self, signum: int) -> None:
        if self._launcher is not None:
            with suppress(ProcessLookupError):
                os.kill(self._launcher, signum)

    def _done(self, fault: Fault, what: str) -> None:
        self._due.remove(fault)
        self.happened.append((time.monotonic(), f"{fault}: {what}"))
        # Not in the thread that answers a request: the display asks AWS.
        threading.Thread(target=self._note, args=[f"injected {fault}: {what}"], daemon=True).start()
