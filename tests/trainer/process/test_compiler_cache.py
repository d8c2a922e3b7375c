"""What torch's compiler keeps lies where no other user of the machine can put anything: it is loaded as code."""

import getpass
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from torch._inductor.runtime import cache_dir_utils

from tests.conftest import trainer_env
from trainer.__main__ import set_library_defaults
from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.process import compiler


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")


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


def test_fsdp_makes_no_folder_of_torchs_that_others_could_have_made_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it compiles nothing: a file of another user's in its place ended the training with a traceback."""
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(compiler, "leave_out", lambda: None)
    set_library_defaults(TrainConfig(strategy="fsdp"))
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder)
    assert not compiler.torchs_own_folder().exists()


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
def test_whoever_takes_the_folders_name_keeps_nobody_from_what_compiles_nothing(
    plant: Callable[[Path], None], folder: Path
) -> None:
    """Any user of a machine could have refused all FSDP and exports of another there, for good."""
    plant(folder)
    env = dict[str, str]()
    compiler.look_in_own_folder(env)
    made = Path(env["TORCHINDUCTOR_CACHE_DIR"])
    assert made.parent == folder.parent
    assert stat.S_IMODE(made.lstat().st_mode) == 0o700
    assert made.resolve() not in (folder, folder.resolve())
    compiler.remove_new_folders()
    assert not made.exists()


def test_no_folder_stays_where_a_rank_ends(folder: Path) -> None:
    """Which it does without what `atexit` has to do: each start would have left one more for each rank."""
    folder.touch()
    program = (
        "import os, trainer.__main__ as main\n"
        "main.compiler.look_in_own_folder(os.environ)\n"
        "print(os.path.isdir(os.environ['TORCHINDUCTOR_CACHE_DIR']))\n"
        "main.leave(3)\n"
    )
    env = trainer_env({"TMPDIR": str(folder.parent), "TORCHINDUCTOR_CACHE_DIR": ""})
    ended = subprocess.run([sys.executable, "-P", "-c", program], env=env, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, "True\n")
    assert [*folder.parent.iterdir()] == [folder]


def test_where_no_folder_can_be_made_a_sentence_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.touch()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(SettingsError, match=r"Not a directory\); set TMPDIR to another folder\.$"):
        compiler.look_in_own_folder({})


@pytest.mark.parametrize("ask", [compiler.look_in_own_folder, compiler.keep_to_oneself])
def test_where_no_temporary_file_can_be_written_a_sentence_says_so(
    ask: Callable[[dict[str, str]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that is read-only: FSDP, exports and --compile ended with a traceback."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    with pytest.raises(SettingsError, match=r"no folder in which temporary files can be written; set TMPDIR to a"):
        ask({})


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


@pytest.fixture
def torchs_own(folder: Path) -> Path:
    return folder.with_name("torchinductor_ann")


@pytest.mark.parametrize("name", ["ann", "CORP\\ann", "a/b:c*"])
def test_torchs_own_folder_is_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", name)
    assert str(compiler.torchs_own_folder()) == cache_dir_utils.default_cache_dir()


@pytest.mark.parametrize("named", [{}, {"TORCHINDUCTOR_CACHE_DIR": "/scratch/mine"}])
@pytest.mark.parametrize("plant", [open_to_all, link, Path.touch])
def test_nor_is_anything_compiled_with_headers_that_somebody_else_may_have_put_into_torchs_own_folder(
    plant: Callable[[Path], None], named: dict[str, str], torchs_own: Path
) -> None:
    """torch 2.15 keeps them there whatever it is told: another user's code in one ran in this training."""
    plant(torchs_own)
    with pytest.raises(SettingsError, match=r"torchinductor_ann.*set TMPDIR to a folder of your own, or drop --comp"):
        compiler.keep_to_oneself(named)


def test_torchs_own_folder_is_made_before_anybody_else_can_make_it(torchs_own: Path) -> None:
    compiler.keep_to_oneself({})
    assert stat.S_IMODE(torchs_own.stat().st_mode) == 0o700


def test_one_that_torch_has_made_for_a_umask_of_002_stays_in_use_but_closed_to_the_group(torchs_own: Path) -> None:
    torchs_own.mkdir()
    torchs_own.chmod(0o775)
    compiler.keep_to_oneself({})
    assert stat.S_IMODE(torchs_own.stat().st_mode) == 0o755


def test_what_a_link_in_its_place_leads_to_keeps_its_mode(torchs_own: Path) -> None:
    """Anybody may have left the link, to a folder of this user's that a team shares."""
    shared = torchs_own.with_name("shared")
    shared.mkdir()
    shared.chmod(0o775)
    torchs_own.symlink_to(shared)
    with pytest.raises(SettingsError, match="others can write"):
        compiler.keep_to_oneself({})
    assert stat.S_IMODE(shared.stat().st_mode) == 0o775


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_torchs_own_folder_is_known_of_a_user_without_a_name(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: an OSError from Python 3.13 on."""

    def nobody() -> NoReturn:
        raise error

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert str(compiler.torchs_own_folder()) == cache_dir_utils.default_cache_dir()
