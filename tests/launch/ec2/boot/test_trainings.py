"""Nodes that train: their results and logs, their data, and what is left of a test that is killed."""

import time
from pathlib import Path

import pytest

from launch.aws import containers
from launch.aws.containers import toolkit
from launch.core.training.classifier import Classifier
from tests.launch.ec2.boot.job import (
    BUCKET,
    SETTINGS,
    epochs,
    file_on,
    get,
    image_of,
    keys,
    log_of,
    needs_nodes,
    put,
    put_cluster,
    record,
    user_data,
    wait_for,
)
from tests.launch.ec2.nodes import Region, Volume, World
from trainer.config import TrainConfig

pytestmark = pytest.mark.timeout(180)  # a boot starts dozens of processes


@needs_nodes
@pytest.mark.slow("two nodes train from one data volume, and leave results, logs and records")
def test_two_nodes_train_from_the_volume_and_leave_results_logs_and_records(here: Region, digits: Volume) -> None:
    script = user_data(*SETTINGS, "--epochs", "2", DATA_VOLUME="multi-attach")
    nodes = [here.launch(script, volume=digits) for _ in range(2)]
    put_cluster(here, *nodes)

    records = [record(here, node) for node in nodes]

    for rank, (node, left) in enumerate(zip(nodes, records, strict=True)):
        assert left.pop("at") == pytest.approx(time.time(), abs=600)
        assert left == {"instance": node.instance, "rank": rank, "generation": 1, "code": 0, "step": "train",
                        "reason": "done", "restarts": 0}  # fmt: skip
        assert node.shutdowns == ["-h +90", "-h +30", "-h now"]
        assert f"node {rank} of 2, generation 1" in get(here, f"boot/{node.instance}.log")
        assert {f"boot/{node.instance}.{step}" for step in ("started", "data", "image", "train")} <= keys(here)
    assert epochs(here) == [1, 2]
    assert {"run/model.pt", "run/config.yaml", "run/checkpoints/best.pt"} <= keys(here)
    assert [key for key in keys(here) if "/." in key] == []
    logs = [log_of(here, rank) for rank in range(2)]
    assert sum("[METRIC]" in line for log in logs for line in log) == 2
    assert any("on imagefolder: 96 training and 24 evaluation images" in line for log in logs for line in log)


@needs_nodes
@pytest.mark.slow("the training has the proxy's variables")
def test_the_training_has_the_proxys_variables(here: Region, tmp_path: Path) -> None:
    """`*` stands for all hosts, as there is no proxy here; the node's own requests go past it as well."""
    world = image_of(
        tmp_path, 'import os\nprint(os.environ["HTTPS_PROXY"], os.environ["https_proxy"], os.environ["no_proxy"])'
    )
    node = here.launch(user_data(PROXY="http://127.0.0.1:9", DIRECT="*"), world=world)
    put_cluster(here, node)

    assert record(here, node)["code"] == 0
    assert log_of(here, 0) == ["http://127.0.0.1:9 http://127.0.0.1:9 *"]


@needs_nodes
@pytest.mark.slow("data from S3 are on the node, and nobody can change them")
def test_data_from_s3_are_on_the_node_and_nobody_can_change_them(here: Region, tmp_path: Path) -> None:
    here.client("s3").put_object(Bucket=BUCKET, Key="data/train/a.txt", Body=b"an image")
    world = image_of(tmp_path, """
        import errno
        (run / "seen").write_text(Path("/data/train/a.txt").read_text())
        try:
            Path("/data/b").touch()
        except OSError as error:
            assert error.errno == errno.EROFS
            sys.exit(0)
    """)  # fmt: skip
    node = here.launch(user_data(DATA_S3=f"s3://{BUCKET}/data"), world=world)
    put_cluster(here, node)

    assert record(here, node)["code"] == 0
    assert get(here, "run/seen") == "an image"


@needs_nodes
@pytest.mark.slow("only what changed on a node is uploaded")
def test_only_what_changed_on_this_node_goes_to_the_job_folder(here: Region, tmp_path: Path) -> None:
    put(here, "run/others.txt", "old")
    put(here, "run/mine.txt", "old")
    put(here, "run/gone.txt", "old")
    world = image_of(tmp_path, """
        (run / "mine.txt").write_text("new")
        (run / "gone.txt").unlink()
        (run / ".half.pt.7.tmp").touch()
        (run / "ready").touch()
        while not (run / "go").exists():
            time.sleep(0.05)
        (run / "last.txt").write_text("last")
    """)  # fmt: skip
    node = here.launch(user_data(seconds={"UPLOAD_EVERY_S": 1}), world=world)
    put_cluster(here, node)
    wait_for(lambda: file_on(node, "ready").exists(), node)
    put(here, "run/others.txt", "new")

    wait_for(lambda: "run/ready" in keys(here) and "run/gone.txt" not in keys(here), node)
    file_on(node, "go").touch()

    assert record(here, node)["code"] == 0
    assert [get(here, f"run/{name}.txt") for name in ("others", "mine", "last")] == ["new", "new", "last"]
    assert {key for key in keys(here) if key.startswith("run/")} == {
        "run/others.txt", "run/mine.txt", "run/last.txt", "run/ready", "run/go", "run/try-0",
    }  # fmt: skip


@needs_nodes
@pytest.mark.slow("an image without the trainer gets it, and the packages that it lacks")
def test_an_image_without_the_trainer_gets_it_with_its_packages(here: Region, tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    archive = toolkit(Classifier(TrainConfig(model="cnn")), containers.lacking())
    here.client("s3").put_object(Bucket=BUCKET, Key="scripts/2026-11/x/toolkit.tar.gz", Body=archive.content)
    script = user_data(
        "--model", "cnn", "--dataset", "digits", "--epochs", "1", "--no-plot", "--cache-dir", "/tmp/cache",
        TOOLKIT=f"s3://{BUCKET}/scripts/2026-11/x/toolkit.tar.gz",
    )  # fmt: skip
    node = here.launch(script, world=World(image=tmp_path / "image"))
    put_cluster(here, node)

    assert record(here, node)["code"] == 0
    assert epochs(here) == [1]
