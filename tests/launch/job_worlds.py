"""A user at the command line of each backend, beside a job called `demo` that another terminal has started."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from moto.s3.models import s3_backends

from launch.aws.client import Aws
from launch.core.cli import Launcher
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.ec2 import __main__ as ec2
from launch.rehearse.aws.batch.moto_patches import make_queue
from launch.rehearse.aws.batch.scheduler import step
from launch.rehearse.aws.sagemaker.changes import advance, complete
from launch.sagemaker import __main__ as sagemaker
from launch.slurm import __main__ as slurm
from launch.slurm.names import SCRIPT, comment_of
from launch.slurm.runtime import Runtime
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal
from tests.launch.sagemaker.world import Stage
from tests.launch.slurm.jobs import left

JOB, WEIGHTS = "demo", b"the weights"
EPOCH = {"epoch": 3, "train_loss": 1.25, "images_per_s": 2450.5, "epoch_s": 523.0}


@dataclass
class World:
    """One backend with the job, which runs."""

    backend: str
    run: Callable[..., int]  # types words after `python -m launch.BACKEND`; returns the exit code
    said: list[str]  # printed by the last command
    results: Path  # the job's results on this machine, once they are fetched
    put: Callable[[str, bytes], None]  # writes a file into the job's run folder, as the training does
    end: Callable[[], object]  # the job ends well, and leaves model.pt
    log: Callable[[str], object]  # a line of the training's output
    launcher: Callable[[], Launcher[Any, Any]]  # of the same user, for programs
    is_cloud: bool = True  # its machines are rented

    def type(self, *words: str) -> int:
        self.said.clear()
        return self.run(*words)

    @property
    def text(self) -> str:
        return "\n".join(self.said)

    def json(self, *words: str, code: int = 0) -> list[Any]:
        """What a command prints with --json: an object in each line."""
        assert self.type(*words, "--json") == code, self.text
        return [json.loads(line) for line in self.text.splitlines()]


def _put(account: Any, key: str, content: bytes) -> None:
    s3_backends[account.id]["aws"].put_object(account.bucket, key, content)


@contextmanager
def on_ec2(_: Path) -> Iterator[World]:
    with Account.opened() as account:
        terminal = Terminal(account)
        (node,) = terminal.start(JOB)
        yield World(
            "ec2",
            terminal.type,
            terminal.said,
            account.results / JOB,
            lambda name, content: _put(account, f"jobs/{JOB}/run/{name}", content),
            lambda: _end_on_ec2(account, node),
            lambda line: _log_on_ec2(account.aws(), line),
            lambda: ec2.launcher(terminal.runtime),
        )


def _end_on_ec2(account: Account, node: str) -> None:
    _put(account, f"jobs/{JOB}/run/model.pt", WEIGHTS)
    now = int(time.time())
    record = {"instance": node, "rank": 0, "generation": 1, "code": 0, "step": "train", "reason": "done",
              "restarts": 0, "at": now}  # fmt: skip
    account.put_json(f"jobs/{JOB}/exits/{node}.json", record)
    account.put_json(f"jobs/{JOB}/job.json", {**account.s3(f"jobs/{JOB}/job.json"), "ended": now})
    account.kill(node, "Client.InstanceInitiatedShutdown: Instance initiated shutdown")
    account.forget(node)


def _log_on_ec2(aws: Aws, line: str) -> None:
    group, stream = "/aws-ddp-toolkit/ec2", f"{JOB}/node-0"
    with suppress(AwsError):  # they are there
        aws.call("logs", "CreateLogGroup", {"logGroupName": group})
        aws.call("logs", "CreateLogStream", {"logGroupName": group, "logStreamName": stream})
    event = {"timestamp": int(time.time() * 1000), "message": line}
    aws.call("logs", "PutLogEvents", {"logGroupName": group, "logStreamName": stream, "logEvents": [event]})


@contextmanager
def on_sagemaker(_: Path) -> Iterator[World]:
    with Stage.opened(instance_type="ml.g5.12xlarge") as stage:
        job = stage.started(JOB, remote_debug=True)
        name = job.request["TrainingJobName"]
        yield World(
            "sagemaker",
            stage.type,
            stage.said,
            stage.results / name,
            lambda file, content: _put(stage.account, f"jobs/{JOB}/run/{file}", content),
            lambda: (stage.leave_result(name, {"model.pt": WEIGHTS.decode()}), complete(job)),
            lambda line: stage.account.log(name, "algo-1", [line]),
            lambda: sagemaker.launcher(stage.runtime_of),
        )


@contextmanager
def through_a_queue(_: Path) -> Iterator[World]:
    """SageMaker again: the job is an attempt that AWS Batch has started."""
    with Stage.opened(instance_type="ml.g5.12xlarge", queue="demo", job_name=JOB, remote_debug=True) as stage:
        make_queue(stage.account.rules, "aws-ddp-toolkit-demo", 4, stage.account.region, stage.account.id)
        stage.launch()
        step(stage.account.rules)
        (job,) = stage.account.jobs.values()
        advance(job)
        yield World(
            "sagemaker",
            stage.type,
            stage.said,
            stage.results / JOB,
            lambda file, content: _put(stage.account, f"jobs/{JOB}/run/{file}", content),
            lambda: (stage.leave_result(job.name, {"model.pt": WEIGHTS.decode()}), complete(job)),
            lambda line: stage.account.log(job.name, "algo-1", [line]),
            lambda: sagemaker.launcher(stage.runtime_of),
        )


@contextmanager
def on_slurm(folder: Path) -> Iterator[World]:
    """Slurm is a program that prints a line of the queue, and another that empties it."""
    path, said = left(folder / "runs" / JOB), list[str]()
    queue, squeue, scancel = folder / "queue", folder / "squeue", folder / "scancel"
    columns = (
        "7",
        "RUNNING",
        "None",
        "10:00",
        "1:00",
        "2",
        "n[0-1]",
        "main",
        "N/A",
        path / SCRIPT,
        JOB,
        comment_of(JOB),
    )
    queue.write_text("\t".join(map(str, columns)) + "\n")
    squeue.write_text(f"#!/bin/sh\ncat {queue}\n")
    squeue.chmod(0o755)
    scancel.write_text(f"#!/bin/sh\n: >{queue}\n")
    scancel.chmod(0o755)
    runtime = Runtime({"PATH": f"{folder}:/usr/bin:/bin"}, folder, "python", Clock(), said.append)

    def put(name: str, content: bytes) -> None:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)

    def run(*words: str) -> int:
        return slurm.main(words, runtime)

    def end() -> None:
        put("model.pt", WEIGHTS)
        queue.write_text("")

    def log(line: str) -> None:
        with (path / "job.log").open("a") as file:
            file.write(f"{line}\n")

    yield World("slurm", run, said, path, put, end, log, partial(slurm.launcher, runtime), is_cloud=False)


WORLDS: Mapping[str, Callable[[Path], Any]] = {
    "ec2": on_ec2,
    "sagemaker": on_sagemaker,
    "queue": through_a_queue,
    "slurm": on_slurm,
}
