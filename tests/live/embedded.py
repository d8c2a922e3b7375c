"""The embedded AWS as a place for the suite: an account that is not set up, with nodes on this machine."""

import logging
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

from moto.core.model_instances import reset_model_data
from moto.iam.models import IAMBackend, iam_backends

from launch.aws.client import Aws
from launch.aws.containers import newest
from launch.core.catalog import find
from launch.image.source import read_source
from launch.rehearse.aws.ec2.account import Ec2Account
from launch.rehearse.aws.ec2.ebs import snapshot_of
from launch.rehearse.aws.ec2.moto_patches import patched
from launch.rehearse.aws.iam.callers import Caller
from launch.rehearse.aws.iam.policies import FULL_ACCESS
from launch.rehearse.aws.server import RequestLog, served
from launch.rehearse.backend import POLL_S
from launch.rehearse.ec2 import PORT, _from_blocks, _machines
from launch.rehearse.environment import entered
from launch.rehearse.nodes.ec2 import processes
from launch.rehearse.nodes.ec2.node import NodeSetup, Volume
from launch.rehearse.nodes.ec2.watcher import Watcher
from launch.rehearse.rehearsal import _folder
from tests.conftest import ROOT
from tests.launch.image import builds as codebuild
from tests.launch.image.machine import put
from tests.launch.infra.account import _Parser
from tests.launch.infra.moto_patches import patched as cloudformation
from tests.live.aws import EVERYTHING, new_user
from tests.live.cases import BASE

REGION = "us-east-1"
BUILD_S = 1.0
# Of AWS's ReadOnlyAccess what a launcher asks for.
READING = {"Statement": [{"Effect": "Allow", "Action": ["*:Describe*", "*:Get*", "*:List*", "*:BatchGet*"],
                          "Resource": "*"}]}  # fmt: skip
SPOT_ROLE = "AWSServiceRoleForEC2Spot"
AWS_REPOSITORY = "pytorch-training"


@dataclass
class EmbeddedPlace:
    """See suite.Place."""

    account: Ec2Account
    env: Mapping[str, str]
    watcher: Watcher
    name: str = "embedded"
    region: str = REGION
    short_h: float = 0.02
    epochs: int = 12
    patience_s: float = 600.0

    def kill_worker(self, aws: Aws, instance: str) -> str:
        """The first process of that node, and of nobody else's, that has a rank."""
        for pid in descendants(self.watcher.node_runs[instance].node.process.pid):
            with suppress(OSError):
                if b"\0LOCAL_RANK=0\0" in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    return ""
        return f"no worker runs on {instance}"

    @contextmanager
    def without_rights(self, aws: Aws, name: str, *, bounded: bool = False) -> Iterator[dict[str, str]]:
        with new_user(aws, name, bounded=bounded) as env:
            key, callers = env["AWS_ACCESS_KEY_ID"], self.account.rules.access.callers
            policies, boundary = ((FULL_ACCESS,), (READING,)) if bounded else ((), None)
            callers[key] = Caller(f"arn:aws:iam::{self.account.id}:user/{name}", policies, boundary=boundary)
            yield env
            callers.pop(key)


def descendants(pid: int) -> list[int]:
    """Every process that `pid` has started, and those that they have, the oldest first."""
    parents = dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found, new = set[int](), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return sorted(found)


@contextmanager
def opened() -> Iterator[EmbeddedPlace]:
    """AWS and its nodes; nothing of them is left afterwards, even if this process is killed."""
    reset_model_data()
    account, log = Ec2Account(REGION), RequestLog()
    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        stack.enter_context(entered(dict(os.environ)))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(patched(account.rules))
        stack.enter_context(cloudformation())
        stack.enter_context(mock.patch.object(IAMBackend, "_init_aws_policies", return_value=[]))
        stack.enter_context(mock.patch("yaml.Loader", _Parser))
        made = stack.enter_context(codebuild.patched())
        logging.getLogger("moto").setLevel(logging.CRITICAL)  # of what its CloudFormation does not know
        account.add_internet_route()
        account.make_ami()
        account.make_role(SPOT_ROLE)
        aws_image = newest([find("c7i.large")], REGION, datetime.now(UTC).date())
        account.make_image(AWS_REPOSITORY, aws_image.tag)  # moto keeps AWS's own registry in the account's
        machines = stack.enter_context(_machines(folder))
        account.rules.address = machines.address
        port = inside = stack.enter_context(served(log, None))
        if machines.gateway != processes.LOCALHOST:
            inside = stack.enter_context(served(log, None, machines.gateway, PORT, machines.place))
        iam = iam_backends[account.id]["aws"]
        iam.create_user(REGION, "moto")  # whom moto takes everybody for
        iam.put_user_policy("moto", "all", EVERYTHING)
        os.environ["AWS_ENDPOINT_URL"] = f"http://{processes.LOCALHOST}:{port}"
        os.environ["AWS_DEFAULT_REGION"] = REGION
        _make_project()
        stack.callback(_end_builds(made).set)

        def volume(name: str) -> Volume | None:
            written = snapshot_of(account, name)
            return _from_blocks(written, name, folder) if written else None

        watcher = Watcher(account, machines, NodeSetup(f"http://{machines.gateway}:{inside}"), 2, volume)
        stack.callback(watcher.close)
        with _watched(watcher):
            yield EmbeddedPlace(account, dict(os.environ), watcher)


@contextmanager
def _watched(watcher: Watcher) -> Iterator[None]:
    """Meanwhile instances get their nodes."""
    closing = threading.Event()

    def watch() -> None:
        while not closing.wait(POLL_S):
            watcher.poll()

    thread = threading.Thread(target=watch, name="watcher", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()


def _make_project() -> None:
    """Of CodeBuild, which moto's CloudFormation does not know."""
    Aws(REGION).call("codebuild", "CreateProject", {
        "name": codebuild.PROJECT, "source": {"type": "S3", "location": f"{codebuild.BUCKET}/images/"},
        "artifacts": {"type": "NO_ARTIFACTS"}, "serviceRole": "arn:aws:iam::123456789012:role/r",
        "environment": {"type": "LINUX_CONTAINER", "image": "i", "computeType": "BUILD_GENERAL1_SMALL"},
    })  # fmt: skip


def _end_builds(made: codebuild.Builds) -> threading.Event:
    """Ends each build a moment after its start, until the event is set."""
    closing, tag = threading.Event(), read_source(ROOT, "trainer", BASE).tag

    def end() -> None:
        while not closing.wait(BUILD_S):
            for row in list(made.rows.values()):
                if row.get("buildStatus") == "IN_PROGRESS":
                    put(content=row["id"], tag=tag)
                    row.update(currentPhase="COMPLETED", buildStatus="SUCCEEDED")

    threading.Thread(target=end, name="builds", daemon=True).start()
    return closing
