"""What a tracker needs beside the image is installed apart, with hashes, and the image stays as it is."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from trainer.errors import MachineError
from trainer.process.packages import install

HERE = "numpy==1.0.0 \\\n    --hash=sha256:00\n"  # installed here, in another version
AWAY = "no-such-package==1.0 ; sys_platform != 'x' \\\n    --hash=sha256:11 \\\n    --hash=sha256:22\n"


class Pip:
    """In the place of the process."""

    def __init__(self, code: int = 0, stderr: str = "") -> None:
        self.code, self.stderr = code, stderr
        self.calls: list[tuple[Sequence[str], str]] = []

    def __call__(self, words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        self.calls.append((words, Path(words[-1]).read_text()))
        return subprocess.CompletedProcess(words, self.code, "", self.stderr)


@pytest.fixture(autouse=True)
def path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def test_only_what_the_image_lacks_is_installed_and_its_own_comes_first(tmp_path: Path) -> None:
    (tmp_path / "packages.txt").write_text(HERE + AWAY)
    before, pip = list(sys.path), Pip()

    install(tmp_path / "packages.txt", pip)

    ((words, listed),) = pip.calls
    assert listed == AWAY
    assert {"--require-hashes", "--no-deps", "--only-binary", "--target"} <= set(words)
    assert sys.path == [*before, words[words.index("--target") + 1]]


def test_where_nothing_lacks_pip_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "packages.txt").write_text(HERE)
    pip = Pip()
    install(tmp_path / "packages.txt", pip)
    install(tmp_path / "none.txt", pip)
    assert pip.calls == []


def test_a_failure_says_why_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "packages.txt").write_text(AWAY)
    with pytest.raises(MachineError, match=r"cannot be installed: ERROR: no network$"):
        install(tmp_path / "packages.txt", Pip(1, "WARNING: old\nERROR: no network\n"))


def test_a_file_that_is_not_the_one_that_was_locked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real pip, from a folder in which somebody else's file lies."""
    from tests.test_locks import forged

    wheel = forged(tmp_path)
    monkeypatch.setattr("trainer.process.packages._is_installed", lambda name: False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    locked = f"tqdm=={wheel.name.split('-')[1]} \\\n    --hash=sha256:{'0' * 64}\n"
    (tmp_path / "packages.txt").write_text(locked)

    with pytest.raises(MachineError, match="cannot be installed"):
        install(tmp_path / "packages.txt")

    assert "packages-" not in sys.path[-1]
