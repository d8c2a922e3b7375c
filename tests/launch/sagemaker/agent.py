"""SageMaker itself, on this machine: runs the training jobs of moto's account with AWS's own toolkit, on the CPU.

    with playing(folder, ranks=2) as agent:
        boto3.client("sagemaker", endpoint_url=agent.url).create_training_job(...)
        told = agent.wait("NAME")               # what DescribeTrainingJob says at the end

It finds new jobs by itself, lays out /opt/ml as SageMaker does, and keeps the job's state, logs, checkpoints, metrics
and results where AWS keeps them.  StopTrainingJob, time limits and interrupt() do what they do there, only sooner.
"""

from __future__ import annotations

import copy
import io
import logging
import os
import posixpath
import re
import tarfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.exceptions import MissingBucket
from werkzeug.serving import make_server

from tests.launch.sagemaker.account import SageMakerAccount
from tests.launch.sagemaker.container import Container, Instance, network, why_no_network
from tests.launch.sagemaker.mended import (
    TrainingJob,
    advance,
    complete,
    fail,
    interrupt,
    measured,
    stopped,
    stopping,
)

ML = Path("/opt/ml")  # what a container calls its base
LOOK_S, SYNC_S, GRACE_S = 0.05, 0.5, 5.0  # AWS: seconds, a minute or so, 120 s
LONGEST_REASON = 1024


class Agent:
    """Runs whatever job is InProgress in `account`, each in a thread of its own.

    url: of AWS, for this machine; ranks: how many GPUs every instance seems to have.
    """

    def __init__(
        self, account: SageMakerAccount, url: str, folder: Path, ranks: int = 2, grace_s: float = GRACE_S
    ) -> None:
        self.account, self.url, self.folder, self.ranks, self.grace_s = account, url, folder, ranks, grace_s
        self.closing = threading.Event()
        self.errors: list[str] = []  # of the agent, not of jobs
        self._runs: dict[str, _Run] = {}
        self._watcher = threading.Thread(target=self._watch, name="sagemaker")

    def start(self) -> None:
        """Looks for jobs from now on."""
        self._watcher.start()

    def close(self) -> None:
        """Ends everything that runs.  Raises AssertionError if the agent itself had failed."""
        self.closing.set()
        self._watcher.join()
        for run in self._runs.values():
            run.join()
        assert not self.errors, "\n".join(self.errors)

    def step(self) -> None:
        """Takes on the jobs that are new."""
        for name, job in list(self.account.jobs.items()):
            if name not in self._runs and not job.has_ended:
                self._runs[name] = _Run(self, job, self.folder / str(len(self._runs) + 1))
                self._runs[name].start()

    def wait(self, name: str, timeout_s: float = 120) -> dict[str, Any]:
        """What DescribeTrainingJob says of a job when it has ended."""
        end = time.monotonic() + timeout_s
        while name not in self.account.jobs or not self.account.jobs[name].has_ended:
            if time.monotonic() > end:
                raise TimeoutError(f"{name} has not ended after {timeout_s:g} s:\n{self.log(name)}")
            time.sleep(LOOK_S)
        with self.account.rules.lock:
            return copy.deepcopy(self.account.jobs[name].described)

    def interrupt(self, name: str) -> None:
        """Takes a spot job's machines away, at once; it starts again by itself.  Returns when it is Interrupted."""
        self._runs[name].interrupt()

    def log(self, name: str) -> str:
        """All lines of a job."""
        return "\n".join(line for lines in self.account.logged(name).values() for line in lines)

    def _watch(self) -> None:
        while not self.closing.wait(LOOK_S):
            self.step()


@contextmanager
def playing(
    folder: Path, ranks: int = 2, account: SageMakerAccount | None = None, grace_s: float = GRACE_S
) -> Iterator[Agent]:
    """An AWS at agent.url that trains.  account: an open one to do it in, or else a new one: agent.account."""
    with ExitStack() as stack:
        account = account or stack.enter_context(SageMakerAccount.opened())
        account.slow.stopping = None  # a job has stopped when its container has
        agent = Agent(account, stack.enter_context(serving()), folder, ranks, grace_s)
        agent.start()
        stack.callback(agent.close)
        yield agent


@contextmanager
def serving() -> Iterator[str]:
    """moto of this process at a free port of this machine; gives the URL."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = DomainDispatcherApplication(create_backend_app)
    # moto's own ThreadedMotoServer takes half a second to stop, and leaves its socket open.
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# ---- one job


class _Run(threading.Thread):
    """The life of one job."""

    def __init__(self, agent: Agent, job: TrainingJob, folder: Path) -> None:
        super().__init__(name=f"sagemaker {job.name}")
        self.agent, self.job, self.folder = agent, job, folder
        self.account, self.asked = agent.account, job.asked
        names = [f"algo-{number}" for number in range(1, job.count + 1)]
        self.hosts = names if job.count > 1 else ["localhost"]
        self.metrics = [
            (row["Name"], re.compile(row["Regex"]))
            for row in self.asked["AlgorithmSpecification"].get("MetricDefinitions", [])
        ]
        self.checkpoints = Checkpoints(self.account, self.asked.get("CheckpointConfig"))
        self.bases: list[Path] = []
        self._told_to_interrupt, self._interrupted = threading.Event(), threading.Event()

    def run(self) -> None:
        try:
            while not self._attempt():
                pass
        except MissingBucket as error:
            fail(self.job, f"ClientError: {error.message}")
        except Exception as error:
            self.agent.errors.append(traceback.format_exc())
            if not self.job.has_ended:
                fail(self.job, f"InternalServerError: {error}")

    def interrupt(self) -> None:
        """Takes the machines away, and returns when that is known."""
        self._interrupted.clear()
        self._told_to_interrupt.set()
        if not self._interrupted.wait(30):
            raise TimeoutError(f"{self.job.name} was not interrupted: it is {self.job.secondary}")

    def _attempt(self) -> bool:
        """One run on one set of machines; whether it was the last."""
        if not self._get_machines():
            return True
        self.bases = [self.folder / str(self._number) / host for host in self.hosts]
        for index, base in enumerate(self.bases):
            self._fill(base, index)
        if not self._advance("Training"):
            return self._end_stop()
        with ExitStack() as stack:
            containers = self._start(stack)
            outcome = self._follow(containers)
            culprit = next((container for container in containers if container.exit_code), None)
            _end(containers, 0 if outcome in ("interrupted", "closing") else self.agent.grace_s)
            reason = failure_reason(culprit.failure, culprit.exit_code or 0) if culprit else ""
        return self._finish(outcome, reason if outcome == "exited" else "")

    @property
    def _number(self) -> int:
        """Of this attempt."""
        return self.job.statuses.count("Interrupted") + 1

    def _advance(self, to: str) -> bool:
        """Moves the job on, unless it ends or stops."""
        with self.job.rules.lock:
            if self.job.status == "InProgress":
                advance(self.job, to)
            return self.job.status == "InProgress" and self.job.secondary == to

    def _get_machines(self) -> bool:
        """Waits until there are some; whether there are."""
        while not self._advance("Downloading"):
            if self.job.status == "InProgress" and (limit := self._limit()):
                self._begin_stop()
                stopped(self.job, limit)
            if self.job.status != "InProgress" or self.agent.closing.wait(LOOK_S):
                self._end_stop()
                return False
        return True

    def _begin_stop(self) -> None:
        with self.job.rules.lock:  # StopTrainingJob may come at any time
            if self.job.status == "InProgress":
                stopping(self.job)

    def _end_stop(self) -> bool:
        if self.job.status == "Stopping":
            stopped(self.job)
        return True

    def _limit(self) -> str:
        """The status of a limit that is over."""
        now, told, limits = self.job.rules.now(), self.job.described, self.job.described["StoppingCondition"]
        for status, since, key in (
            ("MaxWaitTimeExceeded", told["CreationTime"], "MaxWaitTimeInSeconds"),
            ("MaxRuntimeExceeded", told.get("TrainingStartTime", now), "MaxRuntimeInSeconds"),
        ):
            if key in limits and (now - since).total_seconds() > limits[key]:
                return status
        return ""

    # ---- before it runs

    def _fill(self, base: Path, index: int) -> None:
        """Data and checkpoints, as the container finds them."""
        for channel in self.asked.get("InputDataConfig", []):
            source = channel["DataSource"].get("S3DataSource")
            if source is None:
                raise NotImplementedError("only S3 can be read here, no file system")
            objects = self.account.under(source["S3Uri"])
            if source.get("S3DataDistributionType") == "ShardedByS3Key":
                objects = objects[index :: len(self.bases)]
            _download(self.account, objects, source["S3Uri"], base / "input/data" / channel["ChannelName"])
        self.checkpoints.restore(base)

    def _start(self, stack: ExitStack) -> list[Container]:
        net, url = None, self.agent.url
        if len(self.hosts) > 1:
            if why := why_no_network():
                raise NotImplementedError(f"several instances: {why}")
            net = stack.enter_context(network(self.folder / str(self._number) / "network", self.hosts))
            url = net.expose(int(url.rpartition(":")[2]))
        return [
            stack.enter_context(Container(self._told(base, host, url), net, self._hears(number)))
            for number, (base, host) in enumerate(zip(self.bases, self.hosts, strict=True), 1)
        ]

    def _told(self, base: Path, host: str, url: str) -> Instance:
        return Instance(
            base=base,
            hyperparameters=self.asked.get("HyperParameters", {}),
            host=host,
            hosts=self.hosts,
            instance_type=self.job.instance_type,
            channels=[channel["ChannelName"] for channel in self.asked.get("InputDataConfig", [])],
            gpus=self.agent.ranks,
            env={**self.asked.get("Environment", {}), "S3_ENDPOINT_URL": url, "AWS_ENDPOINT_URL": url},
            job=self.job.name,
        )

    def _hears(self, number: int) -> Callable[[str], None]:
        """What becomes of the lines of container `number`."""
        name, host = self.job.name, f"algo-{number}"
        stream = f"{name}/{host}-{int(time.time() * 1000)}"

        def hear(line: str) -> None:
            self.account.log(name, host, [line or " "], stream)  # CloudWatch takes no empty ones
            for metric, regex in self.metrics:
                if found := regex.search(line):
                    with suppress(ValueError, IndexError):  # not a number, no group
                        measured(self.job, metric, float(found[1]))

        return hear

    # ---- while it runs

    def _follow(self, containers: Sequence[Container]) -> str:
        """Until something ends it: exited, stopped, interrupted, closing, or the limit that is over."""
        synced_at = time.monotonic()
        while True:
            codes = [container.exit_code for container in containers]
            if any(codes) or None not in codes:  # one that failed ends all
                return "exited"
            if self.job.status == "Stopping":
                return "stopped"
            if self._told_to_interrupt.is_set():
                return "interrupted"
            if limit := self._limit():
                self._begin_stop()
                return limit
            if self.agent.closing.wait(LOOK_S):
                return "closing"
            if time.monotonic() - synced_at > SYNC_S:
                self.checkpoints.keep(self.bases)
                synced_at = time.monotonic()

    # ---- after it ran

    def _finish(self, outcome: str, failure: str) -> bool:
        """Results and state; whether that was the job."""
        if outcome == "closing":
            return True
        if outcome == "interrupted" and self._goes_on():
            return False
        self.checkpoints.keep(self.bases)
        if outcome == "exited" and not failure:
            self._advance("Uploading")
        self._upload()
        with self.job.rules.lock:
            if failure:
                fail(self.job, failure)
            elif self.job.status == "Stopping":
                stopped(self.job, outcome if outcome.endswith("Exceeded") else "Stopped")
            else:
                complete(self.job)
        return True

    def _goes_on(self) -> bool:
        """Whether the job goes on after an interruption: not if it was stopped meanwhile."""
        with self.job.rules.lock:
            goes_on = self.job.status == "InProgress"
            if goes_on:
                interrupt(self.job)
        self._told_to_interrupt.clear()
        self._interrupted.set()
        return goes_on

    def _upload(self) -> None:
        """Model and output go to S3, if there are any."""
        for name, folder in (("model", "model"), ("output", "output/data")):
            if packed := _packed([base / folder for base in self.bases]):
                _put(self.account, f"{posixpath.dirname(self.job.model)}/{name}.tar.gz", packed)


def failure_reason(text: str, code: int) -> str:
    """FailureReason of a container that ended with `code` and left `text` in output/failure."""
    # How AWS adds the code is from memory.
    before, after = "AlgorithmError: ", f", exit code: {code if code > 0 else 128 - code}"
    return before + text[: LONGEST_REASON - len(before) - len(after)] + after


def _end(containers: Sequence[Container], grace_s: float) -> None:
    """Until they are gone; those that still run are told to stop, all at once."""

    def end(container: Container) -> None:
        container.stop(grace_s) if container.exit_code is None else container.wait(0)

    with ThreadPoolExecutor(len(containers)) as pool:
        list(pool.map(end, containers))


# ---- files


class Checkpoints:
    """The folder that SageMaker keeps in S3, under `config`: CheckpointConfig of the request, or None."""

    def __init__(self, account: SageMakerAccount, config: dict[str, str] | None) -> None:
        self.account, self.uri = account, config["S3Uri"].rstrip("/") + "/" if config else ""
        self.folder = Path((config or {}).get("LocalPath", f"{ML}/checkpoints").rstrip("/")).relative_to(ML)
        self._kept: dict[Path, tuple[int, int]] = {}

    def restore(self, base: Path) -> None:
        """What S3 has, as a new container finds it."""
        if self.uri:
            _download(self.account, self.account.under(self.uri), self.uri, base / self.folder)

    def keep(self, bases: Sequence[Path]) -> None:
        """Copies what is new in any container; what was deleted there stays in S3."""
        for folder in [base / self.folder for base in bases if self.uri]:
            for file in _files(folder):
                with suppress(FileNotFoundError):  # it has just been renamed
                    self._keep(file, f"{self.uri}{file.relative_to(folder)}")

    def _keep(self, file: Path, uri: str) -> None:
        state = file.stat()
        mark = (state.st_mtime_ns, state.st_size)
        if self._kept.get(file) != mark:
            _put(self.account, uri, file.read_bytes())
            self._kept[file] = mark


def _files(folder: Path) -> list[Path]:
    """All files in a folder, also while somebody works there."""
    return [Path(where, name) for where, _, names in os.walk(folder) for name in names]


def _download(account: SageMakerAccount, objects: Sequence[str], uri: str, folder: Path) -> None:
    """Objects under `uri`, under the names that they have in a channel's folder."""
    for found in objects:
        rest = found.removeprefix(uri)
        # A URI may end within a name, and then means whatever begins so.
        start = len(uri) if rest.startswith("/") or uri.endswith("/") else len(posixpath.dirname(uri))
        if not found.endswith("/"):
            file = folder / found[start:].lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(account.get(found))
    folder.mkdir(parents=True, exist_ok=True)


def _put(account: SageMakerAccount, uri: str, content: bytes) -> None:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    account.put(key, content, bucket)


def _packed(folders: Sequence[Path]) -> bytes:
    """A tar.gz of what is in the folders, the later over the earlier; nothing if they are empty."""
    files = {path.relative_to(folder): path for folder in folders for path in _files(folder)}
    if not files:
        return b""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, path in sorted(files.items()):
            tar.add(path, name)
    return packed.getvalue()
