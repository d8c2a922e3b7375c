"""Own images, prepared and published block by block on the embedded AWS, train two nodes that mount the snapshot."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import trainer_env
from tests.launch.rehearse.ec2.conftest import needs_namespaces
from tests.launch.rehearse.terminal import Start


def write_images(folder: Path) -> Path:
    """Two classes, of ten images to train and four to evaluate."""
    for split, count in (("train", 10), ("val", 4)):
        for name, colour in (("cat", "red"), ("dog", "blue")):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (40 + number, 48), colour).save(folder / split / name / f"{number}.jpg")
    return folder


@needs_namespaces
@pytest.mark.timeout(300)
@pytest.mark.slow("two rehearsed nodes train from a snapshot that launch.data made of the user's own images")
def test_two_nodes_train_from_a_published_snapshot(start: Start, tmp_path: Path) -> None:
    photos = write_images(tmp_path / "photos")
    prepare = (sys.executable, "-m", "trainer.prepare", str(photos), str(tmp_path / "prepared"))
    subprocess.run(prepare, env=trainer_env(), check=True, capture_output=True, timeout=120)

    training = (
        "--dataset",
        "imagefolder",
        "--model",
        "cnn",
        "--image-size",
        "32",
        "--batch-size",
        "4",
        "--epochs",
        "1",
    )
    played = start("--nodes", "2", "--rehearse", "--job-name", "job", "--data", "photos", "--no-plot", *training,
                   "--rehearse-data", str(tmp_path / "prepared"))  # fmt: skip
    code = played.end()

    assert code == 0, played.text
    assert [(row["epoch"], row["world_size"]) for row in played.kept.epochs()] == [(1, 2)]
    assert "ebs:PutSnapshotBlock" in played.text
    assert "blocks are as they were written" in played.text
    assert " 0 left" in played.text
