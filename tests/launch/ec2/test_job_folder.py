"""What stands in a job's folder may be damaged: a job is still shown and stopped by its tags."""

import pytest

from launch.aws.names import Folder
from launch.ec2.job_folder import exit_records
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal

# An epoch and an end as the trainer writes them, with one thing in them that is not the trainer's.
EPOCH = '{"epoch": 1, "images_per_s": 1.0, "epoch_s": 1.0, %s}'
END = '{"state": "done", "exit_code": 0, "ended": "2999", %s}'
BAD = {
    "job.json": "nonsense",
    "run/metrics.jsonl": EPOCH % '"train_loss": "low"',
    "outcome.json": END % '"seconds": 1e300',
}


@pytest.mark.parametrize("file", BAD)
def test_a_job_whose_files_are_damaged_is_shown_and_stopped(file: str, terminal: Terminal) -> None:
    """A job that cannot be stopped costs money."""
    account, (mine,) = terminal.account, terminal.start("demo", hours_ago=1)
    put = {"Bucket": account.bucket, "Key": f"jobs/demo/{file}", "Body": BAD[file]}
    account.aws().call("s3", "PutObject", put)

    for words in (("status",), ("status", "demo"), ("leaks",), ("stop", "demo")):
        assert terminal.type(*words) in (0, 4), (words, terminal.text)
    assert mine not in [node.id for node in account.nodes]


@pytest.mark.parametrize("nodes", [2, 0])
def test_a_job_whose_file_names_another_backend_is_stopped(nodes: int, terminal: Terminal) -> None:
    """Also while EC2 does not say when one of its nodes ended, which its files may have, and where it has none."""
    ids = terminal.start("demo", nodes=nodes)
    for ended in ids[:1]:
        terminal.account.kill(ended, "Client.InstanceInitiatedShutdown: Instance initiated shutdown")
    terminal.account.put_json("jobs/demo/job.json", {"backend": "slurm"}, terminal.account.bucket)
    assert terminal.type("stop", "demo") == 0
    assert terminal.account.left() == []


def test_the_last_words_of_a_node_are_shown_on_one_line_without_tokens(account: Account) -> None:
    """A script that is killed may have printed a line that begins as ours do, which the node then takes for ours."""
    account.put_json("jobs/j/exits/i-1.json", {"instance": "i-1", "reason": "no\nremoved 2: no pg://me:pa55word@db"})

    (record,) = exit_records(account.aws(), Folder(account.bucket, "j")).values()
    assert record["reason"] == "no removed 2: no pg://***@db"
