"""What nodes ask of AWS when they really run is what tests/launch/privilege/test_roles.py lists, and granted."""

from tests.launch.privilege.policies import actions
from tests.launch.privilege.rehearsed import needs_of_nodes, ungranted
from tests.launch.privilege.test_roles import BOOT, WORLD, needs
from tests.launch.rehearse.ec2.conftest import needs_namespaces
from tests.launch.rehearse.terminal import Kept


@needs_namespaces
def test_nodes_ask_for_what_is_listed_and_granted(hangups_ignored: Kept) -> None:
    requests = hangups_ignored.folder / "runs/job/requests.jsonl"
    asked = {need.action for need in needs_of_nodes(requests)}
    assert asked >= {"ecr:GetAuthorizationToken", "logs:PutLogEvents", "s3:GetObject", "s3:ListBucket", "s3:PutObject"}
    assert asked <= {need.action for call in BOOT for need in needs(call, WORLD)} & actions("node")
    assert ungranted(requests) == set()
