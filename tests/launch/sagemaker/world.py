"""A launch under test: an account, a clock whose sleeps are when things happen, and what was said."""

import io
import itertools
import json
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from launch.aws.client import Aws
from launch.aws.names import tags
from launch.core.clock import Clock
from launch.rehearse.aws.iam.callers import MOTOS_USER_ID
from launch.rehearse.aws.sagemaker.changes import advance, complete
from launch.rehearse.aws.sagemaker.jobs import TrainingJob
from launch.sagemaker import follow, sdk, start
from launch.sagemaker.__main__ import main
from launch.sagemaker.names import number_of, start_name
from launch.sagemaker.planner import SageMakerPlan
from launch.sagemaker.runtime import Runtime
from launch.sagemaker.training_jobs import describe
from tests.launch.sagemaker.account import SageMakerAccount
from tests.launch.sagemaker.known import NAME, job, request

Event = Callable[[], object]

BEGAN = time.time()  # for all stages: time passes by sleeping only

WEIGHTS: Mapping[str, str] = {"model.pt": "the weights"}


def sending(sent: Callable[..., None]) -> Any:
    """Inside the block, launches through the SDK are sent by `sent`."""
    return mock.patch.object(sdk, "send", sent)


@contextmanager
def checked_once() -> Iterator[None]:
    """Inside the block the SDK checks its configuration once, and not 22 times a job, which takes seconds."""
    import jsonschema

    check, passed = jsonschema.validate, list[tuple[Any, Any]]()

    def check_once(instance: Any, schema: Any, *args: Any, **named: Any) -> None:
        if (instance, schema) not in passed:
            check(instance, schema, *args, **named)
            passed.append((deepcopy(instance), schema))

    with mock.patch.object(jsonschema, "validate", check_once):
        yield


@cache
def one_aws(region: str) -> Aws:
    """One for all commands of all stages: they keep nothing between calls, and clients take as long as ten calls."""
    return Aws(region)


@cache
def _request(settings: tuple[tuple[str, Any], ...]) -> str:
    return json.dumps(request(**dict(settings)))


@dataclass
class Stage:
    """events: what happens at each sleep, one after the other; after the last one nothing happens any more.

    settings: of the job, by the names that the command line has; results: the folder that they are fetched into.
    """

    account: SageMakerAccount
    results: Path
    events: Iterator[Event] = field(default_factory=lambda: iter(()))
    said: list[str] = field(default_factory=list)
    may_detach: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    slept_s: float = 0.0
    sleeps: int = 0

    @classmethod
    @contextmanager
    def opened(cls, **settings: Any) -> Iterator["Stage"]:
        """A stage with a new account, until the end of the block."""
        with ExitStack() as stack:
            stack.enter_context(checked_once())
            account = stack.enter_context(SageMakerAccount.opened())
            # AWS's time is this one's, too, for much may lie between its beginning and a test; a millisecond a look.
            looks = itertools.count(1)
            account.rules.now = lambda: datetime.fromtimestamp(BEGAN + next(looks) / 1000, UTC)
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            # The others fill seven answers of Service Quotas.
            for name in [name for name in account.quota if not re.match(r"ml\.(g5|p3)\.|[LMN]", name)]:
                del account.quota[name]
            yield cls(account, Path(folder), settings=settings)

    @property
    def aws(self) -> Aws:
        return one_aws(self.account.region)

    @property
    def text(self) -> str:
        """What was said."""
        return "\n".join(self.said)

    def clock(self) -> Clock:
        return Clock(now=lambda: BEGAN + self.slept_s, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.sleeps += 1
        assert self.sleeps < 500, "nothing ever happens:\n" + "\n".join(self.said[-20:])
        next(self.events, lambda: None)()

    def runtime(self, region: str | None = None) -> Runtime:
        aws = one_aws(region or self.account.region)
        return Runtime(aws, self.clock(), self.said.append, lambda: self.may_detach, self.results)

    def plan(self) -> SageMakerPlan:
        """Looks everything up and plans, as the command line does."""
        return start.prepare(job(**self.settings), self.runtime())

    def launch(self) -> int:
        """python -m launch.sagemaker ..."""
        made = self.plan()
        if made.problems:
            raise made.problems[0]
        self.outcome = start.launch(made, self.runtime())
        return 0 if self.outcome is None else self.outcome.exit_code

    def attach(self, name: str = NAME) -> int:
        """python -m launch.sagemaker attach JOB"""
        return follow.follow(describe(self.aws, name), self.runtime(), fetch=True).exit_code

    def type(self, *words: str) -> int:
        """A command line after `python -m launch.sagemaker`; its exit code.  What it says goes to stdout, too."""
        return main(list(words), self.runtime_of)

    def runtime_of(self, region: str | None) -> Runtime:
        """The runtime of a command line."""

        def say(text: str) -> None:
            self.said.append(text)
            print(text)

        return Runtime(one_aws(region or self.account.region), self.clock(), say, lambda: False, self.results,
                       approve=lambda what: None)  # fmt: skip

    def started(self, name: str = NAME, to: str = "Training", **settings: Any) -> TrainingJob:
        """A job that was started and left alone, as launch() does it, but quicker."""
        asked = json.loads(_request(tuple(settings.items())).replace(NAME, name))
        starts = [number_of(job, name) or 0 for job in self.account.jobs]
        asked["TrainingJobName"] = start_name(name, max(starts, default=0) + 1)
        asked["Tags"] = tags(name, self.account.bucket, self.clock().utc(), owner=MOTOS_USER_ID)
        self.aws.call("sagemaker", "CreateTrainingJob", asked)
        made = self.account.jobs[asked["TrainingJobName"]]
        advance(made, to)
        return made

    def started_by_others(self, name: str = "theirs") -> TrainingJob:
        """A job that somebody started without the toolkit."""
        made = self.started(name)
        keys = [tag["Key"] for tag in made.tags]
        self.aws.call("sagemaker", "DeleteTags", {"ResourceArn": made.arn, "TagKeys": keys})
        self.account.requests.clear()
        return made

    def job(self, name: str = NAME) -> TrainingJob:
        return self.account.jobs[name]

    def log(self, *lines: str, host: str = "algo-1", name: str = NAME) -> Event:
        """An event: a container says something."""
        return lambda: self.account.log(name, host, lines)

    def complete(self, name: str = NAME, seconds: float = 3600, billable: float | None = None) -> Event:
        """An event: the training ends well, and leaves its result."""

        def end() -> None:
            self.leave_result(name)
            complete(self.job(name), seconds, billable)

        return end

    def leave_result(self, name: str = NAME, files: Mapping[str, str] = WEIGHTS) -> None:
        """Uploads a model.tar.gz."""
        self.account.write(self.job(name).model.removeprefix(f"s3://{self.account.bucket}/"), tar_gz(files))


def tar_gz(files: Mapping[str, str]) -> bytes:
    """An archive of these files, by name."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return whole.getvalue()


def idle(looks: int) -> list[Event]:
    """So many sleeps in which nothing happens."""
    return list(itertools.repeat(lambda: None, looks))


def interrupt() -> None:
    """An event: Ctrl-C."""
    raise KeyboardInterrupt
