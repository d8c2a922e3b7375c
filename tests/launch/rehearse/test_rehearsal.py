"""Whole rehearsals, as a user starts them.  Each ends with nothing left, on the embedded AWS and on this machine."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from launch.rehearse.ec2 import processes
from launch.rehearse.ec2.namespaces import why_not_here
from tests.conftest import ROOT
from tests.processes import processes_with

SETTINGS = ("--nodes", "2", "--rehearse", "--epochs", "8", "--precision", "fp32", "--no-plot", "--job-name", "job")
# As somebody who is not root, although the tests may be.
WITHOUT_ROOT = """
import sys
from launch.ec2.__main__ import main
from launch.rehearse.ec2 import namespaces
namespaces.why_not_here = lambda: "not asked for"
sys.exit(main(sys.argv[1:]))
"""
needs_namespaces = pytest.mark.skipif(why_not_here() is not None, reason=why_not_here() or "")


@dataclass
class Terminal:
    """Where a rehearsal was started.  said: its lines so far."""

    folder: Path
    process: subprocess.Popen[str]
    mark: str
    said: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.said)

    def wait_for(self, words: str) -> None:
        """Reads until a line has `words`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if words in line:
                return
        raise AssertionError(f"{words!r} was never said:\n{self.text}")

    def end(self) -> int:
        """Reads the rest; the exit code."""
        assert self.process.stdout is not None
        self.said += self.process.stdout.read().splitlines()
        return self.process.wait()

    def launcher(self) -> int:
        """The process id of the launcher in it."""
        found = [pid for pid in processes_with(self.mark) if b"launch.rehearse.leash" in command_of(pid)]
        return min(found)

    def left(self) -> list[str]:
        """What it has left on this machine."""
        give_up = time.monotonic() + 15
        while (processes := self.processes()) and time.monotonic() < give_up:
            time.sleep(0.1)  # the dead need a moment to go
        loops = [
            str(f) for f in Path("/sys/block").glob("loop*/loop/backing_file") if str(self.folder) in f.read_text()
        ]
        return processes + loops + [str(path) for path in (self.folder / "tmp").iterdir()]

    def processes(self) -> list[str]:
        """Whoever carries the mark, or has its files in this folder: nodes have an environment of their own."""
        found = set(processes_with(self.mark))
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended
                root = str((path / "root").readlink())
                if str(self.folder).encode() in command_of(int(path.name)) or root.startswith(str(self.folder)):
                    found.add(int(path.name))
        return [f"process {pid}: {command_of(pid)!r}" for pid in sorted(found)]

    def weights(self) -> dict[str, torch.Tensor]:
        return dict(flat(torch.load(self.folder / "runs/job/model.pt", weights_only=True)))

    def epochs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "runs/job/metrics.jsonl").read_text().splitlines()]


def flat(content: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(content, torch.Tensor):
        yield name, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from flat(value, f"{name}.{key}")


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


Start = Callable[..., Terminal]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts `python -m launch.ec2 --rehearse ...` in a folder of its own."""
    started: list[Terminal] = []

    def begin(*words: str, code: tuple[str, ...] = ("-m", "launch.ec2")) -> Terminal:
        folder, mark = tmp_path_factory.mktemp("rehearsal"), f"TEST_MARK={uuid.uuid4().hex}"
        (folder / "tmp").mkdir()
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_"))}
        process = subprocess.Popen(
            [sys.executable, *code, *SETTINGS, *words],
            cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**clean, **dict([mark.split("=")]), "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")},
        )  # fmt: skip
        started.append(Terminal(folder, process, mark))
        return started[-1]

    yield begin
    for terminal in started:
        terminal.process.kill()
        terminal.process.communicate()


@pytest.fixture(scope="module")
def undisturbed(start: Start) -> Terminal:
    """A rehearsal in which nothing goes wrong."""
    terminal = start()
    assert terminal.end() == 0, terminal.text
    return terminal


@needs_namespaces
def test_two_nodes_train_and_disappear(undisturbed: Terminal) -> None:
    assert undisturbed.left() == []
    assert [row["epoch"] for row in undisturbed.epochs()] == list(range(1, 9))
    assert undisturbed.epochs()[-1]["world_size"] == 2
    made = re.search(r"resources: (\d+) made, (\d+) removed, 0 left", undisturbed.text)
    assert made is not None
    assert made[1] == made[2] == "9"
    assert "ec2:RunInstances 1" in undisturbed.text
    for name in ("logs/node-0.log", "logs/node-1.log", "job/cluster.json", "requests.jsonl"):
        assert (undisturbed.folder / "runs/job" / name).exists()
    phases = re.findall(r"(plan|provision|boot|rendezvous|train|tear down) +(\d+\.\d) s", undisturbed.text)
    assert len(phases) == 6
    assert all(float(seconds) > 0 for _, seconds in phases)


@needs_namespaces
@pytest.mark.parametrize(
    "faults", ["node-dies@epoch:3", "throttle,no-capacity:zone-a,launcher-killed@call:30,node-dies@epoch:2"]
)
def test_after_faults_the_weights_are_those_of_an_undisturbed_run(
    faults: str, undisturbed: Terminal, start: Start
) -> None:
    terminal = start("--inject", faults)

    assert terminal.end() == 0, terminal.text

    assert terminal.left() == []
    assert ", 0 left" in terminal.text
    for fault in faults.split(","):
        assert f"{fault}: " in terminal.text
    assert [row["epoch"] for row in terminal.epochs()] == list(range(1, 9))
    before, after = undisturbed.weights(), terminal.weights()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@needs_namespaces
def test_a_node_with_a_spot_notice_leaves_and_is_replaced(undisturbed: Terminal, start: Start) -> None:
    terminal = start("--spot", "--inject", "spot-notice@epoch:1", "--epochs", "60")

    assert terminal.end() == 0, terminal.text

    assert "spot-notice@epoch:1: i-" in terminal.text
    assert "3 x instance" in terminal.text
    assert [row["epoch"] for row in terminal.epochs()] == list(range(1, 61))
    assert terminal.left() == []


@pytest.mark.skipif(processes.why_not_here() is not None, reason=processes.why_not_here() or "")
def test_without_root_nodes_are_processes_and_train_the_same(undisturbed: Terminal, start: Start) -> None:
    terminal = start(code=("-c", WITHOUT_ROOT))

    assert terminal.end() == 0, terminal.text

    assert "nodes: processes" in terminal.text
    assert "resources: 9 made, 9 removed, 0 left" in terminal.text
    assert terminal.left() == []
    before, after = undisturbed.weights(), terminal.weights()
    assert all(torch.equal(before[name], after[name]) for name in before)


@needs_namespaces
def test_ctrl_c_takes_the_job_down_and_leaves_nothing(start: Start) -> None:
    terminal = start()
    terminal.wait_for("epoch 1/8")

    terminal.process.send_signal(signal.SIGINT)

    assert terminal.end() == 130
    assert "resources: 9 made, 9 removed, 0 left" in terminal.text
    assert terminal.left() == []


@needs_namespaces
def test_a_launcher_that_somebody_kills_is_followed_by_stop(start: Start) -> None:
    terminal = start()
    terminal.wait_for(": trains")

    assert len(terminal.processes()) > 10  # what is looked for afterwards
    os.kill(terminal.launcher(), signal.SIGKILL)

    assert terminal.end() == 137
    assert "python -m launch.ec2 attach job" in terminal.text
    assert "resources: 9 made, 9 removed, 0 left" in terminal.text
    assert terminal.left() == []


@needs_namespaces
def test_a_rehearsal_that_is_killed_leaves_nothing_on_this_machine(start: Start) -> None:
    terminal = start()
    terminal.wait_for(": trains")

    terminal.process.kill()
    terminal.process.wait()

    time.sleep(2)  # the folder goes after the nodes
    assert terminal.left() == []


def test_faults_are_for_rehearsals_only() -> None:
    command = [sys.executable, "-m", "launch.ec2", "--inject", "throttle"]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert "this would be the real AWS; add --rehearse" in ended.stderr
