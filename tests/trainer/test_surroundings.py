"""What a training looks for where others may have left anything: in the folder that it starts in, in those above, and
among the temporary files of a machine.

Every system call that names a file is read, of libraries and of the programs that they start as well.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest
from PIL import Image

from tests import needs
from tests.conftest import ROOT, Run, trainer_command, trainer_env

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
# The names that a training and its libraries take among temporary files, with why nobody else can do anything by them.
TEMPORARY = {
    r"\w{8}|tmp\w{8}(wandb-(media|artifacts))?|torchrun-\w{8}": "Python's tempfile: by chance, and only if it is new",
    r"sem\.(mp-)?\w{6,8}": "multiprocessing's, by chance, and only if it is new",
    r"wandb-\d+-\d+-\d+|wandb-symon-portfile-\d+": "wandb's, by chance, and only if it is new",
    r"wandb_symon-\d+-\d+-\d{13}\.sock": "wandb's own socket, with the millisecond in its name",
    rf"aws-ddp-toolkit-compiled-{os.getuid()}": "trainer/process/own_folder.py refuses what others could have made",
    r"\.git|HEAD": "as in KNOWN, where the test itself runs below temporary files",
}
PUBLIC = {Path(name) for name in ("/tmp", "/var/tmp", "/dev/shm", tempfile.gettempdir())}  # where everybody may write
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


def traced(command: Sequence[str], start: Path) -> str:
    """Every system call with a file's name of `command`, which begins in `start`, with its home beside the others."""
    trace = start.parents[1] / "trace"
    env = trainer_env({"HOME": str(start.parents[1]), "WANDB_MODE": "offline"})
    strace = ["strace", "-f", "--seccomp-bpf", "-y", "-qq", "-s", "300", "-e", "trace=%file", "-o", str(trace)]
    ended = subprocess.run(
        [*strace, *command], cwd=start, env=env, capture_output=True, text=True, check=False, timeout=200
    )
    assert ended.returncode == 0, ended.stderr
    return trace.read_text(errors="replace")


def paths(trace: str, start: Path) -> Iterator[tuple[str, str, Path]]:
    """(name of the system call, path as it was given, path that was meant) of each call."""
    for call in filter(None, map(CALL.match, trace.splitlines())):
        yield call["name"], call["path"], Path(os.path.normpath(Path(call["cwd"] or start, call["path"])))


def looked_up(trace: str, start: Path) -> set[tuple[str, str]]:
    """(name of the system call, path within the folder above `start`) of what is looked for there."""
    found = set()
    for call, given, path in paths(trace, start):
        is_there = path.is_relative_to(start.parent) and path not in (start, start.parent)
        if is_there and not NO_FILE.fullmatch(given.removeprefix(f"{start}/")):
            found.add((call, str(path.relative_to(start.parent))))
    return found


def temporary(trace: str, start: Path) -> set[str]:
    """The names that are looked for in folders where everybody may write, besides those that lead to this test."""
    ours = (start, ROOT, Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable))
    names = set()
    for _, _, path in paths(trace, start):
        for folder in PUBLIC & {*path.parents}:
            first = folder / path.relative_to(folder).parts[0]
            if not any(path.is_relative_to(first) for path in ours):
                names.add(first.name)
    return names


def unknown(names: Iterable[str]) -> set[str]:
    return {name for name in names if not any(re.fullmatch(known, name) for known in TEMPORARY)}


def test_a_call_is_found_wherever_it_leads(tmp_path: Path) -> None:
    start = tmp_path / "shared/mine"
    start.mkdir(parents=True)
    program = "import os; os.path.exists('a'); os.path.exists('../b'); os.chdir('/'); os.path.exists('c')"
    trace = traced([sys.executable, "-I", "-c", program], start)
    assert {path for _, path in looked_up(trace, start)} == {"mine/a", "b"}


def test_a_name_among_temporary_files_is_found(tmp_path: Path) -> None:
    start = tmp_path / "shared/mine"
    start.mkdir(parents=True)
    program = "import os; os.path.exists('/tmp/.ses'); os.path.exists('/dev/shm/sem.mp-abcdefgh')"
    assert unknown(temporary(traced([sys.executable, "-I", "-c", program], start), start)) == {".ses"}


@pytest.mark.slow("a training looks for no file where it starts, or among temporary ones, but those that are known")
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_training_looks_for_nothing_else_where_others_may_have_left_it(ranks: int, tmp_path: Path) -> None:
    start = tmp_path / "shared/mine"
    start.mkdir(parents=True)
    flags = ["--dataset", "digits", "--epochs", "1", "--plot"]
    flags += chain(*(words for name, words in TRACKERS.items() if find_spec(name)))
    if ranks > 1:
        flags += ["--strategy", "fsdp"]  # which imports more of torch than the others
    python, *words = trainer_command(tmp_path, *flags, ranks=ranks)
    trace = traced([python, "-P", *words], start)
    found = looked_up(trace, start)
    assert {path for _, path in found} <= set(KNOWN)
    assert {path for name, path in found if name.startswith(("open", "exec"))} <= OPENED
    assert unknown(temporary(trace, start)) == set()


@pytest.mark.slow("nor does an export, or a prediction")
def test_neither_does_the_use_of_what_was_trained(start_trainer: Run, tmp_path: Path) -> None:
    start = tmp_path / "shared/mine"
    start.mkdir(parents=True)
    (tmp_path / "images").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "images/one.png")
    assert start_trainer("--epochs", "1").returncode == 0
    run = str(tmp_path / "run")
    to = "onnx" if find_spec("onnxruntime") else "torch"
    uses = [["predict", run, str(tmp_path / "images")], ["export", run, "--to", to]]
    for module, *words in uses:
        trace = traced([sys.executable, "-P", "-m", f"trainer.{module}", *words], start)
        assert {path for _, path in looked_up(trace, start)} <= set(KNOWN)
        assert unknown(temporary(trace, start)) == set()
