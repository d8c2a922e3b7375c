"""C11: a path becomes a line of the script, which Slurm's shell runs, and must not become two."""

import tomllib
from pathlib import Path

import pytest

from launch.slurm.container import edf
from launch.slurm.options import SlurmOptions
from launch.slurm.script import _quoted
from tests.launch.slurm.jobs import EVERY_KIND
from trainer.errors import SettingsError


@pytest.mark.parametrize("end", ["\n", "\r", "\x1b[2K", "\u2028", "\0"])
def test_a_path_that_would_end_its_line_is_refused(end: str) -> None:
    with pytest.raises(SettingsError, match="has characters that do not print") as caught:
        _quoted(f"--chdir={Path('/home/me') / f'a{end}touch ran'}")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("end", ["\n", "\x1b[2K", "\u202e", "\U000e0001", '"\\', "müll"])
def test_a_container_mounts_the_folder_that_was_named_and_no_other(end: str) -> None:
    folder = Path(f"/data/a{end}b")
    options = SlurmOptions.model_validate({**EVERY_KIND["edf"], "time": "1:00:00"})

    written = edf(options, Path("/home/me"), [folder])

    assert written is not None
    assert tomllib.loads(written)["mounts"] == [f"{folder}:{folder}"]
