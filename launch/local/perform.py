"""Carries a plan out: runs the command, and says how the training ended."""

import os
import signal
from collections.abc import Mapping

from launch.core import shell
from launch.local.planner import LocalPlan
from trainer import outcome
from trainer.contract import LAUNCHER, STOPPED, Exit
from trainer.outcome import Outcome, state_of


def perform(plan: LocalPlan, env: Mapping[str, str]) -> Outcome:
    """The outcome that the training leaves in its run folder, or the one that its exit code stands for.

    Ctrl-C, SIGTERM and SIGHUP stop it: 75 if it has saved, else 130.  It saves and ends if this process is killed, too.
    Raises MachineError if somebody else killed it.
    """
    # SIGTERM, as torchrun and the trainer answer it without a message of their own.
    code = shell.run(plan.command, {**env, LAUNCHER: str(os.getpid())}, stop_signal=signal.SIGTERM)
    written = outcome.read(plan.run_dir)
    if written and written.exit_code == code:
        return written
    if code == Exit.INTERRUPTED:
        return Outcome("stopped", STOPPED, "stopped before it had saved")
    return Outcome(state_of(code), code)
