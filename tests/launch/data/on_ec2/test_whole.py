"""launch.data publish --by instance from end to end: the user data runs for real, with the bundle that the user sent,
trainer.prepare and AWS's command line, against the embedded AWS over HTTP; and again where the instance is lost.
"""

import io
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from moto.ebs.models import ebs_backends
from PIL import Image

from launch.rehearse.aws.ec2 import ebs
from launch.rehearse.aws.server import Request, RequestLog, served
from tests.launch.data.on_ec2.desk import SOURCE, Ec2Desk, opened, script_of
from tests.launch.data.on_ec2.machine import Machine, warm_aws

REPORT = {"REPORT_S": "5", "TRANSFER_S": "60"}


@contextmanager
def with_images(folder: Path) -> Iterator[Ec2Desk]:
    """An account with a folder of images in its bucket, as nobody has prepared them."""
    with opened(folder) as desk:
        for key in [key for key in desk.account.s3_keys() if key.startswith(SOURCE)]:
            del desk.account.objects()[key]
        for split in ("train", "val"):
            for number in range(6):
                packed = io.BytesIO()
                Image.effect_noise((300, 320), 40 + number).convert("RGB").save(packed, "JPEG")
                name = f"{SOURCE}/{split}/{'cat' if number % 2 else 'dog'}/{number}.jpg"
                desk.account.put(desk.account.bucket, name, packed.getvalue())
        yield desk


def runs_user_data(port: int, aws: str, machines: list[Machine], started: list[Any]) -> Any:
    def run(desk: Ec2Desk, instance: Any) -> None:
        env = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }
        machine = Machine(desk.folder.parent / instance.id, env=env, aws=aws)
        machines.append(machine)
        # Each connection takes as long as ten calls to be made.
        process = machine.start(script_of(instance).replace("--connections=64", "--connections=4"), **REPORT)
        started.append(process)
        process.wait(300)
        desk.account.kill(instance.id, "Client.InstanceInitiatedShutdown: Instance initiated shutdown")

    return run


@pytest.mark.timeout(300)
@pytest.mark.slow("launch.data publish --by instance, from end to end: lost in the middle, and gone on with")
def test_a_lost_instance_is_followed_by_one_that_goes_on_with_its_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, machines, started, sent = RequestLog(), list[Machine](), list[Any](), list[str]()

    def lose_it(request: Request) -> None:
        if request.operation == "PutSnapshotBlock":
            sent.append(request.path)
            if len(sent) == 3:
                os.killpg(started[-1].pid, signal.SIGKILL)

    log.after = lose_it
    with with_images(tmp_path) as desk, served(log, None) as port, warm_aws() as aws:
        desk.node = runs_user_data(port, aws, machines, started)
        assert desk.publish_s3() == 6, desk.text
        assert "it ended without a record of why; run the same command again" in capsys.readouterr().err
        (pending,) = desk.snapshots()
        assert (pending.status, desk.billed()) == ("pending", [])

        assert desk.publish_s3() == 0, desk.text + machines[-1].log
        (snapshot,) = desk.snapshots()
        assert (snapshot.id, snapshot.status, desk.billed()) == (pending.id, "completed", [])
        assert (desk.record["state"], desk.record["content"]["train"]) == ("published", 6)
        assert len(machines) == 2
        assert machines[-1].end["code"] == 0
        written = ebs_backends[desk.account.id]["us-east-1"].snapshots[snapshot.id]
        with (tmp_path / "volume").open("wb") as file:
            ebs.write_volume(written, file, fills=False)
        shards = {name: content for name, content in desk.s3().items() if name.endswith(".tar")}
    assert len(shards) == 2
    for name, content in shards.items():
        shown = ["/usr/sbin/debugfs", "-R", f"cat /{name}", str(tmp_path / "volume")]
        assert subprocess.run(shown, capture_output=True, check=True).stdout == content
