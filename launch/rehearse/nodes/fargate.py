"""Containers on Fargate as processes of this machine, with the embedded AWS, the job's role, and a log in CloudWatch.

The image is this Python with this checkout.  A container ends with the rehearsal, also if that is killed.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moto.logs.exceptions import ResourceAlreadyExistsException
from moto.logs.models import logs_backends

from launch.core import shell
from launch.core.shell import ChildProcess
from launch.rehearse.aws.batch.containers import ContainerJob
from launch.rehearse.nodes.ec2.node import bare_environment

KEY = "ASIACONTROLLERTEST01"  # of the role; pragma: allowlist secret
TOKEN = secrets.token_urlsafe(32)  # of its session; secret from this machine's other users
CHECKOUT = Path(__file__).resolve().parents[3]
CANNOT_START = 127
# "ready" is for the shell module; the program takes the place of the shell, and gets Batch's signals itself.
BEGIN = 'echo ready; exec "$@" 2>&1'


@dataclass
class ProcessTask:
    """A container that is a process."""

    process: ChildProcess

    @property
    def exit_code(self) -> int | None:
        code = self.process.exit_code
        return code if code is None or code >= 0 else 128 - code

    def send(self, signum: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send(signum)


@dataclass
class Fargate:
    """Starts containers.  rules: of the embedded AWS.  Its start() is for Batch.start."""

    rules: Any
    endpoint: str  # the URL of the embedded AWS
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)  # of every container, besides the image's
    on_line: Callable[[str], None] = lambda line: None
    tasks: list[ProcessTask] = field(default_factory=list)
    _logs: list[threading.Thread] = field(default_factory=list)

    def start(self, job: ContainerJob, name: str, stream: str) -> ProcessTask:
        """Starts the container of an attempt.  name: of its task; stream: of its log."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        command = ["sh", "-c", f"cd {folder}; {BEGIN}", "sh", *here(job.container["command"])]
        task = ProcessTask(shell.start_child(command, self._environment(job, folder)))
        self.tasks.append(task)
        self._logs.append(threading.Thread(target=self._log, args=[job, stream, task.process], daemon=True))
        self._logs[-1].start()
        return task

    def kill(self) -> bool:
        """Kills the container that started last; returns whether it was running."""
        running = [task for task in self.tasks if task.exit_code is None]
        for task in running[-1:]:
            task.send(signal.SIGKILL)
        return bool(running)

    def close(self) -> None:
        """Ends all containers."""
        for task in self.tasks:
            task.send(signal.SIGKILL)
        for thread in self._logs:
            thread.join(5.0)
        for task in self.tasks:
            task.process.close()

    def _environment(self, job: ContainerJob, folder: Path) -> dict[str, str]:
        """https://docs.aws.amazon.com/batch/latest/userguide/job_env_vars.html"""
        region, given = job.arn.split(":")[3], {row["name"]: row["value"] for row in job.container["environment"]}
        return {
            **bare_environment(os.defpath, folder),
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "AWS_REGION": region,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
            "AWS_SESSION_TOKEN": TOKEN,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_BATCH_JOB_ID": job.id,
            "AWS_BATCH_JOB_ATTEMPT": str(job.used + 1),
            "AWS_BATCH_JQ_NAME": job.queue.name,
            "AWS_BATCH_CE_NAME": job.queue.environment.rpartition("/")[2],
            **self.variables,
            **given,
        }

    def _log(self, job: ContainerJob, stream: str, process: ChildProcess) -> None:
        """Puts its lines into CloudWatch."""
        _, _, _, region, account, *_ = job.arn.split(":")
        logs, (group, _) = logs_backends[account][region], job.logs
        with self.rules.lock:
            with suppress(ResourceAlreadyExistsException):
                logs.create_log_group(group, {})
            logs.create_log_stream(group, stream)
        for data in process.lines():
            line = data.decode(errors="replace").rstrip("\n")
            event = {"timestamp": int(time.time() * 1000), "message": line or " "}
            with self.rules.lock:
                logs.put_log_events(group, stream, [event])
            self.on_line(line)


def here(command: Sequence[str]) -> list[str]:
    """The command on this machine: a Python module ends with this process, as its watchdog sees to it."""
    if list(command[:2]) != ["python", "-m"]:
        return list(command)
    return [sys.executable, "-P", "-m", "launch.rehearse.watchdog", str(os.getpid()), *command[2:]]
