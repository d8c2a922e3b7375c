"""Nodes that are plain processes, which is what a rehearsal has without root."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.rehearse.nodes.ec2.node import Node, NodeSetup, Volume
from launch.rehearse.nodes.ec2.processes import Processes, processes, relocated
from tests import needs
from tests.conftest import ROOT
from tests.launch.ec2.boot.job import user_data
from tests.processes import left_of, processes_with

pytestmark = needs.process_nodes()

# Every path that boot.sh contains, so that relocated() finds it.
PLACES = (
    ": /var/lib/ddp /run/ddp /data /dev/disk/by-id /dev/shm /job/run /job/source /job/toolkit http://169.254.169.254 "
    "head:29400\n"
)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path / "nodes") as made:
        yield made


def start(machines: Processes, script: str, volume: Volume | None = None, **others: Any) -> Node:
    return machines.power_on("i-1", "127.0.0.1", PLACES + script, NodeSetup("http://127.0.0.1:9", **others), volume)


def wait_until(what: object, timeout_s: float = 10) -> None:
    end = time.monotonic() + timeout_s
    while not what():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


def test_only_paths_and_ports_of_the_boot_script_are_relocated(tmp_path: Path) -> None:
    before = user_data("--data-dir", "/data")

    after = relocated(before, Path("/NODE"), "http://127.0.0.1:1234", 5678)

    back = after.replace("/NODE", "").replace("http://127.0.0.1:1234", "http://169.254.169.254")
    assert back.replace(":5678", ":29400") == before
    assert "/NODE/NODE" not in after
    assert '-v /NODE/data:/NODE/data:ro -v "$RUN:/NODE/job/run"' in after
    assert "--data-dir /NODE/data" in after
    subprocess.run(["bash", "-n"], input=after, text=True, check=True)


def test_a_boot_script_without_a_known_path_is_an_error() -> None:
    with pytest.raises(KeyError, match="job/run"):
        relocated(user_data().replace("/job/run", "/elsewhere"), Path("/NODE"), "http://127.0.0.1:1", 1)


def test_a_node_that_shuts_down_is_off_and_all_it_started_is_gone(machines: Processes) -> None:
    node = start(machines, "setsid sleep 1234 &\n(sleep 1235 &)\nshutdown -h +9; shutdown -h now; echo still here")
    mark = f"EC2_ROOT={node.root}"

    wait_until(lambda: not node.is_on)

    assert left_of(mark) == []
    assert (node.root / "ec2/shutdown-calls").read_text() == "-h +9\n-h now\n"
    assert node.console == ""


def test_a_nodes_programs_can_be_replaced(machines: Processes) -> None:
    node = start(machines, "docker run; shutdown -h now", programs={"docker": '#!/bin/sh\necho "$1: ours"\n'})

    wait_until(lambda: not node.is_on)

    assert node.console == "run: ours\n"


def test_a_node_that_is_powered_off_ends_all_its_processes(machines: Processes) -> None:
    node = start(machines, "trap '' TERM INT HUP\n(trap '' TERM; setsid sleep 1234) &\nsleep 1235")
    mark = f"EC2_ROOT={node.root}"
    wait_until(lambda: len(processes_with(mark)) >= 4)

    node.power_off()
    node.power_off()

    assert left_of(mark) == []
    assert not node.is_on


def test_a_node_finds_its_metadata_and_address(machines: Processes) -> None:
    ask = (
        "token=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)\n"
        'curl -sf -H "X-aws-ec2-metadata-token: $token" http://169.254.169.254/latest/meta-data/instance-id\n'
        "echo; ip -o -4 address show to 127.0.0.7 | { read -r _ name _; echo $name; }\n"
    )
    node = start(machines, ask + "shutdown -h now")

    wait_until(lambda: not node.is_on)

    assert node.console.split()[:2] == ["i-1", "lo" if sys.platform == "linux" else "lo0"]


def test_a_volume_is_mounted_where_boot_sh_wants_it(machines: Processes, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.txt").write_text("an image")
    mount = "mount -o ro,noload /dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol1 /data && cat /data/a.txt\n"

    node = start(machines, mount + "shutdown -h now", Volume("vol-1", tmp_path / "set"))

    wait_until(lambda: not node.is_on)
    assert node.console == "an image"


@pytest.mark.skipif(sys.platform != "linux", reason="compares with GNU's")
@pytest.mark.parametrize(
    "command",
    [
        ["find", ".", "-type", "f", "!", "-name", ".*", "-printf", r"%s %P\n"],
        ["timeout", "--kill-after=5", "0.2", "sleep", "5"],
        ["timeout", "5", "sh", "-c", "exit 7"],
        ["tail", "-n", "1", "a"],
    ],
)
def test_programs_for_systems_without_gnus_do_the_same(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "deep" / "b").write_text("three")
    (tmp_path / ".hidden").write_text("four")
    ours = [sys.executable, "-P", str(ROOT / "launch/rehearse/nodes/ec2/programs.py"), *command]

    ends = [subprocess.run(one, cwd=tmp_path, capture_output=True, text=True, check=False) for one in (command, ours)]

    said = [sorted(" ".join(line.split()[-2:]) for line in end.stdout.splitlines()) for end in ends]
    assert said[0] == said[1]
    assert ends[0].returncode == ends[1].returncode


def test_flock_excludes_a_second_process(tmp_path: Path) -> None:
    flock = f"{sys.executable} -P {ROOT / 'launch/rehearse/nodes/ec2/programs.py'} flock --nonblock 9"
    first = subprocess.Popen(["bash", "-c", f"exec 9>lock; {flock} && echo locked; read -r"], cwd=tmp_path,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    with first:
        assert first.stdout is not None
        assert first.stdout.readline() == "locked\n"

        second = subprocess.run(["bash", "-c", f"exec 9>lock; {flock}"], cwd=tmp_path, check=False)

        first.communicate("")
    assert second.returncode == 1
    assert os.path.exists(tmp_path / "lock")  # noqa: PTH110
