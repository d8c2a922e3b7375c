"""The doctor's check of launch.ec2 --queue."""

from types import SimpleNamespace
from typing import Any

import pytest

from launch.core.catalog import find
from launch.core.errors import AwsError
from launch.ec2.examination.queue import queue

MAKE = "python -m launch.infra up --queue demo --region us-east-1"


class Region:
    """Batch's and ECR's answers: a queue of 64 vCPUs with the launcher that was pushed."""

    def __init__(self) -> None:
        self.queues: list[dict[str, str]] = [{"state": "ENABLED"}]
        self.pushed: str | None = "sha256:2"
        self.runs = "sha256:2"

    def call(self, _service: str, operation: str, params: Any) -> Any:
        if operation == "DescribeJobQueues":
            assert params == {"jobQueues": ["aws-ddp-toolkit-demo-ec2"]}
            return {"jobQueues": self.queues}
        if operation == "DescribeConsumableResource":
            assert params == {"consumableResource": "aws-ddp-toolkit-demo-graphics"}
            return {"totalQuantity": 64, "inUseQuantity": 8}
        if self.pushed is None:
            raise AwsError("no image", "ImageNotFoundException")
        return {"imageDetails": [{"imageDigest": self.pushed}]}

    def pages(self, _service: str, _operation: str, _key: str, _params: Any) -> Any:
        old = {"revision": 9, "containerProperties": {"image": "uri@sha256:1"}}
        return [old, {"revision": 10, "containerProperties": {"image": f"uri@{self.runs}"}}]


def examined(region: Region, nodes: int = 2, name: str | None = "demo") -> list[tuple[str, str, str]]:
    options = SimpleNamespace(queue=name, nodes=nodes, spot=False)
    resolved = SimpleNamespace(options=options, instances=[find("g5.2xlarge")])
    identity = SimpleNamespace(is_root=True)
    case: Any = SimpleNamespace(aws=region, region="us-east-1", resolved=resolved, identity=identity)
    return [(one.state, one.text, one.remedy) for one in queue(case)]


def test_a_queue_with_room_for_the_job_is_ok() -> None:
    ((state, text, _),) = examined(Region())
    assert (state, "8 of 64 vCPUs in use" in text, "16 for the job" in text) == ("ok", True, True)
    assert examined(Region(), name=None) == []


@pytest.mark.parametrize(
    ("pushed", "remedy"),
    [
        ("sha256:2", MAKE),
        (None, f"python -m launch.image push --target launcher --region us-east-1, then {MAKE}"),
    ],
)
def test_a_queue_that_is_missing_has_the_commands_that_make_it(pushed: str | None, remedy: str) -> None:
    region = Region()
    region.queues, region.pushed = [], pushed
    assert examined(region) == [("missing", "no queue 'demo' for launch.ec2 in us-east-1", remedy)]


def test_a_job_that_never_fits_is_missing_vcpus_and_an_older_launcher_a_warning() -> None:
    region = Region()
    region.runs = "sha256:1"
    (room, older) = examined(region, nodes=9)
    assert (room[0], room[2]) == ("missing", f"raise the quota, then {MAKE}")
    assert (older[0], older[2]) == ("warning", MAKE)
