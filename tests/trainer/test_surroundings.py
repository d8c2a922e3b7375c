"""What a training looks for in the folder that it starts in, and in those above, where others may have left anything.

Every system call that names a file is read, of libraries and of the programs that they start as well.
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest

from tests import needs
from tests.conftest import trainer_command, trainer_env

# Each with why nobody else can do anything by it.
KNOWN = {
    "mine/matplotlibrc": "trainer/metrics/curves.py takes none of another user's",
    "mine/config-defaults.yaml": "trainer/metrics/trackers.py: wandb is dropped where one is another user's",
    "mine/wandb/settings": "as config-defaults.yaml",
    "mine/.wandb": "the same",
    "mine/.wandb/settings": "the same",
    "mine/.git": "trainer/metrics/trackers.py: wandb leaves git out where one is another user's",
    "mine/.git/HEAD": "the same",
    "mine/HEAD": "the same",
    ".git": "the same",
    ".git/HEAD": "the same",
    "HEAD": "the same",
    "mine/_classes.py": "torch's module of operators, whose name is no file's: looked at, and not opened",
    "mine/_ops.py": "the same",
}
OPENED = {"mine/matplotlibrc", "mine/config-defaults.yaml", "mine/wandb/settings", "mine/.wandb/settings"}
TRACKERS = {"tensorboard": ["--tensorboard"], "wandb": ["--wandb", "project"]}
# `-y` writes the current folder behind AT_FDCWD.
# What a symbolic link is made to contain is no path of a look-up.
CALL = re.compile(r'^\d+ +(?P<name>(?!symlink)\w+)\((?:AT_FDCWD(?:<(?P<cwd>[^>]*)>)?, )?"(?P<path>(?:[^"\\]|\\.)+)"')
NO_FILE = re.compile(r"<frozen [\w.]+>|(\./)?-m [\w.]+")  # which Python and wandb write in place of a file's name

pytestmark = needs.programs("strace", packages="strace")


@pytest.fixture(autouse=True)
def may_trace() -> None:
    """Some containers allow no process to trace another."""
    if subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True).returncode:
        pytest.skip("strace may not trace here")


def looked_up(trace: str, start: Path) -> set[tuple[str, str]]:
    """(name of the system call, path within the folder above `start`) of what is looked for there."""
    found = set()
    for call in filter(None, map(CALL.match, trace.splitlines())):
        path = Path(os.path.normpath(Path(call["cwd"] or start, call["path"])))
        is_there = path.is_relative_to(start.parent) and path not in (start, start.parent)
        if is_there and not NO_FILE.fullmatch(call["path"].removeprefix(f"{start}/")):
            found.add((call["name"], str(path.relative_to(start.parent))))
    return found


def test_a_call_is_found_wherever_it_leads(tmp_path: Path) -> None:
    start, trace = tmp_path / "shared/mine", tmp_path / "trace"
    start.mkdir(parents=True)
    program = "import os; os.path.exists('a'); os.path.exists('../b'); os.chdir('/'); os.path.exists('c')"
    traced = ["strace", "-f", "-y", "-qq", "-e", "trace=%file", "-o", str(trace)]
    subprocess.run([*traced, sys.executable, "-I", "-c", program], cwd=start, check=True)
    assert {path for _, path in looked_up(trace.read_text(), start)} == {"mine/a", "b"}


@pytest.mark.slow("a training looks for no file where it starts but those that are known")
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_training_looks_for_nothing_else_where_it_starts(ranks: int, tmp_path: Path) -> None:
    start, trace = tmp_path / "shared/mine", tmp_path / "trace"
    start.mkdir(parents=True)
    trackers = [words for name, words in TRACKERS.items() if find_spec(name)]
    python, *words = trainer_command(tmp_path, "--dataset", "digits", "--plot", *chain(*trackers), ranks=ranks)
    env = trainer_env({"HOME": str(tmp_path), "WANDB_MODE": "offline"})
    traced = ["strace", "-f", "-y", "-qq", "-s", "300", "-e", "trace=%file", "-o", str(trace)]
    ended = subprocess.run(
        [*traced, python, "-P", *words],
        cwd=start, env=env, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found = looked_up(trace.read_text(errors="replace"), start)
    assert {path for _, path in found} <= set(KNOWN)
    assert {path for name, path in found if name.startswith(("open", "exec"))} <= OPENED
