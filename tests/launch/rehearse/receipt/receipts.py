"""A rehearsal's receipt, as literals: a node dies and is replaced."""

from datetime import UTC, datetime
from pathlib import Path

from launch.rehearse.aws.server import Request
from launch.rehearse.receipt.facts import Receipt, ReceiptNode
from launch.rehearse.recording import Change, Epoch, Line

FIRST, SECOND, THIRD = "i-4a579d6d2ee1191b1", "i-3d9be81a6cc485bb6", "i-c2657aa1b2fc9d113"
SHUT_DOWN, DEAD = "Client.InstanceInitiatedShutdown", "Server.InternalError"
HOSTILE = '[0] <script>document.title = "broken in"</script><img src="https://example.com/x.png"> & "quotes"'
RECEIPT = Receipt(
    job="digits-cnn",
    backend="launch.ec2",
    command="python -m launch.ec2 --nodes 2 --rehearse --inject node-dies@epoch:1",
    place="us-east-1; nodes: network namespaces",
    recorded=datetime(2026, 11, 21, 20, 2, tzinfo=UTC),
    code=0,
    commands=[("launch", 0)],
    seconds={"plan": 1.8, "provision": 0.7, "boot": 4.3, "rendezvous": 13.2, "train": 68.0, "tear down": 8.0},
    faults=[(21.9, f"node-dies@epoch:1: {SECOND} is dead, after epoch 1")],
    requests=[
        *(Request(at, 0.1, True, "ec2", "DescribeInstances", "", 200) for at in (3.0, 4.0, 5.0)),
        *(Request(at, 0.1, True, "ec2", "RunInstances", "", 200) for at in (2.2, 23.0)),
        Request(20.0, 0.1, False, "s3", "HeadObject", "/b/k", 404),
        *(Request(at, 0.1, False, "s3", "PutObject", "/b/k", 200) for at in (20.5, 80.0)),
        Request(81.0, 0.1, False, "s3", "PutObject", "/b/k", 503),
    ],
    made={"instance": 3, "security group": 1},
    left={},
    nodes=[
        ReceiptNode(FIRST, 0, "g5.2xlarge", "us-east-1a", "172.31.0.4", 2.5, 88.4, SHUT_DOWN, 0.0294),
        ReceiptNode(SECOND, 1, "g5.2xlarge", "us-east-1a", "172.31.0.5", 2.8, 22.0, DEAD, 0.0066),
        ReceiptNode(THIRD, 1, "g5.2xlarge", "us-east-1a", "172.31.0.5", 23.7, 85.1, SHUT_DOWN, 0.0210),
    ],
    lines=[
        Line(0.0, "rehearsal", "an AWS in this process, us-east-1; nodes: network namespaces; job digits-cnn"),
        Line(1.9, "launcher", "start 2 nodes, all or none, where there is room first"),
        Line(2.5, "node", f"node {FIRST}, rank 0 at 172.31.0.4: boots"),
        Line(21.2, "node", "epoch 1/2: loss 1.7584, eval accuracy 85.6%, 1,829 images/s"),
        Line(21.9, "rehearsal", f"injected node-dies@epoch:1: {SECOND} is dead, after epoch 1"),
        Line(70.0, "launcher", HOSTILE),
        Line(79.0, "node", "epoch 2/2: loss 0.2210, eval accuracy 98.3%, 971 images/s"),
        Line(95.9, "launcher", "the training is done"),
    ],
    changes=[
        Change(2.5, FIRST, "boots", 0, "172.31.0.4", ""),
        Change(2.8, SECOND, "boots", 1, "172.31.0.5", ""),
        Change(6.8, FIRST, "trains", 0, "172.31.0.4", ""),
        Change(7.1, SECOND, "trains", 1, "172.31.0.5", ""),
        Change(22.0, SECOND, "off", 1, "172.31.0.5", DEAD),
        Change(23.7, THIRD, "boots", 1, "172.31.0.5", ""),
        Change(26.9, THIRD, "trains", 1, "172.31.0.5", ""),
        Change(79.9, FIRST, "uploads", 0, "172.31.0.4", ""),
        Change(85.1, THIRD, "off", 1, "172.31.0.5", SHUT_DOWN),
        Change(88.4, FIRST, "off", 0, "172.31.0.4", SHUT_DOWN),
    ],
    epochs=[
        Epoch(21.2, {"epoch": 1, "train_loss": 1.7584, "train_top1": 0.411, "eval_loss": 0.5049, "eval_top1": 0.856,
                     "images_per_s": 1829.1}),
        Epoch(79.0, {"epoch": 2, "train_loss": 0.2210, "train_top1": 0.942, "eval_loss": 0.0944, "eval_top1": 0.983,
                     "images_per_s": 971.5}),
    ],
    folder=Path("runs/digits-cnn"),
    files={"curves.png": 69655, "job/job.json": 1029, "logs/node-0.log": 3624, "metrics.jsonl": 3854,
           "model.pt": 750585, "requests.jsonl": 48345},
    differences=["docker is a stand-in: it runs the container's command with this Python, without GPUs."],
    trouble="",
)  # fmt: skip
