"""Makes faults happen: at a request, after an epoch, or from the start."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from launch.rehearse.aws.refusal import Refusal
from launch.rehearse.stage.faults import Fault
from launch.rehearse.stage.progress import MetricLog, newest_epoch
from launch.rehearse.stage.scene import KILLED, Scene
from trainer.contract import Exit

THROTTLED = Refusal(503, "RequestLimitExceeded", "Request limit exceeded.")
SLOW_DOWN = Refusal(503, "SlowDown", "Please reduce your request rate.")  # the same, from S3


class Injection:
    """happened: each injected fault, with its time (monotonic, s); throttled: how many requests were refused."""

    def __init__(self, faults: Sequence[Fault], scene: Scene, note: Callable[[str], None]) -> None:
        """Raises SettingsError for a fault that is not possible in this scene."""
        self.happened: list[tuple[float, str]] = []
        self._killed = False
        self.throttled = 0
        self._scene, self._note = scene, note
        self._due, self._calls = list(faults), 0
        self._launcher: int | None = None
        self._logs = dict[str, MetricLog]()
        self._throttles = any(fault.kind == "throttle" for fault in faults)
        for fault in faults:
            if text := scene.prepare(fault):
                self._finish(fault, text)

    def summary(self) -> list[str]:
        """One sentence on each fault that happened repeatedly, or never."""
        repeated = [f"throttle: {self.throttled} requests of the launcher were refused"] if self._throttles else []
        never = [f"{fault}: the job ended before" for fault in self._due if fault.kind != "throttle"]
        return repeated + never

    def repair(self, code: int) -> str | None:
        """After a command that ended with `code`: removes the cause if a fault was, and says which; else None."""
        if code == KILLED:
            was_injected, self._killed = self._killed, False
            return "the launcher was killed" if was_injected else None
        return None if code == Exit.DONE else self._scene.repair()

    def aim(self, launcher: int | None) -> None:
        """Sets the process ID of the running launcher; None when it has ended."""
        self._launcher = launcher

    def give_up(self, trouble: str) -> None:
        """Makes the launcher stop the job, as this machine cannot run it."""
        self._send(signal.SIGTERM)
        self._note(f"the rehearsal itself failed: {trouble}")

    def refuse(self, by_launcher: bool, service: str, operation: str) -> Refusal | None:
        """Called before each request: the error to answer with, if any."""
        if not by_launcher:
            return None
        self._calls += 1
        for fault in list(self._due):
            if fault.kind == "launcher-killed" and fault.number == self._calls:
                self._finish(fault, f"killed the launcher at request {self._calls}, {service}:{operation}")
                self._killed = True
                self._send(signal.SIGKILL)
        if self._throttles and self._calls % 3 == 0:
            self.throttled += 1
            return SLOW_DOWN if service == "s3" else THROTTLED
        return None

    def look(self) -> None:
        """Injects the faults whose epoch has been trained."""
        waiting = [fault for fault in self._due if fault.has_epoch]
        if not waiting:
            return
        epoch = newest_epoch(self._scene.account, self._logs)
        for fault in [fault for fault in waiting if fault.number <= epoch]:
            if text := self._scene.inject(fault):
                self._finish(fault, f"{text}, after epoch {epoch}")

    def _send(self, signum: int) -> None:
        if self._launcher is not None:
            with suppress(ProcessLookupError):
                os.kill(self._launcher, signum)

    def _finish(self, fault: Fault, text: str) -> None:
        self._due.remove(fault)
        self.happened.append((time.monotonic(), f"{fault}: {text}"))
        # In another thread than the one that answers a request, as the display reads from AWS.
        threading.Thread(target=self._note, args=[f"injected {fault}: {text}"], daemon=True).start()
