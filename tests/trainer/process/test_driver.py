"""torch takes no library from the folder that it is imported in, which others may share."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import trainer_env
from trainer.process.driver import load_from_root


def test_no_library_of_a_shared_folder_is_opened_as_torch_is_imported(tmp_path: Path) -> None:
    """Whoever opened the pipe to read would wait for ever for somebody who writes."""
    os.mkfifo(tmp_path / "libcuda.so.1")

    ended = subprocess.run(
        [sys.executable, "-P", "-c", "import os, trainer, torch; print(os.getcwd())"],
        cwd=tmp_path, env=trainer_env(), capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout) == (0, f"{tmp_path}\n"), ended.stderr


@pytest.mark.parametrize("is_sound", [True, False])
def test_the_library_is_loaded_from_the_root_folder(
    is_sound: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "site-packages/nvidia/cusparselt/lib/libcusparseLt.so.0"
    library.parent.mkdir(parents=True)
    library.touch()
    loaded: list[tuple[str, Path]] = []

    def load(path: str) -> None:
        loaded.append((path, Path.cwd()))
        if not is_sound:
            raise OSError("invalid ELF header")

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(sys, "path", ["relative", str(tmp_path / "site-packages")])
    monkeypatch.chdir(tmp_path)
    load_from_root()

    assert loaded == [(str(library), Path("/"))]
    assert Path.cwd() == tmp_path


def test_without_the_library_nothing_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(ctypes, "CDLL", lambda path: pytest.fail(path))
    load_from_root()
