"""torch's environment variables, which are set before it is loaded."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from trainer.__main__ import set_library_defaults
from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.process import libraries


def test_what_the_user_has_set_stays() -> None:
    chosen = {"TORCH_FR_BUFFER_SIZE": "5", "KMP_BLOCKTIME": "200", "TORCHINDUCTOR_CACHE_DIR": "/scratch/mine"}
    env = dict(chosen)
    libraries.set_defaults(env)
    libraries.name_compile_cache(env)
    assert chosen.items() <= env.items()


@pytest.mark.parametrize("config", [TrainConfig(compile=True), TrainConfig(strategy="fsdp")])
def test_a_training_that_may_compile_keeps_it_in_a_folder_of_its_users(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / f"aws-ddp-toolkit-compiled-{os.getuid()}"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "environ", {"TORCHINDUCTOR_CACHE_DIR": ""})
    set_library_defaults(config)
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    libraries.name_compile_cache(again := {})  # of another rank, or the next start
    assert again == {"TORCHINDUCTOR_CACHE_DIR": str(folder)}


def test_a_folder_that_cannot_be_made_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(SettingsError, match=r"Not a directory\); set TMPDIR to a folder of your own\.$"):
        libraries.name_compile_cache({})


def test_without_a_place_for_temporary_files_there_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that is read-only."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    with pytest.raises(SettingsError, match=r"no folder in which temporary files can be written; set TMPDIR to a"):
        libraries.name_compile_cache({})
