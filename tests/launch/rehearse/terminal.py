"""A rehearsal as a user starts it: in a folder of its own, whose output is read, and what it leaves on this machine."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.listening import Listening, below
from tests.once import once
from tests.processes import processes_with


@dataclass
class Kept:
    """What a rehearsal printed, and what is in its folder.

    listening: the sockets of this machine, outside namespaces, on which its processes listened while it trained.
    """

    folder: Path
    said: list[str]
    listening: tuple[Listening, ...] = ()

    def assert_only_loopback(self) -> None:
        """Nobody on this machine's network reaches the embedded AWS, the nodes or the training."""
        assert self.listening  # the launcher's own AWS at least
        assert [socket for socket in self.listening if not socket.is_loopback] == []

    @property
    def text(self) -> str:
        return "\n".join(self.said)

    def weights(self) -> dict[str, torch.Tensor]:
        return dict(flat(torch.load(self.folder / "runs/job/model.pt", weights_only=True)))

    def epochs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "runs/job/metrics.jsonl").read_text().splitlines()]

    def phases(self) -> dict[str, float]:
        """How long each phase took, by the receipt."""
        found = re.findall(r"(plan|provision|boot|rendezvous|train|tear down) +(\d+\.\d) s", self.text)
        assert len(found) == 6
        return {name: float(seconds) for name, seconds in found}

    def assert_same_training(self, other: "Kept") -> None:
        """The same epochs, of the same number of images, and the same weights, bit for bit."""
        names = ("epoch", "updates", "global_batch", "train_loss")
        rows = [[[row[name] for name in names] for row in kept.epochs()] for kept in (self, other)]
        assert rows[0] == rows[1]
        ours, theirs = self.weights(), other.weights()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@dataclass
class Terminal:
    """Where a rehearsal was started.  said: its lines so far."""

    folder: Path
    process: subprocess.Popen[str]
    mark: str
    said: list[str] = field(default_factory=list)

    @property
    def kept(self) -> Kept:
        return Kept(self.folder, self.said)

    @property
    def text(self) -> str:
        return self.kept.text

    def wait_for(self, words: str) -> None:
        """Reads until a line has `words`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if words in line:
                return
        raise AssertionError(f"{words!r} was never printed:\n{self.text}")

    def end(self) -> int:
        """Reads the rest; the exit code."""
        assert self.process.stdout is not None
        self.said += self.process.stdout.read().splitlines()
        return self.process.wait()

    def launcher(self) -> int:
        """The process ID of the launcher in it."""
        found = [pid for pid in processes_with(self.mark) if b"launch.rehearse.watchdog" in command_of(pid)]
        return min(found)

    def left(self) -> list[str]:
        """What it has left on this machine."""
        give_up = time.monotonic() + 15
        while (left := self._left_now()) and time.monotonic() < give_up:
            time.sleep(0.1)  # the dead need a moment to go, and the folder goes after them
        return left

    def _left_now(self) -> list[str]:
        loops = []
        for file in Path("/sys/block").glob("loop*/loop/backing_file"):
            with suppress(OSError):
                loops += [str(file)] * (str(self.folder) in file.read_text())
        return self.processes() + loops + [str(path) for path in (self.folder / "tmp").iterdir()]

    def processes(self) -> list[str]:
        """Processes with the mark, or with files in this folder: nodes have an environment of their own."""
        found = set(processes_with(self.mark))
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended
                root = str((path / "root").readlink())
                if str(self.folder).encode() in command_of(int(path.name)) or root.startswith(str(self.folder)):
                    found.add(int(path.name))
        return [f"process {pid}: {command_of(pid)!r}" for pid in sorted(found)]

    def epochs(self) -> list[dict[str, Any]]:
        return self.kept.epochs()


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


Start = Callable[..., Terminal]  # words of the command line; module; code: instead of `-m module`


def played_once(name: str, play: Callable[[], Terminal], folders: pytest.TempPathFactory, look_at: str = "") -> Kept:
    """The results of a rehearsal that is played once, by whichever test process comes first.

    look_at: words of the line after which its sockets are looked at.
    """

    def result() -> str:
        terminal = play()
        if look_at:
            terminal.wait_for(look_at)
        sockets = sorted(below(terminal.process.pid)) if look_at else []
        assert terminal.end() == 0, terminal.text
        return json.dumps({
            "folder": str(terminal.folder), "said": terminal.said, "left": terminal.left(), "listening": sockets,
        })  # fmt: skip

    known = json.loads(once(name, result, folders))
    assert known["left"] == []
    listening = tuple(Listening(*socket) for socket in known["listening"])
    return Kept(Path(known["folder"]), known["said"], listening)
