"""One tag makes a thing the toolkit's; whatever else a tag says stops no verb."""

import pytest

from launch.aws.instances.inventory import find, nodes_of
from launch.aws.names import JOB_TAG, is_ours
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal


def database(account: Account, **ours: str) -> str:
    """An instance of somebody else's, with some of our tags."""
    named = {"Name": "prod-database", **{f"aws-ddp-toolkit:{key}": value for key, value in ours.items()}}
    made = account.aws().call("ec2", "RunInstances", {
        "ImageId": account.ami, "InstanceType": "g5.2xlarge", "MinCount": 1, "MaxCount": 1,
        "SubnetId": account.subnets["us-east-1a"],
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in named.items()]}
        ],
    })  # fmt: skip
    return str(made["Instances"][0]["InstanceId"])


def put(account: Account, resource: str, **ours: str) -> None:
    tagged = [{"Key": f"aws-ddp-toolkit:{key}", "Value": value} for key, value in ours.items()]
    account.aws().call("ec2", "CreateTags", {"Resources": [resource], "Tags": tagged})


@pytest.mark.parametrize("tagged", [{}, {"owner": "me", "deadline": "2020-01-01T00:00:00Z"}], ids=["none", "others"])
@pytest.mark.parametrize(
    "words",
    [("leaks", "--delete", "--running", "--yes"), ("stop", "--all", "--yes"), ("stop", "demo")],
    ids=" ".join,
)
def test_what_has_no_tag_of_a_job_is_never_touched(
    terminal: Terminal, tagged: dict[str, str], words: tuple[str, ...]
) -> None:
    theirs = database(terminal.account, **tagged)
    (mine,) = terminal.start("demo", hours_ago=1)
    terminal.type(*words, "--region", "us-east-1")
    left = [node.id for node in terminal.account.nodes]
    assert left == ([theirs, mine] if words == ("stop", "*") else [theirs])
    assert theirs not in str(terminal.account.asked("TerminateInstances"))


def test_a_colleagues_job_is_shown_with_who_started_it_and_stopped(terminal: Terminal) -> None:
    (node,) = terminal.start("demo", hours_ago=1)
    put(terminal.account, node, owner="AIDACOLLEAGUE")
    assert terminal.type("status", "demo") == 0
    assert "started by  AIDACOLLEAGUE" in terminal.text
    assert terminal.type("stop", "demo") == 0
    assert terminal.account.left() == []


def test_a_star_as_a_name_means_no_other_job(terminal: Terminal) -> None:
    """To EC2's filters it stands for any text."""
    terminal.start("demo", hours_ago=1)
    assert find(terminal.account.aws(), "*").is_empty
    assert nodes_of(terminal.account.aws(), "d*o").nodes == ()
    assert is_ours({JOB_TAG: "demo"})
    assert not is_ours({JOB_TAG: "*"})
    assert not is_ours({})


@pytest.mark.parametrize(
    "bad",
    [
        {"started": "yesterday", "deadline": "", "usd-once": "free", "bucket": "../else"},
        {"generation": "one", "usd-per-hour": "1e999"},
    ],
    ids=str,
)
def test_malformed_tags_stop_no_verb(terminal: Terminal, bad: dict[str, str]) -> None:
    account, (mine,) = terminal.account, terminal.start("demo", hours_ago=1)
    volume = str(account.ec2.create_volume(size=1, zone_name="us-east-1a").id)
    put(account, volume, job="demo")
    for spoilt in (mine, volume, find(account.aws(), "demo").kind("security-group")[0].id):
        put(account, spoilt, **bad)
    for words in (("status",), ("status", "demo"), ("leaks",), ("leaks", "--delete", "--yes"), ("stop", "demo")):
        assert terminal.type(*words) in (0, 4), words
    assert mine not in [node.id for node in account.nodes]
