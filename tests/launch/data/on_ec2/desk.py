"""A user whose images lie in S3, and instances that do what their user data says: the same launch.data, in here."""

from __future__ import annotations

import base64
import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.data.__main__ import main
from launch.data.commands import Runtime
from tests.launch.data.desk import NAME, Desk, one_aws, write_prepared
from tests.launch.ec2.account import Account

SOURCE = f"sources/{NAME}"
SHUT_DOWN = "Client.InstanceInitiatedShutdown: Instance initiated shutdown"


@dataclass
class Ec2Desk(Desk):
    """node: what an instance does, when the user has waited for it; node_output: what instances have printed.

    ran: how many instances have published; node_aws, as_publisher: their calls, and in whose name they are.
    """

    node: Callable[[Ec2Desk, Any], None] = lambda desk, instance: desk.publish_on(instance)
    node_output: list[str] = field(default_factory=list)
    ran: int = 0
    node_aws: Callable[[str | None], Aws] = one_aws
    as_publisher: Callable[[], AbstractContextManager[object]] = nullcontext

    @property
    def uri(self) -> str:
        return f"s3://{self.account.bucket}/{SOURCE}"

    def publish_s3(self, *words: str, by: str = "instance") -> int:
        return self.type("publish", self.uri, "--name", NAME, "--by", by, "--connections", "1", *words)

    @property
    def instances(self) -> list[Any]:
        """moto's, that are not terminated."""
        return self.account.nodes

    @property
    def run(self) -> dict[str, Any]:
        return dict(self.account.s3(f"data-runs/{NAME}/run.json"))

    def _sleep(self, seconds: float) -> None:
        super()._sleep(seconds)
        for instance in self.instances:
            if instance.state == "running":
                self.node(self, instance)

    # ---- what an instance does

    def words_of(self, instance: Any) -> list[str]:
        """The words of its user data after `launch.data publish`."""
        script = script_of(instance)
        (line,) = re.findall(r"^PUBLISH=\((.*)\) *(?:#.*)?$", script, re.MULTILINE)
        return [word if not word.startswith("--connections") else "--connections=1" for word in shlex.split(line)]

    def publish_on(self, instance: Any, code: int = 0, reason: str = "done") -> None:
        """Runs launch.data as the instance would, says how it ended, and turns it off."""
        self.ran += 1
        folder = self.folder.parent / f"disk-of-{instance.id}"
        folder.mkdir(exist_ok=True)
        before = Path.cwd()
        os.chdir(folder)
        try:
            env = {"PATH": "/usr/sbin:/usr/bin"}
            clock = Clock(lambda: 1e9, lambda seconds: None)
            runtime = Runtime(self.node_aws, self.which, env, clock, self.node_output.append, self.confirms)
            with self.as_publisher():
                code = code or main(["publish", *self.words_of(instance)], runtime)
        finally:
            os.chdir(before)
        self.say_end(instance, code, reason)
        self.account.kill(instance.id, SHUT_DOWN)

    def pretend_on(self, instance: Any) -> None:
        """What publish_on() leaves, as far as who follows it can see, in no time."""
        self.ran += 1
        content = {"train": 70, "val": 4, "bytes": 740_000, "classes": 2, "px": 256}
        record = {"name": NAME, "state": "published", "digest": 64 * "0", "content": content}
        self.account.put_json(f"data/{NAME}/published.json", record)
        self.say_end(instance, 0, "done")
        self.account.kill(instance.id, SHUT_DOWN)

    def say_end(self, instance: Any, code: object, reason: str) -> None:
        run = tags_of(instance)["aws-ddp-toolkit:job"]
        record = {"run": run, "code": code, "step": "publish", "reason": reason, "at": 0}
        self.account.put_json(f"data-runs/{NAME}/exit.json", record)

    def billed(self) -> list[str]:
        """What is left in the account and costs money, or is in the way of the next run; not the data set."""
        return [one for one in self.account.left() if not one.startswith("snapshot")]


def tags_of(instance: Any) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in instance.get_tags()}


def script_of(instance: Any) -> str:
    return base64.b64decode(str(instance.user_data)).decode()


@contextmanager
def opened(folder: Path) -> Iterator[Ec2Desk]:
    """A new account that is set up, with a prepared data set in its bucket."""
    with Account.opened() as account:
        account.make_amazon_linux()
        account._at_first = account.resources()
        images = write_prepared(folder / NAME)
        for path in images.rglob("*.*"):
            account.put(account.bucket, f"{SOURCE}/{path.relative_to(images).as_posix()}", path.read_bytes())
        yield Ec2Desk(account, images)
