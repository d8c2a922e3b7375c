"""Who may not remove a job does not end it by trying.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html (DryRun)
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from launch.core.errors import AwsError
from launch.ec2.fleet import Fleet
from launch.ec2.permission import check_may_remove
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import NAME, node
from tests.launch.ec2.terminal import Terminal
from tests.launch.ec2.world import Stage
from tests.launch.faults import Faults, injected, refused

REMOVING = ("TerminateInstances", "DeleteSecurityGroup", "DeletePlacementGroup", "DeleteVolume")


@pytest.fixture
def anothers(account: Account, monkeypatch: pytest.MonkeyPatch) -> Account:
    """An account in which another launcher's job has two nodes."""
    Stage(account, where={"detach": True}).launch()
    monkeypatch.setattr("launch.ec2.permission.caller", lambda _aws: "AIDASOMEBODYELSE")
    return account


def spec(account: Account) -> Mapping[str, Any]:
    read: Mapping[str, Any] = json.loads(account.aws().read(account.bucket, f"jobs/{NAME}/job.json") or "")
    return read


@pytest.mark.parametrize("words", [("stop", NAME), ("stop", "--all", "--yes"), ("leaks", "--delete", "--yes")])
@pytest.mark.parametrize("has_nodes", [True, False])
def test_a_refused_stop_does_not_end_the_job_of_another(
    anothers: Account, words: tuple[str, ...], has_nodes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_nodes:
        aws = anothers.aws()
        nodes = [row["InstanceId"] for one in aws.pages("ec2", "DescribeInstances", "Reservations")
                 for row in one["Instances"]]  # fmt: skip
        aws.call("ec2", "TerminateInstances", {"InstanceIds": nodes})
    terminal, faults = Terminal(anothers), Faults()
    terminal.later_s = 3_600.0 if has_nodes else 86_400.0 * 30  # past its time limit
    for operation in REMOVING:
        faults.on(operation, refused("UnauthorizedOperation", 403), nth=None)

    with injected(faults):
        code = terminal.type(*words, "--region", "us-east-1")

    assert code == (0 if words[0] == "leaks" and has_nodes else 4)
    assert not {"ended", "stop_asked"} & set(spec(anothers))


def test_who_may_remove_it_removes_it(anothers: Account) -> None:
    assert Terminal(anothers).type("stop", NAME, "--region", "us-east-1") == 0
    assert "ended" in spec(anothers)


@pytest.mark.parametrize(("me", "is_told"), [("AROA1:new", True), ("AROA2:new", False), ("AIDAME", False)])
def test_who_is_refused_in_another_session_of_his_role_learns_how_to_take_the_old_one(me: str, is_told: bool) -> None:
    aws = Mock()
    aws.call.side_effect = [{"UserId": me}, AwsError("no.", "UnauthorizedOperation")]
    own = Fleet((replace(node(0), owner="AROA1:old"),))
    with pytest.raises(AwsError, match="belongs to AROA1:old") as error:
        check_may_remove(aws, NAME, own)
    assert ("role_session_name = NAME" in str(error.value)) == is_told
