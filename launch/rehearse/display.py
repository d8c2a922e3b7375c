"""Shows a rehearsal while it runs: the launcher's lines, and the nodes; a table on a terminal, else a line a change."""

from __future__ import annotations

import shutil
import sys
import threading
import time

from launch.perform import table
from launch.rehearse.progress import records
from launch.rehearse.scene import Life, Scene
from trainer.contract import METRIC_PREFIX

COLUMNS = ("node", "state", "address", "rank", "epoch", "loss", "images/s", "time")


class Display:
    """Everything it writes goes to standard output, a whole line at a time."""

    def __init__(self, scene: Scene, epochs: int, is_terminal: bool) -> None:
        self._scene, self._epochs, self._is_terminal = scene, epochs, is_terminal
        self._lock, self._shown, self._drawn = threading.Lock(), dict[str, str](), 0
        self._began = self._looked = time.monotonic()

    def line(self, text: str) -> None:
        """A line of the launcher's; what is for machines is in the table."""
        if METRIC_PREFIX not in text:
            self._write([f"  | {text}"])

    def note(self, text: str) -> None:
        """A line of the rehearsal's own."""
        self._write([f"{time.monotonic() - self._began:5.1f} s  {text}"])

    def look(self) -> None:
        """Shows what has changed."""
        if self._is_terminal:
            if time.monotonic() - self._looked > 0.5:
                self._looked = time.monotonic()
                self._write([])
            return
        known = self._scene.ranks()
        for life in list(self._scene.lives.values()):
            state = _words(life)
            if self._shown.get(life.name) != state:
                self._shown[life.name] = state
                rank = f", rank {known[life.name]}" if life.name in known else ""
                self.note(f"node {life.name} at {life.address}{rank}: {state}")

    def close(self) -> None:
        """Leaves the table as it is."""
        self.look()
        self._drawn = 0
        self._is_terminal = False

    def _write(self, lines: list[str]) -> None:
        with self._lock:
            if not self._is_terminal:
                print(*lines, sep="\n", flush=True)
                return
            drawn = self._table()
            width = shutil.get_terminal_size().columns
            up = f"\x1b[{self._drawn}A\x1b[J" if self._drawn else ""
            sys.stdout.write(up + "".join(f"{text}\n" for text in [*lines, *(row[:width] for row in drawn)]))
            sys.stdout.flush()
            self._drawn = len(drawn)

    def _table(self) -> list[str]:
        lives = list(self._scene.lives.values())
        if not lives:
            return []
        known, found = self._scene.ranks(), records(self._scene.account)
        last = found[-1] if found else None
        rows = [
            (
                life.name,
                _words(life),
                life.address,
                str(known.get(life.name, "")),
                f"{last['epoch']:.0f}/{self._epochs}" if last else "",
                f"{last['train_loss']:.4f}" if last else "",
                f"{last['images_per_s']:,.0f}" if last else "",
                f"{life.seconds:.0f} s",
            )
            for life in lives
        ]
        return ["", *table(COLUMNS, rows).splitlines()]


def _words(life: Life) -> str:
    """Its state, and how it ended."""
    return f"{life.state} ({life.how})" if life.how else life.state
