"""Lets faults happen: at a request, at an epoch, from the start."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from launch.rehearse.cloud import Refusal
from launch.rehearse.faults import Fault
from launch.rehearse.progress import newest_epoch
from launch.rehearse.scene import Scene

THROTTLED = Refusal(503, "RequestLimitExceeded", "Request limit exceeded.")
SLOW_DOWN = Refusal(503, "SlowDown", "Please reduce your request rate.")  # S3's word for it


class Injection:
    """happened: what was done, with when (monotonic, s); killed: whether the launcher was, by us."""

    def __init__(self, faults: Sequence[Fault], scene: Scene, note: Callable[[str], None]) -> None:
        """Raises SettingsError for a fault that cannot happen in this scene."""
        self.happened: list[tuple[float, str]] = []
        self.killed = False
        self.throttled = 0
        self._scene, self._note = scene, note
        self._due, self._calls, self._launcher = list(faults), 0, 0
        self._throttles = any(fault.kind == "throttle" for fault in faults)
        for fault in faults:
            if what := scene.set_up(fault):
                self._done(fault, what)

    def summary(self) -> list[str]:
        """What happened not once, but again and again; and what never came about."""
        often = [f"throttle: {self.throttled} requests of the launcher were refused"] if self._throttles else []
        never = [f"{fault}: it did not come to that" for fault in self._due if fault.kind != "throttle"]
        return often + never

    def aim(self, launcher: int) -> None:
        """The launcher's process id."""
        self._launcher = launcher

    def give_up(self, trouble: str) -> None:
        """Lets the launcher take everything down."""
        self._note(f"the rehearsal itself fails: {trouble}")
        with suppress(ProcessLookupError):
            os.kill(self._launcher, signal.SIGTERM)

    def refuse(self, by_launcher: bool, service: str, operation: str) -> Refusal | None:
        """Before each request: what AWS answers instead, if anything."""
        if not by_launcher:
            return None
        self._calls += 1
        for fault in [f for f in self._due if f.kind == "launcher-killed" and f.number == self._calls]:
            self._done(fault, f"the launcher is killed at request {self._calls}, {service}:{operation}")
            self.killed = True
            os.kill(self._launcher, signal.SIGKILL)
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

    def _done(self, fault: Fault, what: str) -> None:
        self._due.remove(fault)
        self.happened.append((time.monotonic(), f"{fault}: {what}"))
        # Not in the thread that answers a request: the display asks AWS.
        threading.Thread(target=self._note, args=[f"injected {fault}: {what}"], daemon=True).start()
