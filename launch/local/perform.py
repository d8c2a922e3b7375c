"""Performs a plan: runs the command and returns the outcome."""

import os
import signal
from collections.abc import Mapping

from launch.core import shell
from launch.core.terminal import say
from launch.local.planner import LocalPlan
from trainer import outcome
from trainer.contract import LAUNCHER, STOPPED, Exit
from trainer.outcome import Outcome, state_of


def perform(plan: LocalPlan, env: Mapping[str, str]) -> Outcome:
    """Run the training; return the outcome in its run folder, else the one of its exit code.

    Ctrl-C, SIGTERM and SIGHUP stop it: 75 if it has saved, else 130.  It also saves and ends if this process is killed.
    Raises MachineError if another process killed it.
    """
    # Forward SIGTERM, on which torchrun and the trainer end without printing a message.
    code = shell.run(plan.command, {**env, LAUNCHER: str(os.getpid())}, stop_signal=signal.SIGTERM)
    if plan.is_script and plan.run_dir.is_dir():  # the trainer says it itself
        say(f"results: {plan.run_dir}")
    written = outcome.read(plan.run_dir)
    if written and written.exit_code == code:
        return written
    if code == Exit.INTERRUPTED:
        return Outcome("stopped", STOPPED, "stopped before it had saved")
    return Outcome(state_of(code), code)
