"""C3, C4: anybody who may tag can copy one of our tags, or write anything into it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from launch.core.names import JOB_TAG, TIME, foreign_tag, read_usd, tag_values, tags
from launch.ec2.finding import find, nodes_and_volumes, nodes_of
from launch.ec2.watch import APPEAR_S, Follower
from launch.rehearse.aws.iam.callers import MOTOS_USER_ID
from launch.rehearse.aws.iam.policies import Need, allows, policy
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import NAME
from tests.launch.ec2.terminal import Terminal
from tests.launch.ec2.world import Stage
from trainer.errors import SettingsError

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
OURS = tag_values({"Tags": tags("demo", "some-bucket", NOW, NOW)})


@pytest.fixture
def terminal(account: Account) -> Terminal:
    return Terminal(account)


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


def another_launchers(account: Account, job: str) -> str:
    """A machine of another launcher's, with all of our tags and the name of this job, which IAM lets him write."""
    theirs = database(account)
    named = tags(job, "attackers", NOW, datetime(2199, 1, 1, tzinfo=UTC), "AIDAYOU")
    account.aws().call("ec2", "CreateTags", {"Resources": [theirs], "Tags": named})
    return theirs


# ---- C3: one copied tag


@pytest.mark.parametrize(
    "copied",
    [
        {"job": "demo"},
        {"job": "demo", "deadline": "2020-01-01T00:00:00Z"},
        {"job": "demo", "deadline": "2020-01-01T00:00:00Z", "started": "2020-01-01T00:00:00Z", "bucket": "some-bucket"},
    ],
    ids=["job", "and deadline", "all but the name"],
)
@pytest.mark.parametrize(
    "words",
    [("leaks", "--delete", "--running", "--yes"), ("stop", "--all", "--yes"), ("stop", "demo")],
    ids=" ".join,
)
def test_a_machine_with_copied_tags_is_shown_and_never_touched(
    terminal: Terminal, copied: dict[str, str], words: tuple[str, ...]
) -> None:
    theirs = database(terminal.account, **copied)
    terminal.start("demo", hours_ago=1)
    terminal.type(*words, "--region", "us-east-1")
    assert [node.id for node in terminal.account.nodes] == [theirs]
    assert theirs not in str(terminal.account.asked("TerminateInstances"))
    terminal.type("leaks")
    assert f"node  {theirs}  demo  us-east-1" in terminal.text
    assert "not touched: its tag Name is 'prod-database'" in terminal.text
    assert "--delete" not in terminal.text  # it would not help
    terminal.type("status")
    assert theirs in terminal.text


def test_a_copied_tag_neither_ends_nor_extends_the_job_it_names(terminal: Terminal) -> None:
    database(terminal.account, job="demo", deadline="2020-01-01T00:00:00Z", bucket="attackers")
    (mine,) = terminal.start("demo", hours_ago=1)
    fleet = find(terminal.account.aws(), "demo")
    assert [node.id for node in fleet.nodes] == [mine]
    assert fleet.deadlines["demo"] > datetime.now(UTC) + timedelta(hours=11)
    assert fleet.buckets == {"demo": terminal.account.bucket}


def test_another_launchers_machine_under_the_jobs_name_does_not_keep_it_from_being_stopped(terminal: Terminal) -> None:
    """IAM lets a launcher write any job into the tags of machines that have his own id as their owner, and nobody else
    end these: EC2 refuses a request that names one, and with it the job's own nodes would live on.
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html
    """
    account, (mine,) = terminal.account, terminal.start("demo", hours_ago=1)
    theirs = another_launchers(account, "demo")
    put(account, mine, owner=MOTOS_USER_ID)

    fleet = find(account.aws(), "demo")
    assert ([node.id for node in fleet.nodes], fleet.buckets) == ([mine], {"demo": account.bucket})
    assert fleet.deadlines["demo"] < datetime.now(UTC) + timedelta(hours=13)
    assert [node.id for node in nodes_of(account.aws(), "demo").nodes] == [mine]
    assert terminal.type("stop", "demo") == 0
    assert [node.id for node in account.nodes] == [theirs]
    assert theirs not in str(account.asked("TerminateInstances"))
    assert "not touched: its tag aws-ddp-toolkit:owner is 'AIDAYOU'" in terminal.text


def test_nor_does_a_machine_with_all_of_the_jobs_tags_and_no_owner(terminal: Terminal) -> None:
    """Launchers can make none, but whoever may tag in the account can; IAM lets no launcher end it."""
    account, (mine,) = terminal.account, terminal.start("demo", hours_ago=1)
    theirs = database(account)
    named = tags("demo", account.bucket, NOW, datetime(2199, 1, 1, tzinfo=UTC))
    account.aws().call("ec2", "CreateTags", {"Resources": [theirs], "Tags": named})
    put(account, mine, owner=MOTOS_USER_ID)

    assert [node.id for node in find(account.aws(), "demo").nodes] == [mine]
    assert terminal.type("stop", "demo") == 0
    assert theirs not in str(account.asked("TerminateInstances"))
    assert "not touched: it has no tag aws-ddp-toolkit:owner" in terminal.text


@pytest.mark.parametrize("key", ["aws-ddp-toolkit:Owner", "AWS-DDP-TOOLKIT:OWNER"])
def test_a_machine_that_names_its_owner_to_iam_alone_is_not_the_jobs(terminal: Terminal, key: str) -> None:
    """Conditions on tags do not tell capitals from small letters, so IAM lets a launcher make it, and none but him end
    it; to everybody else it has no owner.
    """
    named = {f"aws:RequestTag/{key}": "AIDAYOU", f"aws:RequestTag/{JOB_TAG}": "demo", "aws:userid": "AIDAYOU",
             "ec2:MetadataHttpTokens": "required", "ec2:MetadataHttpPutResponseHopLimit": "1"}  # fmt: skip
    assert allows([policy("launcher")], Need("ec2:RunInstances", "arn:aws:ec2:us-east-1:1:instance/i-1", named))

    account, (mine,) = terminal.account, terminal.start("demo", hours_ago=1)
    theirs = database(account)
    tagged = [*tags("demo", "attackers", NOW, datetime(2199, 1, 1, tzinfo=UTC)), {"Key": key, "Value": "AIDAYOU"}]
    account.aws().call("ec2", "CreateTags", {"Resources": [theirs], "Tags": tagged})
    assert [node.id for node in nodes_of(account.aws(), "demo").nodes] == [mine]
    assert terminal.type("stop", "demo") == 0
    assert theirs not in str(account.asked("TerminateInstances"))
    assert f"not touched: its tag {key} is 'AIDAYOU'" in terminal.text


def test_another_launchers_machine_is_no_node_of_a_job_whose_own_are_forgotten(account: Account) -> None:
    """EC2 forgets ended nodes after an hour, and then lists that machine alone: as the job's it would be ended, which
    AWS refuses, and lost nodes would never be replaced.
    """
    stage = Stage(account, where={"detach": True})
    stage.launch()
    theirs = another_launchers(account, NAME)
    for row in stage.cluster["nodes"]:
        account.kill(row["instance"])
        account.forget(row["instance"])
    stage.slept_s += 2 * APPEAR_S
    lost = Follower(stage.plan().payload.cluster, stage.aws, stage.clock(), stage.said.append, None).follow()
    assert "ended without ever reporting" in lost.reason
    assert [node.id for node in account.nodes] == [theirs]
    assert account.asked("TerminateInstances") == []


def test_who_follows_another_launchers_job_sees_its_nodes(account: Account) -> None:
    """A session of the same role by another name, say: what cluster.json names is the job's, where nothing is mine."""
    one, other = (another_launchers(account, "demo") for _ in range(2))
    assert {node.id for node in nodes_and_volumes(account.aws(), "demo").nodes} == {one, other}
    assert [node.id for node in nodes_of(account.aws(), "demo", MOTOS_USER_ID, [one]).nodes] == [one]
    # Who has just started nodes, which EC2 may list late, waits for these.
    assert nodes_and_volumes(account.aws(), "demo", MOTOS_USER_ID).nodes == ()


def test_leaks_asks_before_it_deletes(terminal: Terminal) -> None:
    terminal.start("late", hours_ago=9, hours_left=-1)
    error = terminal.refused("leaks", "delete", "true")
    assert isinstance(error, SettingsError)
    assert str(error) == "--delete removes late; add --yes to confirm."
    assert "late" in terminal.said[0]
    assert len(terminal.account.nodes) == 1


# ---- C4: what nobody can read


@pytest.mark.parametrize(
    "bad",
    [
        {"started": "yesterday"},
        {"deadline": ""},
        {"generation": "one"},
        {"generation": "\u0663"},
        {"usd-per-hour": "1e999"},
        {"usd-per-hour": "nan"},
        {"usd-once": "free"},
        {"bucket": "../else"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["security group of the job", "volume of nobody", "the node itself"])
def test_a_malformed_tag_on_anything_stops_no_verb(terminal: Terminal, bad: dict[str, str], kind: str) -> None:
    account, (mine,) = terminal.account, terminal.start("demo", hours_ago=1)
    ec2: Any = account.ec2
    if kind == "volume of nobody":
        spoilt = str(ec2.create_volume(size=1, zone_name="us-east-1a").id)
        put(account, spoilt, job="demo")
    elif kind == "the node itself":
        spoilt = mine
    else:
        spoilt = find(account.aws(), "demo").kind("security-group")[0].id
    put(account, spoilt, **bad)
    for words in (("status",), ("status", "demo"), ("leaks",), ("leaks", "--delete", "--yes"), ("stop", "demo")):
        assert terminal.type(*words) in (0, 4), words
    was_ours = not foreign_tag(
        OURS | {f"aws-ddp-toolkit:{key}": value for key, value in bad.items()}, has_deadline=True
    )
    gone = kind != "the node itself" or was_ours
    assert (mine in [node.id for node in account.nodes]) is not gone
    terminal.type("leaks")
    assert (spoilt in terminal.text) is (kind == "volume of nobody" or not was_ours)


@pytest.mark.parametrize("key", sorted(OURS))
def test_all_of_our_tags_make_a_thing_ours(key: str) -> None:
    assert foreign_tag(OURS, has_deadline=True) == ""
    assert foreign_tag({name: value for name, value in OURS.items() if name != key}, has_deadline=True) != ""
    assert foreign_tag({**OURS, key: "\u202edemo"}, has_deadline=True) != ""


def test_a_start_without_a_deadline_is_ours_where_aws_has_the_limit() -> None:
    bare = tag_values({"Tags": tags("demo", "some-bucket", NOW)})
    assert foreign_tag(bare, has_deadline=False) == ""
    assert foreign_tag(bare, has_deadline=True) == "aws-ddp-toolkit:deadline="
    assert foreign_tag({**bare, JOB_TAG: "other"}, has_deadline=False).startswith("Name=")
    assert NOW.strftime(TIME) in bare.values()


@pytest.mark.parametrize(("text", "usd"), [("1.5", 1.5), ("1e+03", 1000.0), ("0", 0.0), ("-1", None), ("1_0", None)])
def test_an_amount_is_read_as_it_is_written(text: str, usd: float | None) -> None:
    assert read_usd(text) == usd
