"""A whole rehearsal on EC2 without faults, as a user starts it: one for all these tests."""

import pytest

from launch.rehearse.aws.iam.policies import actions
from tests.launch.core.test_secrets import assert_nowhere
from tests.launch.privilege.rehearsed import needs_of_nodes, ungranted
from tests.launch.privilege.test_roles import BOOT, SECRETS, VIEW, needs
from tests.launch.rehearse.ec2.conftest import needs_nodes
from tests.launch.rehearse.terminal import Kept
from trainer import outcome

pytestmark = [needs_nodes, pytest.mark.timeout(300)]  # whichever is first plays it


def test_two_nodes_train_and_disappear(undisturbed: Kept) -> None:
    assert [row["epoch"] for row in undisturbed.epochs()] == [1, 2, 3]
    assert undisturbed.epochs()[-1]["world_size"] == 2
    assert "resources: 9 made, 9 removed, 0 left" in undisturbed.text
    assert "ec2:RunInstances 1" in undisturbed.text
    assert "nodes: g5.2xlarge in us-east-1a" in undisturbed.text
    for name in ("logs/node-0.log", "logs/node-1.log", "job/cluster.json", "requests.jsonl", "receipt.html"):
        assert (undisturbed.folder / "runs/job" / name).exists()
    assert all(seconds > 0 for seconds in undisturbed.phases().values())


def test_nothing_in_it_listens_beyond_loopback(undisturbed: Kept) -> None:
    undisturbed.assert_only_loopback()


def test_the_launcher_in_it_writes_the_outcome_where_the_command_line_says(undisturbed: Kept) -> None:
    written = outcome.read(undisturbed.folder / "ended")

    assert written is not None
    assert (written.state, written.exit_code, written.job) == ("done", 0, "job")
    assert written.usd  # only the launcher inside knows the price


def test_its_nodes_ask_for_what_is_listed_and_granted(undisturbed: Kept) -> None:
    requests = undisturbed.folder / "runs/job/requests.jsonl"
    asked = {need.action for need in needs_of_nodes(requests)}
    assert asked >= {"ecr:GetAuthorizationToken", "logs:PutLogEvents", "s3:GetObject", "s3:ListBucket", "s3:PutObject"}
    assert asked - SECRETS <= {need.action for call in BOOT for need in needs(call, VIEW)} & actions("node")
    assert ungranted(requests) == set()


def test_it_leaves_its_secrets_nowhere(undisturbed: Kept) -> None:
    files = [path for path in undisturbed.folder.rglob("*") if path.is_file()]
    assert {"receipt.html", "requests.jsonl", "node-0.log", "job.json"} <= {path.name for path in files}
    assert_nowhere(undisturbed.text, *(path.read_bytes() for path in files))
    # The nodes did ask for them.
    requests = (undisturbed.folder / "runs/job/requests.jsonl").read_text()
    assert "GetParameter" in requests
    assert "GetSecretValue" in requests
