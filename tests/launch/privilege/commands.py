"""Every documented command, run once by a user with the launcher's policy."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from unittest import mock

from moto.ec2.models import EC2Backend

from launch.aws.client import Aws
from launch.aws.names import ALLOWED_TAG, tags
from launch.ec2.backend import Runtime
from launch.rehearse.aws.batch.container_operations import make_fargate_queue
from launch.rehearse.aws.batch.moto_patches import make_queue
from launch.rehearse.aws.batch.scheduler import step
from launch.rehearse.aws.iam.callers import MOTOS_USER_ID
from launch.rehearse.aws.sagemaker.changes import complete
from tests.conftest import ROOT
from tests.launch.ec2.account import SPOT_INTERRUPTION, Account
from tests.launch.ec2.terminal import Terminal
from tests.launch.ec2.world import idle
from tests.launch.privilege.documented import Words
from tests.launch.privilege.enforced import Watch, enforced
from tests.launch.sagemaker import world
from tests.launch.sagemaker.known import NAME
from tests.launch.sagemaker.world import Stage

Event = Callable[[], None]
ENDED_ITSELF = "Client.InstanceInitiatedShutdown: Instance initiated shutdown"

# A script of the user's own.
FOLDER = str(ROOT / "infra/examples/gpt")
SCRIPT = f"{FOLDER}/train.py"


@dataclass
class Shell(Terminal):
    """typed: every command line."""

    typed: list[Words] = field(default_factory=list)
    make_aws: Callable[[str | None], Aws] = Aws

    @property
    def runtime(self) -> Runtime:
        return Runtime(self.make_aws, self.clock, approve=lambda what: None, results=self.account.results)

    def type(self, *words: str, events: tuple[Event, ...] = ()) -> int:
        """events: what happens at each of the command's sleeps, in turn."""
        self.typed.append(words)
        self.events = iter(events)
        return super().type(*words)

    def nodes_of(self, job: str) -> list[dict[str, Any]]:
        """The rows of cluster.json."""
        rows: list[dict[str, Any]] = self.account.s3(f"jobs/{job}/cluster.json")["nodes"]
        return rows

    def end(self, job: str, *, stays: bool = False) -> Event:
        """An event: every node leaves its exit record, and turns itself off or stays for a next job."""

        def end() -> None:
            for row in self.nodes_of(job):
                record = {"instance": row["instance"], "rank": row["rank"], "generation": 1, "code": 0,
                          "step": "train", "reason": "done", "restarts": 0, "at": 0}  # fmt: skip
                warm = {"warm_until": self.clock.now() + 1800} if stays else {}
                self.account.put_json(f"jobs/{job}/exits/{row['instance']}.json", record | warm)
                if not stays:
                    self.account.kill(row["instance"], ENDED_ITSELF)

        return end

    def lose(self, job: str, reason: str = SPOT_INTERRUPTION) -> Event:
        """An event: the last node ends, by default because AWS takes it back."""
        return lambda: self.account.kill(self.nodes_of(job)[-1]["instance"], reason)


@contextmanager
def on_ec2() -> Iterator[tuple[Shell, Watch]]:
    """A new account, and a user with infra/iam/launcher.json in it."""
    with Account.opened() as account, enforced(account) as watch, two_regions():
        yield Shell(account, make_aws=cache(Aws)), watch  # one for all commands: clients take as long as ten calls


@contextmanager
def on_sagemaker(**settings: Any) -> Iterator[tuple[Stage, Watch]]:
    """The same for SageMaker."""
    with (
        Stage.opened(**settings) as stage,
        enforced(stage.account) as watch,
        two_regions(),
        mock.patch.object(world, "one_aws", cache(Aws)),  # the tests' others have the keys of somebody who may do all
    ):
        yield stage, watch


@contextmanager
def two_regions() -> Iterator[None]:
    """All the account has inside the block: moto takes half a minute for all, and some are of other partitions."""
    all_of_them = EC2Backend.describe_regions

    def describe(backend: EC2Backend, *asked: Any, **more: Any) -> Any:
        found = all_of_them(backend, *asked, **more)
        return [region for region in found if region.name in ("eu-west-1", "us-east-1")]

    with mock.patch.object(EC2Backend, "describe_regions", describe):
        yield


def every_command_on_ec2(shell: Shell) -> list[Words]:
    """All documented uses, with each kind of data, groups and machines; fails where a command does.

    Returns the command lines; documented.py knows whether these are all.
    """
    account = shell.account
    assert shell.type("--nodes", "2", "--dry-run") == 0
    assert shell.type("--nodes", "2", "--region", "us-east-1,eu-west-1", "--dry-run") == 0
    assert shell.type("--nodes", "2", "--dataset", "imagefolder", "--data", "imagenet", "--dry-run") == 0
    # A job to its end, with a node lost on the way.
    events = (*idle(2), shell.lose("one"), *idle(8), shell.end("one"))
    limits = ("--max-usd", "400", "--max-hours", "12", "--wait-for-capacity", "1")
    training = ("--dataset", "imagenet", "--model", "resnet18", "--epochs", "3", "--batch-size", "64")
    assert shell.type("--nodes", "2", "--job-name", "one", *limits, *training, events=events) == 0
    # A detached job, inspected from another terminal, resumed after a loss, and followed.
    spot = ("--nodes", "2", "--spot", "--job-name", "two", "--detach", "--instance-type", "g5.2xlarge,g6.2xlarge")
    assert shell.type(*spot) == 0
    logs = ("logs", "two", "--node", "1", "--since", "30")
    connections = (("ssh", "two", "--node", "1", "--print"), ("forward", "two", "8888", "--print"))
    statuses = (("status",), ("status", "--ended"), ("status", "two", "--region", "us-east-1"))
    for words in (*statuses, logs, ("fetch", "two", "--all"), *connections, ("leaks",)):
        assert shell.type(*words) == 0
    account.put_json("jobs/two/run/events.out.tfevents.1", "an event")
    with mock.patch("launch.core.shell.run_beside", return_value=0):
        assert shell.type("tensorboard", "two") == 0
    shell.lose("two")()
    assert shell.type(*spot) == 0
    assert shell.type("attach", "two", events=(*idle(2), shell.end("two"))) == 0
    assert shell.type("logs", "two", "-f") == 0
    # One volume for all nodes; instances of a reservation.
    shared = ("--nodes", "2", "--data-volume", "multi-attach", "--job-name", "three")
    assert shell.type(*shared, events=(*idle(2), shell.end("three"))) == 0
    reserved = account.reserve("us-east-1a", "g5.2xlarge", 2)
    account.ec2.create_tags([reserved], {ALLOWED_TAG: "yes"})
    assert shell.type("--capacity-reservation", reserved, "--job-name", "four", "--detach") == 0
    assert shell.type("stop", "four") == 0
    tracked = ("--wandb", "project", "--secret", "WANDB_API_KEY=ssm:/ddp-toolkit/wandb")
    assert shell.type("--job-name", "five", "--detach", "--security-group", _group(account), *tracked) == 0
    script = ("--script", SCRIPT, "--source-dir", FOLDER, "--", "--lr", "1")
    assert shell.type("--job-name", "mine", "--detach", *script) == 0
    assert shell.type("stop", "--all", "--yes") == 0
    # A job on the nodes that another one has left warm.
    assert shell.type("--keep-warm", "30", "--job-name", "warm", events=(*idle(2), shell.end("warm", stays=True))) == 0
    assert shell.type("--job-name", "next", events=(*idle(2), shell.end("next"))) == 0
    # One whose node ends without ever having reported.
    assert shell.type("--job-name", "six", events=(*idle(2), shell.lose("six", ENDED_ITSELF))) == 6
    in_queue_of_ec2(shell)
    leave_leaks(account)
    assert shell.type("leaks", "--delete", "--yes", "--all-regions") == 0
    assert account.left() == []
    return shell.typed


def every_command_on_sagemaker(stage: Stage) -> list[Words]:
    """The same for SageMaker."""
    typed = list[Words]()

    def type_in(*words: str) -> None:
        typed.append(words)
        assert stage.type(*words) == 0, stage.text

    stage.account.make_stack()
    stage.account.log("other", "algo-1", ["so that there is a log group"])
    machines = ("--instance-type", "ml.g5.12xlarge", "--epochs", "3", "--max-hours", "2")
    own = stage.account.write("data/own/train/0/0.png").removesuffix("/train/0/0.png")
    type_in(*machines, "--dataset", "imagefolder", "--data", own, "--dry-run")
    stage.events = iter([stage.log("hello"), stage.complete()])
    tracked = ("--wandb", "project", "--secret", "WANDB_API_KEY=secretsmanager:ddp-toolkit/wandb")
    type_in(*machines, *tracked, "--job-name", NAME, "--max-usd", "100")
    for words in (("status",), ("status", NAME), ("attach", NAME), ("logs", NAME, "-f"), ("fetch", NAME),
                  ("logs", NAME, "--node", "1", "--since", "30")):  # fmt: skip
        type_in(*words)
    looks = ("--remote-debug", "--infra-check", "--profiler", "--through", "boto3")
    type_in(*machines, *looks, "--job-name", "looked-at", "--detach")
    type_in("ssh", "looked-at", "--node", "1", "--print")
    type_in("stop", "looked-at")
    type_in(*machines, "--spot", "--max-wait-hours", "4", "--job-name", "spare", "--detach")
    type_in("stop", "spare")
    type_in(*machines, "--warm-pool-s", "3600", "--job-name", "warm", "--detach")
    complete(stage.account.jobs["warm"])
    type_in("leaks", "--delete", "--yes", "--all-regions")
    in_queue(stage, type_in)
    stage.started("runs")
    ours = ("--instance-type", "ml.g5.12xlarge", "--max-hours", "2", "--script", SCRIPT, "--source-dir", FOLDER)
    type_in(*ours, "--job-name", "mine", "--detach", "--", "--lr", "1")
    type_in("stop", "--all", "--yes")
    assert stage.account.left() == []
    return typed


def in_queue(stage: Stage, type_in: Callable[..., None]) -> None:
    """One runs and one waits; both are stopped."""
    make_queue(stage.account.rules, "aws-ddp-toolkit-demo", 1, stage.account.region, stage.account.id)
    for name, more in (("queued", ()), ("urgent", ("--priority", "10", "--share", "team"))):
        type_in("--instance-type", "ml.g5.2xlarge", "--queue", "demo", "--job-name", name, "--yes", *more)
    type_in("status", "urgent")
    type_in("leaks")
    type_in("stop", "urgent")
    type_in("stop", "queued")


def in_queue_of_ec2(shell: Shell) -> None:
    """The same on EC2."""
    account = shell.account
    make_fargate_queue(account.rules, "demo", account.region, account.id, {"graphics": 16})
    for name in ("queued", "urgent"):
        assert shell.type("--queue", "demo", "--nodes", "2", "--max-usd", "400", "--job-name", name) == 0

    def detach() -> None:
        """Launchers leave at SIGTERM."""
        for job in account.rules.batch.jobs.values():
            for attempt in job.attempts:
                attempt.task.exit_code = 75 if attempt.task.signals else None
        step(account.rules)

    for words in (("status", "urgent"), ("leaks",), ("stop", "urgent"), ("stop", "queued")):
        assert shell.type(*words, events=(detach,)) == 0


def _group(account: Account) -> str:
    """The default VPC's own, which somebody has given to launchers."""
    group = account.ec2.get_default_security_group()
    group.add_tags({ALLOWED_TAG: "yes"})
    return str(group.id)


def leave_leaks(account: Account) -> None:
    """Leaves a disk and a network interface of a job of yesterday."""
    yesterday = datetime.now(UTC) - timedelta(days=1)
    ours = tags("old", account.bucket, yesterday, yesterday, MOTOS_USER_ID)
    named = {tag["Key"]: tag["Value"] for tag in ours}
    subnet = account.ec2.get_subnet(account.subnets["us-east-1a"])
    account.ec2.create_volume(size=1, zone_name="us-east-1a", volume_type="gp3").add_tags(named)
    account.ec2.create_network_interface(subnet, "10.0.0.77", tags=named).add_tags(named)
