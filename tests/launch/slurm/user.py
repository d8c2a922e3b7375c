"""Somebody who uses launch.slurm, and what the job called `job` leaves in its folder."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.slurm.__main__ import main
from launch.slurm.runtime import Runtime
from trainer import outcome
from trainer.outcome import Outcome

FLAGS = ("--nodes", "2", "--device", "cpu", "--time", "10", "--cpus-per-task", "1", "--job-name", "job")


class User:
    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def run(self, *argv: str) -> int:
        """The exit code of `python -m launch.slurm ARGV`."""
        return main(argv, self.runtime)

    def submit(self, *flags: str) -> int:
        """The exit code of launching the job."""
        return self.run(*FLAGS, *([] if "--wait" in flags else ["--detach"]), *flags)

    def trains_by(self, script: str) -> None:
        """Makes the trainer a few lines of bash."""
        stub = self.runtime.cwd / "python"
        stub.write_text(f"#!/bin/bash\n{script}\n")
        stub.chmod(0o755)
        self.runtime = replace(self.runtime, python=str(stub))

    @property
    def folder(self) -> Path:
        return self.runtime.cwd / "runs/job"

    @property
    def starts(self) -> list[dict[str, Any]]:
        path = self.folder / "starts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def ends(self) -> list[tuple[int, str]]:
        """The exit code of each start, and what followed from it."""
        return [(start["code"], start["then"]) for start in self.starts]

    @property
    def log(self) -> str:
        path = self.folder / "job.log"
        return path.read_text() if path.exists() else ""

    @property
    def outcome(self) -> Outcome:
        written = outcome.read(self.folder)
        assert written is not None
        return written

    def wait_for(self, condition: Callable[[], object], within_s: float = 60) -> None:
        until = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < until, self.log
            time.sleep(0.05)
