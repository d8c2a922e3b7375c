"""What cases have in hand: commands as a user types them, AWS's own view of what they did, and the end of all of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from launch.aws.client import Aws
from launch.aws.instances import inventory
from launch.aws.names import DATA_TAG, TOOLKIT, bucket_of
from launch.core.errors import AwsError
from launch.core.manifest import RECORD
from launch.data.lookup import find_snapshots
from launch.data.on_ec2.facts import running
from launch.infra.lookup import look_up
from tests.conftest import ROOT
from tests.live.record import Claim, Record, Tried, read_answers
from tests.live.spy import ANSWERS

PREFIX = "acceptance-"
SOURCES = "sources/"  # what the instance's role may read
LOOK_EVERY_S = 1.0
CREDENTIALS = ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
Found = TypeVar("Found")


class Place(Protocol):
    """Where the suite runs: AWS, or the embedded one.

    name: the region, or "embedded"; env: of commands; short_h: a time limit that nodes reach soon; epochs: of a
    training that is still running when something happens to it; patience_s: for a job to come to its end.
    """

    region: str
    env: Mapping[str, str]
    short_h: float
    epochs: int
    patience_s: float

    @property
    def name(self) -> str: ...

    def kill_worker(self, aws: Aws, instance: str) -> str:
        """Kills one worker of the training on a node; returns why that did not succeed, if so."""
        ...

    def without_rights(self, aws: Aws, name: str, *, bounded: bool = False) -> Any:
        """A context with the environment of a user who may do nothing; bounded: all, within a boundary of reading."""
        ...


@dataclass
class Command:
    """A command that runs, or has ended."""

    words: tuple[str, ...]
    process: "subprocess.Popen[bytes]"
    log: Path
    began: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """As the kernel does, with nothing left of it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Broken(Exception):
    """A case cannot go on: a claim on which the rest depends did not hold."""


@dataclass
class Suite:
    """stamp: in the name of every job; made_stack: whether this run set the account up, and so takes it down.

    made: the ids in its template of what outlives a stack, of that which was not there before.
    """

    place: Place
    folder: Path
    stamp: str
    record: Record
    made_stack: bool = False
    made: frozenset[str] = frozenset()
    running: list[Command] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.aws = Aws(self.place.region)

    @property
    def account(self) -> str:
        return str(self.aws.call("sts", "GetCallerIdentity")["Account"])

    @property
    def bucket(self) -> str:
        return bucket_of(self.account, self.place.region)

    @property
    def tried(self) -> Tried:
        return self.record.tried[-1]

    # ---- claims

    def claim(self, text: str, held: object, seen: str = "") -> bool:
        self.tried.claims.append(Claim(text, bool(held), seen))
        print(f"    {'held  ' if held else 'FAILED'}  {text}" + (f" ({seen})" if seen and not held else ""), flush=True)
        return bool(held)

    def need(self, text: str, held: object, seen: str = "") -> None:
        """A claim on which the rest of the case depends."""
        if not self.claim(text, held, seen):
            raise Broken(text)

    # ---- commands

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> Command:
        """Starts `python -m WORDS` in a process group of its own; its output goes to a file."""
        self.number += 1
        log = self.folder / f"{self.number:02}-{words[0].replace('.', '-')}.log"
        answers = self.folder / f"{self.tried.case}.answers"
        full = {**self._env(env or {}), ANSWERS: str(answers), "PYTHONPATH": str(ROOT)}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.live.spy", *words], cwd=self.folder, env=full, stdout=out,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, process_group=0,
            )  # fmt: skip
        command = Command(words, process, log)
        self.running.append(command)
        return command

    def _env(self, keys: Mapping[str, str]) -> dict[str, str]:
        """The place's environment; with other credentials, without its own."""
        own = {name: value for name, value in self.place.env.items() if not (keys and name in CREDENTIALS)}
        return {**own, **keys}

    def finish(self, command: Command, limit_s: float | None = None) -> int:
        """The exit code of a command; it is stopped, and -1, where it takes too long."""
        try:
            code = command.process.wait(limit_s or self.place.patience_s)
        except subprocess.TimeoutExpired:
            command.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                command.process.wait(120)
            command.kill()
            code = -1
        self._note(command, code)
        return code

    def _note(self, command: Command, code: int) -> None:
        self.running.remove(command)
        self.tried.commands.append((f"python -m {' '.join(command.words)}", code, time.monotonic() - command.began))

    def kill(self, command: Command) -> None:
        """SIGKILL for the launcher."""
        command.kill()
        self._note(command, -signal.SIGKILL)

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Exit code and output of a command."""
        command = self.start(*words, env=env)
        return self.finish(command), command.text

    # ---- jobs

    def job(self, name: str) -> str:
        return f"{PREFIX}{self.stamp}-{name}"

    def train(self, name: str, *more: str, epochs: int = 2, hours: float = 0.5) -> tuple[str, ...]:
        """The words that start a job of two small nodes, with a limit of time and one of money."""
        ours = ("--dataset", "digits", "--model", "cnn", "--batch-size", "32", "--epochs", str(epochs))
        return (*self._nodes(name, hours), *ours, *more)

    def script(self, name: str, script: str, *arguments: str) -> tuple[str, ...]:
        """The same for a script of the user's own, whose folder is sent."""
        folder = str(Path(script).parent)
        return (*self._nodes(name, 0.5), "--script", script, "--source-dir", folder, "--", *arguments)

    def _nodes(self, name: str, hours: float) -> tuple[str, ...]:
        return (
            "launch.ec2", "--job-name", self.job(name), "--region", self.place.region, "--nodes", "2",
            "--instance-type", "c7i.large", "--allow-cpu", "--max-hours", str(hours), "--max-usd", "0.3",
        )  # fmt: skip

    def doctor_words(self, *more: str) -> tuple[str, ...]:
        """launch.doctor on such a job."""
        return ("launch.doctor", *self.train("two")[1:], *more)

    def has_result(self, name: str, file: str) -> bool:
        """Whether the job's folder has that file of the run."""
        query = {"Bucket": self.bucket, "Prefix": f"jobs/{self.job(name)}/run/{file}", "MaxKeys": 1}
        return bool(self.aws.call("s3", "ListObjectsV2", query).get("KeyCount"))

    def verb(self, verb: str, name: str, *more: str) -> tuple[str, ...]:
        return ("launch.ec2", verb, self.job(name), *more, "--region", self.place.region)

    def living(self, name: str) -> list[str]:
        """The ids of a job's nodes, by AWS."""
        return [node.id for node in inventory.nodes_of(self.aws, self.job(name)).nodes if node.lives]

    def nodes_of(self, name: str) -> list[str]:
        """The ids of the nodes that a job had last, by its cluster.json."""
        cluster = self._json(f"jobs/{self.job(name)}/cluster.json")
        return [row["instance"] for row in cluster.get("nodes", ())]

    def left(self) -> list[str]:
        """Everything of this run that AWS still has."""
        found = inventory.find(self.aws)
        mine = [node.id for node in found.living if node.job.startswith(self.job(""))]
        resources = [one.id for one in found.resources if one.job.startswith(self.job(""))]
        publishing = [f"instance for {name}" for name in self.publishing()]
        return mine + resources + [f"data set {name}" for name in self.data_sets()] + publishing + self.sources()

    def snapshots(self) -> list[str]:
        """The ids of snapshots with this run's data sets."""
        return [one.id for one in find_snapshots(self.aws) if one.tags[DATA_TAG].startswith(self.job(""))]

    def verified(self, name: str) -> str:
        """How much of a data set's snapshot was read back, by its record."""
        return str(self._json(f"data/{name}/{RECORD}").get("verified"))

    def data_sets(self) -> list[str]:
        """The names of this run's data sets, of which AWS has a snapshot or objects."""
        names = {one.tags[DATA_TAG] for one in find_snapshots(self.aws)}
        folder = {"Bucket": self.bucket, "Prefix": "data/", "Delimiter": "/"}
        with suppress(AwsError):  # the bucket went with the stack
            names |= {
                row["Prefix"].split("/")[1] for row in self.aws.pages("s3", "ListObjectsV2", "CommonPrefixes", folder)
            }
        return sorted(name for name in names if name.startswith(self.job("")))

    def put_source(self, name: str, content: bytes) -> str:
        """Puts something where an instance may read it; returns its s3:// address."""
        key = SOURCES + name
        self.aws.call("s3", "PutObject", {"Bucket": self.bucket, "Key": key, "Body": content})
        return f"s3://{self.bucket}/{key}"

    def sources(self) -> list[str]:
        """The keys of what this run has put there."""
        query = {"Bucket": self.bucket, "Prefix": SOURCES + self.job("")}
        try:
            return [row["Key"] for row in self.aws.pages("s3", "ListObjectsV2", "Contents", query)]
        except AwsError:  # the bucket went with the stack
            return []

    def publishing(self) -> list[str]:
        """The names of this run's data sets that an instance publishes."""
        return sorted(name for name in running(self.aws) if name.startswith(self.job("")))

    def set_up(self) -> list[str]:
        """What this run has set up in the account and AWS still has."""
        facts = look_up(self.aws)
        if facts.problems:
            raise AwsError(str(facts.problems[0]))
        stack = [f"stack {TOOLKIT}"] if self.made_stack and facts.stack is not None else []
        return stack + sorted(self.made & set(facts.adopted))

    def outcome(self, name: str) -> dict[str, Any]:
        """outcome.json of a job; empty if there is none."""
        return self._json(f"jobs/{self.job(name)}/outcome.json")

    def spec(self, name: str) -> dict[str, Any]:
        """job.json of a job; empty if there is none."""
        return self._json(f"jobs/{self.job(name)}/job.json")

    def restarts(self, name: str) -> int:
        """How often the training was started again on a node, by the nodes' exit records."""
        records = [self._json(f"jobs/{self.job(name)}/exits/{node}.json") for node in self.nodes_of(name)]
        return max((int(record.get("restarts", 0)) for record in records), default=0)

    def _json(self, key: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(
                self.aws.call("s3", "GetObject", {"Bucket": self.bucket, "Key": key})["Body"].read()
            )
        except AwsError:
            return {}
        return content

    def until(self, what: str, look: Callable[[], Found], command: Command | None = None) -> Found:
        """What look() finds, once that is true.  Raises Broken after the place's retry, or if the command ends."""
        give_up = time.monotonic() + self.place.patience_s
        while not (found := look()):
            over = command is not None and command.process.poll() is not None
            if over or time.monotonic() > give_up:
                ended = f"the command ended: {command.text[-300:]}" if over and command else "too late"
                self.need(what, False, ended)
            time.sleep(LOOK_EVERY_S)
        return found

    def until_it_trains(self, command: Command) -> None:
        self.until("the training makes epochs", lambda: "  loss " in command.text, command)

    # ---- the end

    def clean(self) -> None:
        """Stops what runs and removes what this run made; what is left is in the record."""
        for command in list(self.running):
            self.kill(command)
        jobs = {tag for tag in self._jobs() if tag.startswith(self.job(""))}
        for job in sorted(jobs):
            self.run("launch.ec2", "stop", job, "--region", self.place.region)
        for name in self.publishing():
            self.run("launch.data", "stop", name, "--region", self.place.region)
        for key in self.sources():
            self.aws.call("s3", "DeleteObject", {"Bucket": self.bucket, "Key": key})
        for name in self.data_sets():
            self.run("launch.data", "delete", name, "--yes", "--region", self.place.region)
        self.record.left = self.left()

    def _jobs(self) -> Iterator[str]:
        found = inventory.find(self.aws)
        yield from (node.job for node in found.living)
        yield from (resource.job for resource in found.resources)

    @contextmanager
    def trying(self, case: str) -> Iterator[None]:
        """A case in the record, with AWS's answers; Broken ends only the case."""
        self.record.tried.append(Tried(case))
        began = time.monotonic()
        print(f"  {case}", flush=True)
        try:
            yield
        except Broken:
            pass
        except AwsError as error:
            self.claim("AWS answers", False, str(error))
        finally:
            for command in list(self.running):
                self.kill(command)
            self.tried.seconds = time.monotonic() - began
            self.tried.answers = read_answers(self.folder / f"{case}.answers")
            self.record.write(self.folder)
