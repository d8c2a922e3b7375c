"""What torch's compiler keeps lies where no other user of the machine can put anything: it is loaded as code."""

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.__main__ import set_library_defaults
from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.process import compiler


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"aws-ddp-toolkit-compiled-{os.getuid()}"


def test_a_training_that_compiles_keeps_it_in_a_folder_of_its_users(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own is /tmp/torchinductor_USER, whoever has made that, and it unpickles what lies there."""
    monkeypatch.setattr(os, "environ", {"TORCHINDUCTOR_CACHE_DIR": ""})
    set_library_defaults(TrainConfig(compile=True))
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    compiler.keep_to_oneself(again := {})  # of another rank, or the next start
    assert again == {"TORCHINDUCTOR_CACHE_DIR": str(folder)}


def test_a_folder_that_the_user_names_stays(folder: Path) -> None:
    named = {"TORCHINDUCTOR_CACHE_DIR": "/scratch/mine"}
    compiler.keep_to_oneself(named)
    assert (named, folder.exists()) == ({"TORCHINDUCTOR_CACHE_DIR": "/scratch/mine"}, False)


def open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def link(folder: Path) -> None:
    folder.with_name("elsewhere").mkdir()
    folder.symlink_to(folder.with_name("elsewhere"))


@pytest.mark.parametrize("plant", [open_to_all, link, Path.touch])
def test_what_somebody_else_may_have_put_there_is_refused(plant: Callable[[Path], None], folder: Path) -> None:
    plant(folder)
    with pytest.raises(SettingsError, match=r"TORCHINDUCTOR_CACHE_DIR to a folder of your own, or drop --compile\.$"):
        compiler.keep_to_oneself({})


def test_a_folder_of_another_users_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o700)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    folder.rename(folder.with_name(f"aws-ddp-toolkit-compiled-{me + 1}"))
    with pytest.raises(SettingsError, match="others can write"):
        compiler.keep_to_oneself({})
