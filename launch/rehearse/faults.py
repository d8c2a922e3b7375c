"""The faults of --inject: parse them, and inject them at their time."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from launch.rehearse.aws.calls import Refusal
from launch.rehearse.backend import KILLED, RehearsedBackend
from trainer.contract import Exit
from trainer.errors import SettingsError, did_you_mean

# Name -> form and description.
KINDS = {
    "node-dies": ("@epoch:N", "the last node dies after epoch N"),
    "spot-notice": ("[@epoch:N]", "AWS reclaims the last node after epoch N (default: 1)"),
    "sick-node": ("[:N]", "the GPU of the last node is broken, and those of the first N - 1 in its place (default: 1)"),
    "disk-full": ("[@epoch:N]", "the disk of the first node is full after epoch N (default: 1)"),
    "no-capacity": (":zone-X", "this zone has no capacity; or a region, such as us-east-1"),
    "no-route": ("", "the subnets have lost their route to the internet, until the launcher has ended"),
    "slow-network": (":RATE", "each node sends and receives at most RATE, such as 1gbit or 200mbit"),
    "launcher-killed": ("@call:N", "the launcher gets SIGKILL at its Nth request and is started again"),
    "controller-killed": ("@epoch:N", "the launcher of a job in a queue gets SIGKILL after epoch N"),
    "throttle": ("", "AWS throttles every third request of the launcher"),
}
PATTERNS = {
    "@epoch:N": r"@epoch:(?P<number>[1-9]\d*)",
    "[@epoch:N]": r"(@epoch:(?P<number>[1-9]\d*))?",
    "@call:N": r"@call:(?P<number>[1-9]\d*)",
    ":zone-X": r":(?P<where>zone-[a-z]|[a-z]{2}(-[a-z]+)+-\d)",
    "[:N]": r"(:(?P<number>[1-9]\d*))?",
    ":RATE": r":(?P<where>[1-9]\d*[kmg]bit)",
    "": "",
}


@dataclass(frozen=True)
class Fault:
    """A fault of --inject."""

    kind: str
    number: int = 0  # of the epoch, call or nodes; 0 without one
    where: str = ""  # a zone such as zone-a, or a network's rate

    def __str__(self) -> str:
        return f"{self.kind}{self._at if self.number else ''}{':' + self.where if self.where else ''}"

    @property
    def _at(self) -> str:
        if self.kind == "sick-node":
            return f":{self.number}"
        return f"@{'call' if self.kind == 'launcher-killed' else 'epoch'}:{self.number}"

    @property
    def has_epoch(self) -> bool:
        """Whether it happens after an epoch."""
        return "epoch" in KINDS[self.kind][0]


def parse(words: Sequence[str]) -> tuple[Fault, ...]:
    """Parse the faults in `words`.  Raises SettingsError with the form of an invalid one."""
    return tuple(_parse(word) for word in words)


def check(faults: Sequence[Fault], epochs: int | None) -> None:
    """Raise SettingsError for a fault after the last epoch.  epochs: None if not known."""
    for fault in faults:
        if epochs is not None and fault.has_epoch and fault.number >= epochs:
            raise SettingsError(
                f"--inject {fault}: the training ends with epoch {epochs}; choose an earlier epoch, or more --epochs."
            )


def _parse(word: str) -> Fault:
    kind = re.split("[@:]", word)[0]
    if kind not in KINDS:
        raise SettingsError(f"--inject {word}: unknown fault{did_you_mean(kind, KINDS) or '.'} {_known()}")
    form, _ = KINDS[kind]
    match = re.fullmatch(PATTERNS[form], word.removeprefix(kind))
    if match is None:
        raise SettingsError(f"--inject {word}: must look like {kind}{form}. {_known()}")
    parts = match.groupdict()
    return Fault(kind, int(parts.get("number") or form.startswith("[")), parts.get("where") or "")


def _known() -> str:
    return f"Known: {', '.join(kind + form for kind, (form, _) in KINDS.items())}."


# ---- injection


THROTTLED = Refusal(503, "RequestLimitExceeded", "Request limit exceeded.")
SLOW_DOWN = Refusal(503, "SlowDown", "Please reduce your request rate.")  # the same, from S3


class Injection:
    """Injects the faults of one rehearsal."""

    def __init__(self, faults: Sequence[Fault], backend: RehearsedBackend, note: Callable[[str], None]) -> None:
        """Raise SettingsError for a fault that this backend does not have."""
        self.happened: list[tuple[float, str]] = []  # each injected fault, with its time (monotonic, s)
        self._killed = False
        self.throttled = 0  # refused requests
        self._backend, self._note = backend, note
        self._due, self._calls = list(faults), 0
        self._launcher: int | None = None
        self._throttles = any(fault.kind == "throttle" for fault in faults)
        for fault in faults:
            if text := backend.prepare(fault):
                self._finish(fault, text)

    def summary(self) -> list[str]:
        """A sentence for each fault that happened repeatedly or never."""
        repeated = [f"throttle: {self.throttled} requests of the launcher were refused"] if self._throttles else []
        never = [f"{fault}: the job ended before" for fault in self._due if fault.kind != "throttle"]
        return repeated + never

    def repair(self, code: int) -> str | None:
        """After a command that ended with `code`, remove the cause if that was a fault; return it in words."""
        if code == KILLED:
            was_injected, self._killed = self._killed, False
            return "the launcher was killed" if was_injected else None
        return None if code == Exit.DONE else self._backend.repair()

    def set_launcher(self, launcher: int | None) -> None:
        """Set the process ID of the running launcher; None when it has ended."""
        self._launcher = launcher

    def abort(self, trouble: str) -> None:
        """Make the launcher stop the job, as this machine cannot run it."""
        self._send(signal.SIGTERM)
        self._note(f"the rehearsal itself failed: {trouble}")

    def refuse(self, by_launcher: bool, service: str, operation: str) -> Refusal | None:
        """Called before each request.  Return the error to answer with, if any."""
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

    def inject_due(self, epoch: int) -> None:
        """Inject the faults that are due after an epoch.  epoch: the last one so far."""
        for fault in [fault for fault in self._due if fault.has_epoch and fault.number <= epoch]:
            if text := self._backend.inject(fault):
                self._finish(fault, f"{text}, after epoch {epoch}")

    def _send(self, signum: int) -> None:
        if self._launcher is not None:
            with suppress(ProcessLookupError):
                os.kill(self._launcher, signum)

    def _finish(self, fault: Fault, text: str) -> None:
        self._due.remove(fault)
        self.happened.append((time.monotonic(), f"{fault}: {text}"))
        # In another thread, as this one may be answering a request, and the display reads from AWS.
        threading.Thread(target=self._note, args=[f"injected {fault}: {text}"], daemon=True).start()
