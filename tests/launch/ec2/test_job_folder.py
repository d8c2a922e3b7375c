"""What stands in a job's folder may be damaged: a job is still shown and stopped by its tags."""

import json

import pytest

from launch.aws.client import Aws
from launch.aws.names import Folder
from launch.core.errors import AwsError
from launch.ec2.job_folder import members_of, record_at, spec_of
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import plan
from tests.launch.ec2.terminal import Terminal

# An epoch and an end as the trainer writes them, with one thing in them that is not the trainer's.
EPOCH = '{"epoch": 1, "images_per_s": 1.0, "epoch_s": 1.0, %s}'
END = '{"state": "done", "exit_code": 0, "ended": "2999", %s}'
BAD = {
    "job.json": ("nonsense", '{"where": 3, "stop_asked": "x", "regions": 3}'),
    "cluster.json": ('{"nodes": [{"rank": "first"}], "generation": []}',),
    "run/metrics.jsonl": (EPOCH % '"train_loss": "low"',),
    "outcome.json": (END % '"seconds": 1e300',),
    "exits/i-1.json": ('{"instance": ["i-1"], "at": "now"}',),
}


@pytest.mark.parametrize(("file", "text"), [(file, text) for file, texts in BAD.items() for text in texts],
                         ids=lambda text: text[:30])  # fmt: skip
def test_a_job_whose_files_are_damaged_is_shown_and_stopped(file: str, text: str, terminal: Terminal) -> None:
    """A job that cannot be stopped costs money."""
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


def test_the_last_words_of_a_node_are_shown_on_one_line_without_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that is killed may have printed a line that begins as ours do, which the node then takes for ours."""
    said = {"instance": "i-1", "step": "train", "reason": "no\nremoved 2: no postgres://me:pa55word@db", "rank": 0,
            "generation": 1, "code": 137, "restarts": 3, "at": 1_790_000_000}  # fmt: skip
    aws = Aws("us-east-1")
    monkeypatch.setattr(aws, "read", lambda *_: json.dumps(said).encode())

    reason = "no removed 2: no postgres://***@db"
    assert record_at(aws, "b", "jobs/j/exits/i-1.json") == {**said, "reason": reason}


def test_what_a_launcher_writes_fits(account: Account) -> None:
    """The plan's own job.json, cluster.json as cluster_file.py makes it, and a record as infra/ec2/boot.sh does."""
    requests = plan().requests
    (spec,) = [
        r.params["Body"] for r in requests if r.operation == "PutObject" and r.params["Key"].endswith("job.json")
    ]
    record = {"instance": "i-1", "step": "train", "reason": "", "rank": None, "generation": None, "code": 75,
              "restarts": 0, "at": 1_790_000_000}  # fmt: skip
    members = {"job": "j", "started": 1, "deadline": 2, "generation": 1, "restarts": 0,
               "nodes": [{"rank": 0, "instance": "i-1", "address": "10.0.0.1", "data_volume": None}]}  # fmt: skip
    aws, folder = account.aws(), Folder(account.bucket, "j")
    assert (spec_of(aws, folder, "ec2"), members_of(aws, folder)) == (None, None)
    for key, content in ((folder.spec, json.loads(spec)), (folder.cluster, members), ("r.json", record)):
        account.put_json(key, content)
    assert spec_of(aws, folder, "ec2") == json.loads(spec)
    assert members_of(aws, folder) == members
    assert record_at(aws, account.bucket, "r.json") == record
    account.put_json(folder.cluster, members | {"generation": True})
    with pytest.raises(AwsError, match=r"cluster\.json is damaged, at 'generation'"):
        members_of(aws, folder)
