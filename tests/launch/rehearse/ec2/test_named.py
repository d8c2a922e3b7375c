"""Jobs that name what an account of the user's own would have train in a rehearsal.

tests/launch/rehearse/test_accounts.py has every option, as far as the nodes' start.
"""

from pathlib import Path

import pytest

from tests.launch.rehearse.ec2.conftest import needs_nodes
from tests.launch.rehearse.ec2.photos import write_images
from tests.launch.rehearse.terminal import Start

SUFFIX = "0123456789abcdef0"
# All that can be named at once, and data in the toolkit's own bucket.
EVERYTHING = (
    "--subnet", f"subnet-{SUFFIX}", "--security-group", f"sg-{SUFFIX}", "--capacity-reservation", f"cr-{SUFFIX}",
    "--ami", f"ami-{SUFFIX}", "--image", "me/train:v3", "--instance-profile", "nodes", "--scheduler-role", "timer",
    "--bucket", "aws-ddp-toolkit-mine", "--data-s3", "s3://aws-ddp-toolkit-123456789012-us-east-1/data/raw",
)  # fmt: skip


@needs_nodes
@pytest.mark.slow("rehearsed nodes train with every resource and all data that the command line names")
@pytest.mark.parametrize(
    ("words", "is_prepared"),
    [
        (EVERYTHING, False),
        (("--data-snapshot", f"snap-{SUFFIX}"), False),
        (("--data-url", "s3://aws-ddp-toolkit-mine/data/shards"), True),
    ],
    ids=["everything", "snapshot", "shards"],
)
def test_a_job_trains_with_what_it_names(
    words: tuple[str, ...], is_prepared: bool, start: Start, tmp_path: Path
) -> None:
    data = write_images(tmp_path / "photos")
    if is_prepared:
        made = start(str(data), str(tmp_path / "shards"), "--workers", "1", module="trainer.prepare")
        assert made.end() == 0, made.text
        data = tmp_path / "shards"

    played = start(
        "--rehearse", "--job-name", "job", "--max-restarts", "0", "--dataset", "imagefolder", "--model", "cnn",
        "--image-size", "32", "--batch-size", "4", "--epochs", "1", "--no-plot", "--rehearse-data", str(data), *words,
    )  # fmt: skip

    assert played.end() == 0, played.text
    assert [(row["epoch"], row["world_size"]) for row in played.kept.epochs()] == [(1, 1)]
    assert " 0 left" in played.text
    assert played.left() == []
