"""Commands that the page has started: the same ones that it shows, each a process of its own with its output in a file.

They outlive the console, as what they do must not be left half done.
"""

import shlex
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from launch.core.shell import ChildProcess, start_alone, this_python
from trainer.errors import SettingsError

MOST_LINES = 2000


@dataclass(frozen=True)
class Action:
    """A command that was started."""

    number: int
    command: str  # as a user would type it
    process: ChildProcess = field(repr=False)
    output: Path

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.process.exit_code

    @property
    def lines(self) -> list[str]:
        """The end of its output."""
        return self.output.read_text(errors="replace").splitlines()[-MOST_LINES:]


@dataclass
class Actions:
    """What was started, oldest first."""

    start_alone: Callable[[Sequence[str], Path], ChildProcess] = start_alone
    started: list[Action] = field(default_factory=list)
    _folder: Path | None = None
    _lock: Lock = field(default_factory=Lock)

    def start(self, words: Sequence[str]) -> Action:
        """Start `python` with these words.  Raises SettingsError if the same command is still running."""
        command = shlex.join(["python", *words])
        with self._lock:
            if any(one.code is None and one.command == command for one in self.started):
                raise SettingsError(f"this command is still running: {command}")
            self._folder = self._folder or Path(tempfile.mkdtemp(prefix="console-"))
            number = len(self.started)
            output = self._folder / f"{number}.log"
            action = Action(number, command, self.start_alone([*this_python(), *words], output), output)
            self.started.append(action)
        return action

    def close(self) -> list[Action]:
        """Remove the output of what has ended; returns what goes on."""
        running = [one for one in self.started if one.code is None]
        for one in self.started:
            if one not in running:
                one.output.unlink(missing_ok=True)
        if self._folder:
            with suppress(OSError):  # of what goes on
                self._folder.rmdir()
        return running
