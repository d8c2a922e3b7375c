"""What a rehearsal measured and keeps, as data and as text."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.rehearse.aws.server import Request
from launch.rehearse.nodes.sagemaker.files import download
from launch.rehearse.receipt.facts import save
from launch.rehearse.receipt.text import as_text
from tests.launch.rehearse.receipt.receipts import RECEIPT

# ---- data


@pytest.mark.parametrize(
    ("name", "is_write"),
    [
        ("ec2:DescribeInstances", False), ("s3:HeadBucket", False), ("logs:FilterLogEvents", False),
        ("ec2:RunInstances", True), ("sagemaker:CreateTrainingJob", True), ("s3:?", True),
    ],
)  # fmt: skip
def test_a_request_reads_or_writes(name: str, is_write: bool) -> None:
    assert Request(1.0, 0.1, True, *name.split(":"), "", 200).is_write == is_write


def test_a_replacement_is_not_counted_beside_the_node_that_it_replaces() -> None:
    assert len(RECEIPT.nodes) == 3
    assert RECEIPT.max_nodes == 2


@pytest.mark.parametrize(
    ("code", "trouble", "outcome"),
    [(0, "", "done"), (130, "", "stopped by Ctrl-C"), (9, "", "failed: exit code 9"),
     (0, "no loop device", "the rehearsal itself failed")],
)  # fmt: skip
def test_the_outcome_is_in_words(code: int, trouble: str, outcome: str) -> None:
    assert replace(RECEIPT, code=code, trouble=trouble).outcome == outcome


def test_the_receipt_names_the_region_whose_prices_it_counts_with() -> None:
    """A bug: it named us-east-1 for nodes in any region."""
    node = RECEIPT.nodes[0]
    far = replace(RECEIPT, nodes=[replace(node, zone="eu-central-1b")])
    assert far.regions == "eu-central-1"
    assert "on demand in eu-central-1" in as_text(far)
    assert replace(RECEIPT, place="eu-west-1; nodes: x", nodes=[replace(node, zone="")]).regions == "eu-west-1"
    assert replace(far, nodes=[*far.nodes, node]).regions == "eu-central-1, us-east-1"


# ---- text


EXPECTED = """\
receipt of job digits-cnn
  launch: exit code 0

faults
  21.9 s  node-dies@epoch:1: i-3d9be81a6cc485bb6 is dead, after epoch 1

time: 96.0 s
  plan          1.8 s
  provision     0.7 s
  boot          4.3 s
  rendezvous   13.2 s
  train        68.0 s
  tear down     8.0 s

nodes: g5.2xlarge in us-east-1a
  node                 rank  from    for     end
  i-4a579d6d2ee1191b1  0     2.5 s   85.9 s  Client.InstanceInitiatedShutdown
  i-3d9be81a6cc485bb6  1     2.8 s   19.2 s  Server.InternalError
  i-c2657aa1b2fc9d113  1     23.7 s  61.4 s  Client.InstanceInitiatedShutdown

requests: 9 (5 writes, 4 reads)
  2 writes by the launcher: ec2:RunInstances 2
  3 reads by the launcher: ec2:DescribeInstances 3
  3 writes by the nodes: s3:PutObject 3
  1 read by the nodes: s3:HeadObject 1
  errors on AWS's side: 1

resources: 4 made, 4 removed, 0 left
  3 x instance
  1 x security group
  not counted: the job folder and the logs, which stay on AWS as well

on AWS: about 0.0570 USD
  nodes and volumes for these seconds, on demand in us-east-1;
  the plan above has the expected price of the whole job

results in runs/digits-cnn
  receipt.html    this receipt as a page, with a replay
  curves.png      loss and accuracy
  model.pt        the weights
  metrics.jsonl   metrics of each epoch
  logs/           the log of each rank
  requests.jsonl  every request
  job/            plan, cluster, exit records, boot logs

differences from AWS
  docker is a stand-in: it runs the container's command with this Python,
    without GPUs.

receipt: runs/digits-cnn/receipt.html"""


def test_it_fits_80_columns() -> None:
    assert as_text(RECEIPT) == EXPECTED
    assert max(map(len, EXPECTED.splitlines())) <= 80


# ---- files


class Left:
    """An account with objects under these keys, and these streams of the log."""

    def __init__(self, *keys: str, streams: tuple[str, ...] = ()) -> None:
        self.keys, self.streams = keys, streams

    def objects(self, _bucket: str | None) -> dict[str, Any]:
        return {key: SimpleNamespace(value=b"x") for key in self.keys}

    def logs(self) -> dict[str, list[str]]:
        return {f"j/{stream}": ["x"] for stream in self.streams}

    def get(self, _uri: str) -> bytes:
        return b"x"


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_no_key_and_no_stream_leads_out_of_the_jobs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "one" / "two"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    out = f"jobs/j/run/{tmp_path}/absolute"
    left = Left(out, "jobs/j/run/../../../up", "jobs/j/../x", "jobs/j/run/a", "jobs/j/job.json", "../../y",
                streams=("rank-0", "../../../up"))  # fmt: skip

    folder, sizes = save(left, "bucket", "j", [])  # type: ignore[arg-type]

    assert files(tmp_path) == [f"one/two/runs/j/{name}" for name in ("a", "job/job.json", "logs/rank-0.log",
                                                                     "requests.jsonl")]  # fmt: skip
    assert sorted(sizes) == files(folder)


def test_a_file_of_the_run_folder_replaces_nothing_that_the_rehearsal_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("requests.jsonl", "job", "job/job.json", "logs", "logs/rank-0.log", "mine")
    left = Left(*(f"jobs/j/run/{name}" for name in names), "jobs/j/job.json", streams=("rank-0",))

    folder, sizes = save(left, None, "j", [])  # type: ignore[arg-type]

    assert sizes == {"requests.jsonl": 0, "logs/rank-0.log": 2, "job/job.json": 1, "mine": 1}
    assert files(folder) == sorted(sizes)


def test_no_key_leads_out_of_a_channel_of_sagemaker(tmp_path: Path) -> None:
    keys = [f"s3://bucket/data/{name}" for name in ("a", "../../up", "b/../../../up", "folder/")]

    download(Left(), keys, "s3://bucket/data/", tmp_path / "one" / "two")  # type: ignore[arg-type]

    assert files(tmp_path) == ["one/two/a"]
