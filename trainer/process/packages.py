"""Packages that a training's settings ask for and its image lacks: fetched as it starts, each with its hash."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from trainer.errors import MachineError, one_line

# Without dependencies, as the list has them all; without building, which would run what nobody has hashed.
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes",
       "--only-binary", ":all:")  # fmt: skip

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def _run(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, capture_output=True, text=True, check=False)


def install(listed: Path, run: Run = _run) -> None:
    """Makes what the list `listed` names importable; no list asks for nothing.

    Of what the image has, its own is imported, and nothing of it is replaced.  Raises MachineError.
    """
    lacking = _lacking(listed.read_text()) if listed.is_file() else ""
    if not lacking:
        return
    folder = Path(tempfile.mkdtemp(prefix="packages-"))
    (folder / "lacking.txt").write_text(lacking)
    ended = run([sys.executable, *PIP, "--target", str(folder), "-r", str(folder / "lacking.txt")])
    if ended.returncode != 0:
        why = one_line((ended.stderr.strip().splitlines() or ["pip says nothing"])[-1], 300)
        raise MachineError(f"the packages of --tensorboard, --wandb or --mlflow cannot be installed: {why}")
    sys.path.append(str(folder))  # at the end: the image's own come first


def _lacking(text: str) -> str:
    """The requirements, with their lines of hashes, of packages that are not installed."""
    rows = re.findall(r"^(([\w.-]+)==.*(?:\n[ \t]+--hash=.*)*\n)", text, re.MULTILINE)
    return "".join(requirement for requirement, name in rows if not _is_installed(name))


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
