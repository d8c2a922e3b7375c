"""Nodes that wait for a next job after theirs, and become nodes of that job."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.launch.ec2.boot.job import BUCKET, JOB, get, image_of, keys, needs_nodes, put, put_cluster, record, user_data
from tests.launch.ec2.boot.job import wait_for as wait
from tests.launch.ec2.nodes import Region, Volume

pytestmark = [pytest.mark.timeout(180), needs_nodes]

NEXT = "source/next-1"


def exit_of(here: Region, instance: str, job: str = JOB) -> dict[str, object]:
    body = here.client("s3").get_object(Bucket=BUCKET, Key=f"jobs/{job}/exits/{instance}.json")["Body"]
    found: dict[str, object] = json.loads(body.read())
    return found


@pytest.mark.slow("a warm node becomes a node of the next job, with nothing of the one before")
def test_a_warm_node_becomes_one_of_the_next_job_with_nothing_of_the_one_before(
    here: Region, digits: Volume, tmp_path: Path
) -> None:
    world = image_of(tmp_path, """
        assert Path("/data/train").is_dir()
        (run / f"of-{sys.argv[-1]}").touch()
        if sys.argv[-1] == "second":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
            time.sleep(60)
    """)  # fmt: skip

    def script(job: str, **more: str) -> str:
        values = {"DATA_VOLUME": "per-node", "TRAIN": [job], "FOLDER": f"s3://{BUCKET}/jobs/{job}", "JOB": job, **more}
        return user_data(**values)  # type: ignore[arg-type]

    node = here.launch(script(JOB, WARM="30", NEXT=NEXT), volume=digits, world=world)
    put_cluster(here, node)
    wait(lambda: f"exits/{node.instance}.json" in keys(here), node)
    first = exit_of(here, node.instance)
    assert first["code"] == 0
    assert first["warm_until"] == pytest.approx(int(str(first["at"])) + 1800, abs=2)

    cluster = get(here, "cluster.json").replace(JOB, "second")
    here.client("s3").put_object(Bucket=BUCKET, Key="jobs/second/cluster.json", Body=cluster.encode())
    put(here, NEXT, script("second"))

    def of_second() -> set[str]:
        listed = here.client("s3").list_objects_v2(Bucket=BUCKET, Prefix="jobs/second/").get("Contents", ())
        return {entry["Key"].removeprefix("jobs/second/") for entry in listed}

    wait(lambda: (node.root / "var/lib/ddp/run/of-second").exists(), node)
    for pid in node.processes("/var/lib/ddp.next"):
        os.kill(pid, signal.SIGTERM)  # which the script of the first job ignored at its end
    node.wait_until_off()
    assert exit_of(here, node.instance, "second")["code"] == 143
    assert {name for name in of_second() if name.startswith("run/")} == {"run/of-second", "run/try-0"}
    assert sum(call[0] == "run" for call in node.docker_calls) == 2
    assert node.shutdowns == ["-h +90", "-h +30", "-h +30", "-h +90", "-h +30", "-h now"]


@pytest.mark.slow("a warm node ends by itself, and only a node that has trained stays warm")
@pytest.mark.parametrize(("code", "stays"), [(0, True), (3, True), (6, False), (75, False)])
def test_only_a_node_that_has_trained_or_whose_script_failed_stays_and_it_ends_in_time(
    here: Region, tmp_path: Path, code: int, stays: bool
) -> None:
    world = image_of(tmp_path, f"sys.exit({code})")
    node = here.launch(user_data(WARM="0", NEXT=NEXT, MAX_RESTARTS="0"), world=world)
    put_cluster(here, node)
    assert ("warm_until" in record(here, node)) is stays
    assert node.shutdowns[-2:] == (["-h +0", "-h now"] if stays else ["-h +30", "-h now"])
