"""Where this process stands: its main thread's stack, torch's record of collectives, and py-spy's view, as lines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

FRAMES = 12  # the innermost
COLLECTIVES = 3  # the newest
PY_SPY_WITHIN_S, PY_SPY_LINES = 20.0, 40
INDENT = "    "


def stacks(thread: int) -> Iterator[str]:
    """Lines that say where `thread` (threading.get_ident) stands, each with its end."""
    frame = sys._current_frames().get(thread)
    yield from (f"{INDENT}{line}\n" for line in stack_of(frame))
    for line in (*collectives(recorded()), *py_spy()):
        yield f"{INDENT}{line}\n"


def stack_of(frame: FrameType | None) -> list[str]:
    """The innermost frames, the newest first."""
    if frame is None:
        return ["its main thread has ended"]
    found = traceback.extract_stack(frame)[-FRAMES:]
    return [f"{_short(f.filename)}:{f.lineno} in {f.name}: {f.line}" for f in reversed(found)]


def _short(path: str) -> str:
    return "/".join(Path(path).parts[-2:])


def recorded() -> Mapping[str, Any]:
    """torch's flight recorder: what it has of collectives, by torch's names; empty where there is none.

    https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
    """
    with suppress(ImportError, AttributeError, RuntimeError, ValueError, TypeError):
        from torch._C import _distributed_c10d as c10d

        for backend in ("nccl", "gloo"):
            content: Any = json.loads(c10d._dump_fr_trace_json(includeCollectives=True, backend=backend))
            if content.get("entries"):
                return dict(content)
    return {}


def collectives(trace: Mapping[str, Any]) -> list[str]:
    """The newest collectives in a flight recorder's trace, the newest first."""
    entries = [entry for entry in trace.get("entries", ()) if isinstance(entry, Mapping)]
    return [
        f"collective {entry.get('collective_seq_id', '?')}: {entry.get('profiling_name', '?')}, "
        f"{entry.get('state', '?')}, sizes {entry.get('input_sizes', '?')}"
        for entry in entries[-COLLECTIVES:][::-1]
    ]


def py_spy() -> list[str]:
    """Runs `py-spy dump` on this process, with the frames of C; nothing without it, or where it may not look."""
    program = shutil.which("py-spy")
    if program is None:
        return []
    words = [program, "dump", "--native", "--nonblocking", "--pid", str(os.getpid())]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(words, capture_output=True, text=True, timeout=PY_SPY_WITHIN_S, check=True)
        return ["py-spy:", *done.stdout.splitlines()[:PY_SPY_LINES]]
    return []
