"""What a rehearsal says at its end."""

from dataclasses import replace

from launch.rehearse.receipt.text import as_text
from tests.launch.rehearse.receipt.receipts import RECEIPT

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
  nodes and volumes for these seconds, on demand in us-east-1

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


def test_what_is_left_stands_out() -> None:
    text = as_text(replace(RECEIPT, left={"instance": 1}))

    assert "resources: 4 made, 3 removed, 1 left" in text
    assert "3 x instance, 1 LEFT" in text


def test_where_nothing_was_made_there_is_no_empty_section() -> None:
    text = as_text(replace(RECEIPT, nodes=[], requests=[], made={}, files={}, faults=[], code=2))

    assert "nodes" not in text.split("on AWS")[0].replace("requests: 0", "")
    assert "results in runs/digits-cnn\n  receipt.html" in text
