"""Lets faults happen: at a request, at an epoch, from the start."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from launch.rehearse.account import Account
from launch.rehearse.cloud import Refusal
from launch.rehearse.faults import Fault
from launch.rehearse.progress import newest_epoch
from launch.rehearse.watcher import Life, Watcher

HOST_FAILED = "Server.InternalError: Internal error"
SPOT_TAKEN = "Server.SpotInstanceTermination: Spot instance termination"
NOTICE_S = 120.0
THROTTLED = Refusal(503, "RequestLimitExceeded", "Request limit exceeded.")


class Injection:
    """happened: what was done, with when (monotonic, s); killed: whether the launcher was, by us."""

    def __init__(
        self, faults: Sequence[Fault], account: Account, watcher: Watcher, note: Callable[[str], None]
    ) -> None:
        self.happened: list[tuple[float, str]] = []
        self.killed = False
        self._account, self._watcher, self._note = account, watcher, note
        self._due, self._calls, self._launcher = list(faults), 0, 0
        self._taken: list[tuple[float, Life]] = []
        self._throttles = [fault for fault in faults if fault.kind == "throttle"]
        self.throttled = 0
        for fault in [fault for fault in faults if fault.kind == "no-capacity"]:
            account.rules.capacity[account.region + fault.where.removeprefix("zone-")] = 0
            self._done(fault, f"{account.region}{fault.where.removeprefix('zone-')} has no machines")

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
            return THROTTLED if service != "s3" else Refusal(503, "SlowDown", "Please reduce your request rate.")
        return None

    def look(self) -> None:
        """Now and then: whether an epoch is reached at which something happens."""
        self._take()
        waiting = [fault for fault in self._due if fault.kind in ("node-dies", "spot-notice")]
        if not waiting:
            return
        epoch = newest_epoch(self._account)
        for fault in [fault for fault in waiting if fault.number <= epoch]:
            on = [life for life in self._watcher.lives.values() if life.ended is None]
            if not on:
                continue
            last = on[-1]
            if fault.kind == "node-dies":
                self._done(fault, f"{last.instance} is dead, after epoch {epoch}")
                last.node.pull_the_plug()
                self._account.kill(last.instance, HOST_FAILED)
            elif last.node.imds:
                self._done(fault, f"{last.instance} has two minutes, after epoch {epoch}")
                last.node.imds.give_spot_notice()
                self._taken.append((time.monotonic() + NOTICE_S, last))

    def _take(self) -> None:
        for due, life in list(self._taken):
            if time.monotonic() > due and life.ended is None:
                self._taken.remove((due, life))
                self._account.kill(life.instance, SPOT_TAKEN)

    def _done(self, fault: Fault, what: str) -> None:
        with suppress(ValueError):
            self._due.remove(fault)
        self.happened.append((time.monotonic(), f"{fault}: {what}"))
        # Not in the thread that answers a request: the display asks AWS.
        threading.Thread(target=self._note, args=[f"injected {fault}: {what}"], daemon=True).start()
