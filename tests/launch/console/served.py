"""A console that serves in a thread of this process, beside jobs on an embedded AWS and runs in a folder."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvicorn
from moto.s3.models import s3_backends

from launch.console.actions import Actions
from launch.console.guard import Keys
from launch.console.server import HOST, config_of, listening
from launch.console.world import Cache, World
from launch.core import runs
from launch.core.runs import Run
from launch.ec2 import __main__ as ec2
from launch.rehearse.receipt.page import write
from tests.launch.console.desk import Ended, LaunchersClient
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal
from tests.launch.job_worlds import EPOCH
from tests.launch.rehearse.receipt.receipts import HOSTILE, RECEIPT
from trainer.outcome import Outcome

GROUP = "/aws-ddp-toolkit/ec2"


@dataclass
class Served:
    """A console for a browser.  typed: the commands that it has run, in the account."""

    address: str  # with the token
    world: World
    account: Account
    typed: list[str]


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """Two jobs, of which one logs, one that has ended, a leak, a sweep, and a rehearsal."""
    with Account.opened() as account:
        terminal, typed = Terminal(account), list[str]()
        for name, count, hours, left in (("one", 2, 2, 12), ("two", 1, 1, 12), ("forgotten", 1, 9, -1)):
            started = terminal.start(name, count, hours_ago=hours, hours_left=left)
            for node in account.nodes:
                if node.id in started:
                    node.launch_time -= timedelta(hours=hours, minutes=-3)
            for step, minutes in (
                (("started", 115), ("data", 114), ("image", 95), ("train", 88)) if name == "one" else ()
            ):
                put(account, f"jobs/one/boot/{started[0]}.{step}", "", minutes_ago=minutes)
        end(account, "yesterday")
        records = [{**EPOCH, "epoch": 1 + one, "train_loss": 2.0 / (1 + one)} for one in range(5)]
        account.aws().call("logs", "CreateLogGroup", {"logGroupName": GROUP})
        put(account, "jobs/one/run/metrics.jsonl", "".join(json.dumps(record) + "\n" for record in records))
        log(account, "one", ["the first line", HOSTILE, "the loss is 0.25"])
        for name in ("a", "b"):
            run_in(folder / "sweep" / name, records)
        run_in(folder / "rehearsed", records, backend="ec2", rehearsed=True)
        write(replace(RECEIPT, folder=folder / "rehearsed"))

        def type_there(command: Sequence[str], output: Path) -> Ended:
            typed.append(" ".join(command[list(command).index("-m") :]))
            code = terminal.type(*command[list(command).index("-m") + 2 :])
            output.write_text(terminal.text)
            return Ended(code)

        client = LaunchersClient("launch.ec2", lambda: ec2.launcher(terminal.runtime))
        world = World([client], runs=folder, cache=Cache(patience_s=60), actions=Actions(start_alone=type_there))  # type: ignore[arg-type]
        with serving(world) as address:
            yield Served(address, world, account, typed)


@contextmanager
def serving(world: World) -> Iterator[str]:
    """Serve the console until the end of the block; yields the address with the token."""
    with listening(0) as listener:
        keys = Keys(listener.getsockname()[1])
        server = uvicorn.Server(config_of(world, keys))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://{HOST}:{keys.port}/?token={keys.token}"
        finally:
            server.should_exit = True
            thread.join()


def put(account: Account, key: str, text: str, minutes_ago: float = 0) -> None:
    stored = s3_backends[account.id]["aws"].put_object(account.bucket, key, text.encode())
    stored.last_modified -= timedelta(minutes=minutes_ago)


def end(account: Account, job: str) -> None:
    """A job that ended a day ago, of which only its folder is left."""
    ended = datetime.now(UTC) - timedelta(days=1)
    times = {"started": ended.timestamp() - 5400, "ended": ended.timestamp()}
    account.put_json(f"jobs/{job}/job.json", {"job": job, "where": {"nodes": 2}, **times})
    outcome = Outcome("failed", 5, "the loss is not finite", 5400.0, 3.69, job, f"{ended:%Y-%m-%dT%H:%M:%SZ}")
    account.put_json(f"jobs/{job}/outcome.json", asdict(outcome))


def log(account: Account, job: str, lines: Sequence[str], node: int = 0) -> None:
    """What one of the job's nodes says."""
    aws, stream, now = account.aws(), f"{job}/node-{node}", int(time.time() * 1000)
    aws.call("logs", "CreateLogStream", {"logGroupName": GROUP, "logStreamName": stream})
    for first in range(0, len(lines), 10_000):
        events = [{"timestamp": now, "message": line} for line in lines[first : first + 10_000]]
        aws.call("logs", "PutLogEvents", {"logGroupName": GROUP, "logStreamName": stream, "logEvents": events})


def run_in(folder: Path, records: Sequence[object], **values: object) -> Run:
    """A run of this machine, with its records."""
    started = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    run = Run(folder.name, folder, {"epochs": 8, "dataset": "digits"}, started=started, seconds=60.0, **values)  # type: ignore[arg-type]
    runs.write(run)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return run
