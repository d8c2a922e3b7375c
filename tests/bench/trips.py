"""How long the trips through the code are: python -m tests.bench.trips.

Files of launch/ and trainer/ in which a dry run calls a function; modules that only one other imports; files and lines
of each room.  The account is an embedded one, which is not counted.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import grimp

from tests.conftest import ROOT
from tests.launch.ec2.account import Account
from tests.launch.sagemaker.account import SageMakerAccount

DRY_RUNS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "launch.ec2 --nodes 2": Account.opened,
    "launch.sagemaker --instance-type ml.g5.12xlarge": SageMakerAccount.opened,
    "launch.slurm --nodes 2": contextlib.nullcontext,
}
NO_AWS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/none",
    "AWS_SHARED_CREDENTIALS_FILE": "/none",
    "AWS_EC2_METADATA_DISABLED": "true",
}
PACKAGES = ("launch", "trainer")


@contextlib.contextmanager
def entered(files: set[str]) -> Iterator[None]:
    """Adds to `files` each file in which a function is called inside the block; class bodies are no functions."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & 0x2:  # CO_NEWLOCALS and CO_OPTIMIZED are both set in functions only
            files.add(code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def ours(files: set[str]) -> list[str]:
    """Those in launch/ and trainer/, relative to the repository."""
    paths = [Path(name) for name in files]
    inside = [path.relative_to(ROOT) for path in paths if path.is_relative_to(ROOT)]
    return sorted(str(path) for path in inside if path.parts[0] in PACKAGES and path.parts[1] != "rehearse")


def files_of(act: Callable[[], object]) -> list[str]:
    """The project's files that act() enters."""
    files: set[str] = set()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), entered(files):
        act()
    return ours(files)


def dry_run(command: str) -> list[str]:
    module, *words = command.split()
    main = import_module(f"{module}.__main__").main
    return files_of(lambda: main([*words, "--dry-run"]))


def one_importer() -> list[str]:
    """The modules that exactly one other imports; packages and programs are none."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    modules = [m for m in graph.modules if not (ROOT / m.replace(".", "/")).is_dir() and not m.endswith("__main__")]
    return sorted(m for m in modules if len(graph.find_modules_that_directly_import(m)) == 1)


def rooms() -> list[tuple[str, int, int]]:
    """Files and lines of each folder of launch/ and trainer/, and of tests/."""
    files, lines = Counter[str](), Counter[str]()
    for path in sorted(ROOT.glob("*/**/*.py")):
        parts = path.relative_to(ROOT).parts
        if parts[0] not in (*PACKAGES, "tests"):
            continue
        room = parts[0] if parts[0] == "tests" or len(parts) == 2 else "/".join(parts[:2])
        files[room] += 1
        lines[room] += path.read_text().count("\n")
    return [(room, files[room], lines[room]) for room in files]


def main() -> None:
    os.environ |= NO_AWS
    for command, open_account in DRY_RUNS.items():
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), open_account():
            print(f"{len(dry_run(command)):>4}  {command} --dry-run")
    print(f"{len(one_importer()):>4}  modules with exactly one importer")
    loose = [path for path in (ROOT / "launch/core").glob("*.py") if path.name != "__init__.py"]
    print(f"{len(loose):>4}  loose modules in launch/core")
    for room, files, lines in rooms():
        print(f"{files:>4} files {lines:>6} lines  {room}")


if __name__ == "__main__":
    main()
