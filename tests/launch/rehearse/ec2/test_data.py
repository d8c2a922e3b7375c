"""A rehearsed job trains with published data and named resources, and a second one on the warm nodes of the first."""

import json
import re
from pathlib import Path

import pytest

from tests.launch.rehearse.ec2.conftest import needs_namespaces
from tests.launch.rehearse.ec2.photos import write_images
from tests.launch.rehearse.terminal import Start

TRAINING = ("--dataset", "imagefolder", "--model", "cnn", "--image-size", "32", "--batch-size", "4", "--epochs", "1",
            "--no-plot")  # fmt: skip

# All that can be named at once; tests/launch/rehearse/test_accounts.py has every option, as far as the nodes' start.
SUFFIX = "0123456789abcdef0"
EVERYTHING = (
    "--subnet", f"subnet-{SUFFIX}", "--security-group", f"sg-{SUFFIX}", "--capacity-reservation", f"cr-{SUFFIX}",
    "--ami", f"ami-{SUFFIX}", "--image", "me/train:v3", "--instance-profile", "nodes", "--scheduler-role", "timer",
    "--bucket", "aws-ddp-toolkit-mine",
)  # fmt: skip


@needs_namespaces
@pytest.mark.timeout(300)
@pytest.mark.slow("two jobs train on the same rehearsed nodes, from published images, with every named resource")
def test_two_jobs_train_on_the_same_nodes_from_a_published_snapshot(start: Start, tmp_path: Path) -> None:
    """With the real trainer.prepare, and killed while it sends blocks.

    That the bytes are equal is what launch.data says last: every block is read back and compared.
    """
    photos = write_images(tmp_path / "photos")
    played = start("--nodes", "2", "--rehearse", "--job-name", "job", "--data", "photos", *TRAINING,
                   "--rehearse-data", str(photos), "--inject", "launcher-killed@call:15", "--keep-warm", "10",
                   *EVERYTHING)  # fmt: skip
    code = played.end()

    assert code == 0, played.text
    ends = [("publish", "137"), ("publish", "0"), ("launch", "0"), ("launch", "0"), ("stop", "0")]
    assert re.findall(r"(\w+): exit code (\d+)", played.text) == ends
    assert "2 warm nodes of job (g5.2xlarge in " in played.text
    assert "2 x instance\n" in played.text
    assert "20 images to train on, 8 to evaluate on, 2 classes" in played.text
    assert "killed the launcher at request 15, ebs:PutSnapshotBlock" in played.text
    assert "the launcher was killed; running the same command again to continue publishing photos" in played.text
    compared = re.search(r"(\d+) of (\d+) blocks are as they were written", played.text)
    assert compared is not None
    assert compared[1] == compared[2]
    requests = (played.folder / "runs/job/requests.jsonl").read_text().splitlines()
    assert sum(json.loads(row)["operation"] == "StartSnapshot" for row in requests) == 1, "it must go on with the same"
    assert [(row["epoch"], row["world_size"]) for row in played.kept.epochs()] == [(1, 2)]
    assert not list(photos.parent.glob("photos-*"))
    assert ", 0 left" in played.text
    assert played.left() == []
