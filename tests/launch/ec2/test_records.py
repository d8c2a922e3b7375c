"""How far nodes have booted, and those that never say a word."""

from typing import Any
from unittest import mock

import botocore.session
import pytest

from launch.aws.names import Folder
from launch.core.errors import Ended
from launch.ec2.records import CONSOLE_LINES, STEPS, Booting, console
from tests.conftest import ROOT
from tests.launch.ec2.known import NAME
from tests.launch.ec2.world import Stage, idle
from tests.launch.faults import Faults, injected, refused

ENDED_ITSELF = "Client.InstanceInitiatedShutdown: Instance initiated shutdown"
MEMBERS = {"nodes": [{"rank": rank, "instance": f"i-{rank}"} for rank in range(2)]}


def mark(stage: Stage, *names: str) -> None:
    for name in names:
        stage.account.put_json(f"jobs/{NAME}/boot/{name}", "")


def booting(stage: Stage) -> Booting:
    return Booting(stage.aws, Folder(stage.account.bucket, NAME), stage.clock(), stage.said.append)


def test_the_steps_are_those_of_the_boot_script() -> None:
    script = (ROOT / "infra/ec2/boot.sh").read_text()
    marked = [line.split()[1] for line in script.splitlines() if line.startswith("    mark ")]
    assert ["", *marked] == list(STEPS)


def test_each_step_of_the_boot_is_shown_once_and_no_request_follows_once_all_train(stage: Stage) -> None:
    watched = booting(stage)
    for names in ((), ("i-0.started",), (), ("i-0.image", "i-1.started"), ("i-0.train", "i-1.train")):
        mark(stage, *names)
        watched.report(MEMBERS)
    assert stage.said == [
        "nodes: 2 not reported yet",
        "nodes: 1 not reported yet, 1 waiting for the others",
        "nodes: 1 waiting for the others, 1 getting the image",
        "nodes: 2 training",
    ]
    stage.account.requests.clear()
    assert watched.report(MEMBERS) == {"i-0", "i-1"}
    assert "ListObjectsV2" not in stage.account.operations


def test_a_stuck_node_is_reported_once_with_a_shell_command(stage: Stage) -> None:
    """A7: it was followed in silence until --max-hours."""
    mark(stage, "i-0.train", "i-1.image")
    watched = booting(stage)
    watched.report(MEMBERS)
    stage.slept_s = 660
    for _ in range(3):
        watched.report(MEMBERS)
    (warning,) = [line for line in stage.said if line.startswith("warning")]
    assert "node 1 (i-1)" in warning
    assert f"python -m launch.ec2 ssh {NAME} --node 1 --region us-east-1" in warning


def test_an_impaired_node_is_reported_once(stage: Stage) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceStatusSummary.html: ok, impaired, ..."""
    model = botocore.session.Session().get_service_model("ec2").shape_for("InstanceStatus")
    assert {"SystemStatus", "InstanceStatus", "InstanceId"} <= model.members.keys()
    rows: list[dict[str, Any]] = [
        {"InstanceId": "i-0", "SystemStatus": {"Status": "ok"}, "InstanceStatus": {"Status": "initializing"}},
        {"InstanceId": "i-1", "SystemStatus": {"Status": "impaired"}, "InstanceStatus": {"Status": "ok"}},
    ]
    aws = mock.Mock(region="us-east-1")
    aws.objects.return_value = []
    aws.pages.return_value = rows
    watched = Booting(aws, Folder("b", NAME), stage.clock(), stage.said.append)
    for _ in range(3):
        stage.slept_s += 61
        watched.report(MEMBERS)
    (warning,) = [line for line in stage.said if line.startswith("warning")]
    assert "EC2 finds node 1 (i-1) impaired (SystemStatus)" in warning


def test_a_mute_node_ends_the_job_with_its_console_and_is_not_replaced(stage: Stage) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html"""

    def end_in_silence() -> None:
        stage.account.kill(stage.cluster["nodes"][1]["instance"], ENDED_ITSELF)

    stage.events = iter([*idle(2), stage.report("train", 0), end_in_silence])
    with pytest.raises(Ended, match="ended without ever reporting") as ended:
        stage.launch()
    assert ended.value.code == 6
    assert len(stage.account.asked("RunInstances")) == 1
    assert len(stage.account.asked("GetConsoleOutput")) == 1
    assert any(line.startswith("the console of node 1 (i-") for line in stage.said)
    assert stage.account.left() == []


def test_the_end_of_a_long_console_is_shown_or_why_it_cannot_be_read(stage: Stage) -> None:
    aws = mock.Mock()
    aws.call.return_value = {"Output": "\r\n".join(f"line {number}\n" for number in range(99))}
    assert console(aws, "i-1") == [f"line {number}" for number in range(99 - CONSOLE_LINES, 99)]
    aws.call.return_value = {}
    assert console(aws, "i-1") == ["EC2 has no console output for it"]
    stage.where = {"detach": True}
    stage.launch()
    node = stage.cluster["nodes"][0]["instance"]
    with injected(Faults().on("GetConsoleOutput", refused("UnauthorizedOperation", 403))):
        (words,) = console(stage.aws, node)
    assert "may not ec2:GetConsoleOutput" in words
