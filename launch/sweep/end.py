"""How the launcher of a run ended, and what that says of the run.  Pure."""

from dataclasses import dataclass

from launch.core.run import State
from launch.sweep.folder import LOG
from trainer import outcome as outcomes
from trainer.contract import OUTCOME, Exit
from trainer.errors import one_line
from trainer.outcome import Outcome
from trainer.settings.hidden import without_secrets

MOST_OF_LINE = 300  # characters of a launcher's last line, which may be a training's


@dataclass(frozen=True)
class End:
    """How a launcher ended.  signal: what asked the sweep to stop, if it did; error: why the launcher was lost.

    outcome: what the launcher wrote; trainer_reason: what the trainer wrote in the run's folder; last: its last line.
    diverged: why we ended it, if we did; stop: the command that ends its job, if that can go on without the launcher.
    """

    code: int
    signal: int | None
    seconds: float
    error: str = ""
    outcome: Outcome | None = None
    trainer_reason: str = ""
    last: str = ""
    diverged: str = ""
    stop: str = ""

    @property
    def state(self) -> State:
        if self.code == Exit.DONE:
            return "done"
        if self.diverged:
            return "failed"
        state = self.outcome.state if self.outcome else outcomes.state_of(self.code)
        return "failed" if state == "failed" and self.signal is None and not self._is_lost else "interrupted"

    @property
    def reason(self) -> str:
        """Why the run is not done, as one sentence; empty if it is."""
        if self.state == "done":
            return ""
        if self.diverged:
            return self._diverged
        if self._is_lost:
            return self._lost
        reason = (self.outcome.reason if self.outcome else self.error) or self.trainer_reason
        if self.state == "failed":
            return reason or self._unexplained
        return reason if reason and not self._was_asked else "stopped; the same command resumes it"

    @property
    def _diverged(self) -> str:
        is_left = self.stop and (self._is_lost or self._goes_on)
        return f"{self.diverged} Its job may still run; this stops it: {self.stop}" if is_left else self.diverged

    @property
    def _lost(self) -> str:
        why = self.error or "its launcher was ended before it could say how its job ended."
        return f"{why} Its job may still run; the same command resumes it, and this stops it: {self.stop}"

    @property
    def _was_asked(self) -> bool:
        """Whether it ended by our own signal: then only an error tells something new, or that the job goes on."""
        return self.signal is not None and outcomes.state_of(self.code) != "failed" and not self._goes_on

    @property
    def _is_lost(self) -> bool:
        """Whether somebody killed the launcher of a job that goes on without it."""
        was_killed = bool(self.error) or self.signal is not None
        return bool(self.stop) and self.outcome is None and was_killed

    @property
    def _goes_on(self) -> bool:
        """Whether the launcher has left its job running: see launch.core.errors.LeftRunning."""
        if self.outcome is None or self.outcome.exit_code == Exit.INTERRUPTED:
            return False
        return self.outcome.state == "interrupted"

    @property
    def _unexplained(self) -> str:
        left = "" if self.outcome else f" and left no {OUTCOME}"
        last = f", after {one_line(without_secrets(self.last[:10_000]), MOST_OF_LINE)!r}" if self.last else ""
        return f"the launcher ended with exit code {self.code}{left}{last}; see {LOG}"
