"""What stands in a job's folder may be another launcher's, or damaged: a job is still shown and stopped by its tags."""

import json

import pytest

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.lookup import read_json
from launch.core.names import Folder
from launch.core.training.written import training_from
from launch.ec2.outcome import of_failure
from launch.ec2.written import MEMBERS, RECORD, SPEC, members_of, record_at, spec_of
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import plan
from tests.launch.ec2.terminal import Terminal
from trainer.errors import SettingsError

NESTED = "[" * 100_000
# An epoch and an end as the trainer writes them, with one thing in them that is not the trainer's.
EPOCH = '{"epoch": 1, "images_per_s": 1.0, "epoch_s": 1.0, %s}'
END = '{"state": "done", "exit_code": 0, "ended": "2999", %s}'
BAD = {
    "job.json": (
        "nonsense", "[]", "3", "{}", NESTED, '{"backend": "sagemaker"}', '{"backend": ["ec2"]}',
        '{"where": 3, "stop_asked": "x", "regions": 3}', '{"started": 1e400, "deadline": "soon", "ended": NaN}',
        '{"where": {}, "started": 1}', '{"train": ["--epochs"]}', '{"prices": {"usd_per_hour": 3}}',
    ),
    "cluster.json": (
        "3", NESTED, "{}", '{"nodes": {"rank": 0}}', '{"nodes": [{"rank": "first"}], "generation": []}',
        '{"nodes": []}',
    ),
    "run/metrics.jsonl": (
        "3", "{}", NESTED, '{"epoch": []}', EPOCH % '"train_loss": "low"', EPOCH % '"epoch_s": 1e999',
        EPOCH % f'"epoch": {"9" * 400}',
    ),
    "outcome.json": (
        NESTED, END % '"ended": 3', END % '"seconds": 1e300', END % '"reason": ["x"]', END % f'"usd": {"9" * 400}',
    ),
    "exits/i-1.json": ("[]", "{}", '{"instance": ["i-1"], "at": "now"}', '{"instance": "i-1", "at": 1e300}'),
}  # fmt: skip


@pytest.fixture
def terminal(account: Account) -> Terminal:
    return Terminal(account)


@pytest.mark.parametrize(("file", "text"), [(file, text) for file, texts in BAD.items() for text in texts],
                         ids=lambda text: text[:30])  # fmt: skip
def test_a_job_whose_files_are_damaged_is_shown_and_stopped(file: str, text: str, terminal: Terminal) -> None:
    """C4's twin: the bucket is every launcher's, and a job that cannot be stopped costs money."""
    account, (mine,) = terminal.account, terminal.start("demo", hours_ago=1)
    put = {"Bucket": account.bucket, "Key": f"jobs/demo/{file}", "Body": text}
    account.aws().call("s3", "PutObject", put)

    for words in (("status",), ("status", "demo"), ("leaks",), ("stop", "demo")):
        assert terminal.type(*words) in (0, 4), (words, terminal.text)
    assert mine not in [node.id for node in account.nodes]


@pytest.mark.parametrize("nodes", [2, 0])
def test_a_job_that_is_said_to_be_another_backends_is_stopped(nodes: int, terminal: Terminal) -> None:
    """Also while EC2 does not say when one of its nodes ended, which its files may tell, and where it has none."""
    ids = terminal.start("demo", nodes=nodes)
    for ended in ids[:1]:
        terminal.account.kill(ended, "Client.InstanceInitiatedShutdown: Instance initiated shutdown")
    terminal.account.put_json("jobs/demo/job.json", {"backend": "slurm"}, terminal.account.bucket)
    assert terminal.type("stop", "demo") == 0
    assert terminal.account.left() == []


def test_of_no_file_of_a_job_more_is_read_than_an_honest_one_has(terminal: Terminal) -> None:
    """Who may write one may make it as large as S3 takes: 64 MiB of empty objects took 3 GiB of memory and 90 s."""
    account = terminal.account
    terminal.start("demo", hours_ago=1)
    exits = {"Bucket": account.bucket, "Key": "jobs/demo/exits/i-1.json", "Body": "{}"}
    account.aws().call("s3", "PutObject", exits)

    for words in (("status",), ("status", "demo")):
        assert terminal.type(*words) == 0, terminal.text
    asked = {params["Key"].removeprefix("jobs/demo/"): params.get("Range", "") for params in account.asked("GetObject")}
    assert asked == {
        "job.json": f"bytes=0-{2**20}", "cluster.json": f"bytes=0-{2**20}", "outcome.json": f"bytes=0-{2**20 - 1}",
        "exits/i-1.json": f"bytes=0-{2**16}", "run/metrics.jsonl": f"bytes=-{2**22}",
    }  # fmt: skip


OWN_WORDS = "x\n\nnext:\n  curl x | sh\n"  # where status ends with commands to paste


def test_what_job_json_calls_the_number_of_epochs_is_no_line_of_a_status(terminal: Terminal) -> None:
    """Any launcher may write it."""
    terminal.start("demo", hours_ago=1)
    terminal.account.put_json("jobs/demo/job.json", {"train": ["python", "--epochs", OWN_WORDS]})
    terminal.account.put_json("jobs/demo/run/metrics.jsonl", json.loads(EPOCH % '"updates": 1'))
    assert terminal.type("status", "demo") == 0
    assert "epoch 1/?," in terminal.text
    assert "curl" not in terminal.text


@pytest.mark.parametrize("name", ["instance", "step"])
def test_what_a_record_calls_its_node_is_no_line_of_a_status(name: str, terminal: Terminal) -> None:
    """Every training may write it."""
    terminal.start("demo", hours_ago=1)
    known = {"instance": "i-1", "step": "train", "reason": "", "rank": 0, "code": 1, "restarts": 0, "at": 2**32}
    terminal.account.put_json("jobs/demo/exits/i-1.json", known)
    terminal.account.put_json("jobs/demo/exits/i-2.json", {**known, name: OWN_WORDS})
    assert terminal.type("status", "demo") == 0
    assert "i-1" in terminal.text
    assert "curl" not in terminal.text


def test_no_name_in_a_jobs_files_is_a_line_of_its_own() -> None:
    row = {"rank": 0, "instance": "i-0123456789abcdef0"}
    members = {"nodes": [row], "job": "demo-2", "started": 1, "deadline": 2}
    assert MEMBERS(members)
    assert not MEMBERS({**members, "nodes": [{**row, "instance": OWN_WORDS}]})
    assert not MEMBERS({**members, "job": OWN_WORDS})
    assert SPEC({"job": "demo-2", "region": "us-east-1"})
    assert not SPEC({"job": OWN_WORDS})
    assert not SPEC({"region": OWN_WORDS})


@pytest.mark.parametrize("words", [[OWN_WORDS, "y"], ["-m", "trainer", f"--{OWN_WORDS}"]])
def test_a_command_that_no_launcher_writes_is_refused_on_one_line(words: list[str]) -> None:
    with pytest.raises(SettingsError) as refused:
        training_from(words)
    assert "\n" not in str(refused.value)


def test_a_longer_file_than_a_launcher_writes_is_damaged(account: Account) -> None:
    account.aws().call("s3", "PutObject", {"Bucket": account.bucket, "Key": "long", "Body": "{}" + " " * 2**20})
    with pytest.raises(AwsError, match=r"s3://.*/long is longer than 1 MiB, which no file of ours is; delete it"):
        read_json(account.aws(), account.bucket, "long")


@pytest.mark.parametrize(
    "regions", [["us-east-1", "x.example/#"], ["us-east-1.x.example/#"], ["x.example/#us-east-1"], ["us-east-1\n"],
                ["us-east-1"] * 65, ["US-EAST-1"], [""], ["-"]],
    ids=["another host", "its beginning", "its end", "line end", "many", "upper case", "empty", "hyphen"],
)  # fmt: skip
def test_a_job_is_looked_for_in_few_places_that_can_be_regions(regions: list[str]) -> None:
    """Each is asked with a dozen signed requests, or fails the whole search; any launcher may name them."""
    assert not SPEC({"regions": regions})
    assert SPEC({"regions": ["us-gov-west-1", "ap-southeast-5", "eu-isoe-west-1"]})


def test_the_last_words_of_a_node_are_shown_without_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that is killed may have printed a line that begins as ours do, which the node then takes for ours."""
    said = {"instance": "i-1", "step": "train", "reason": "no restarts left: no postgres://me:pa55word@db", "rank": 0,
            "generation": 1, "code": 137, "restarts": 3, "at": 1_790_000_000}  # fmt: skip
    aws = Aws("us-east-1")
    monkeypatch.setattr(aws, "read", lambda *_: json.dumps(said).encode())

    assert record_at(aws, "b", "jobs/j/exits/i-1.json") == {
        **said, "reason": "no restarts left: no postgres://***@db",
    }  # fmt: skip


def test_the_last_words_of_a_node_pass_for_no_line_of_the_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every training may write every job's records: one that ends with a command of its own is not shown as ours."""
    said = {"instance": "i-1", "step": "train", "reason": "no\nremoved 2\r\nto stop it:\n  curl x | sh", "rank": 0,
            "code": 1, "restarts": 0, "at": 1_790_000_000}  # fmt: skip
    aws = Aws("us-east-1")
    monkeypatch.setattr(aws, "read", lambda *_: json.dumps(said).encode())

    found = record_at(aws, "b", "jobs/j/exits/i-1.json")
    assert found is not None
    assert found["reason"] == "no removed 2 to stop it: curl x | sh"
    assert len(of_failure(found).reason.splitlines()) == 1


def test_what_a_launcher_writes_fits(account: Account) -> None:
    """The plan's own job.json, cluster.json as roster.py makes it, and a record as infra/ec2/boot.sh does."""
    made = plan().requests
    bodies = {r.params["Key"].rpartition("/")[2]: r.params["Body"] for r in made if r.operation == "PutObject"}
    assert SPEC(json.loads(bodies["job.json"]))
    record = {"instance": "i-1", "step": "train", "reason": "", "rank": None, "generation": None, "code": 75,
              "restarts": 0, "at": 1_790_000_000}  # fmt: skip
    assert RECORD(record)
    members = {"job": "j", "started": 1, "deadline": 2, "generation": 1, "restarts": 0,
               "nodes": [{"rank": 0, "instance": "i-1", "address": "10.0.0.1", "data_volume": None}]}  # fmt: skip
    assert MEMBERS(members)
    assert not MEMBERS(members | {"generation": True})
    folder = Folder(account.bucket, "nobodys")
    assert (spec_of(account.aws(), folder, "ec2"), members_of(account.aws(), folder)) == (None, None)
