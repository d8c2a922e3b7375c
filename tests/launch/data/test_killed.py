"""launch.data as a process that is really killed, on the embedded AWS over HTTP."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from moto.ebs.models import ebs_backends

from launch.rehearse.aws.ec2 import ebs
from launch.rehearse.aws.server import Request, RequestLog, served
from tests.conftest import ROOT
from tests.launch.data.desk import NAME, write_prepared
from tests.launch.ec2.account import Account


@pytest.mark.slow("launch.data publish, killed with SIGKILL, goes on and sends the same bytes")
def test_after_sigkill_the_same_command_goes_on_and_the_bytes_are_the_same(tmp_path: Path) -> None:
    folder, log = write_prepared(tmp_path / NAME, (8_000_000, 40_000)), RequestLog()
    sent = list[str]()

    def kill_in_the_middle(request: Request) -> None:
        if request.operation == "PutSnapshotBlock":
            sent.append(request.path)
            if len(sent) == 8:
                os.kill(process.pid, signal.SIGKILL)

    log.after = kill_in_the_middle
    with Account.opened() as account, served(log, None) as port:
        env = {
            **os.environ,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_DEFAULT_REGION": account.region,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }
        command = [sys.executable, "-m", "launch.data", "publish", str(folder), "--connections", "4"]
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
        assert process.wait(60) == -signal.SIGKILL
        again = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)
        assert again.returncode == 0, again.stderr

        record = account.s3(f"data/{NAME}/published.json")
        assert record is not None
        snapshot = ebs_backends[account.id][account.region].snapshots[record["snapshot"]]
        # At most the four that were under way are sent twice.
        assert len(snapshot.blocks) <= len(sent) <= len(snapshot.blocks) + 4
        with (tmp_path / "volume").open("wb") as file:
            ebs.write_volume(snapshot, file, fills=False)
    shown = ["/usr/sbin/debugfs", "-R", "cat /train/000000.tar", str(tmp_path / "volume")]
    assert subprocess.run(shown, capture_output=True, check=True).stdout == (folder / "train/000000.tar").read_bytes()
