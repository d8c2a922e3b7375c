"""A path that cannot be what a setting needs is refused at once, in one sentence that names it: 2, or 3 for data."""

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.conftest import SMALL
from trainer import __main__ as trainer_main

NOBODY = 65534
DATA = ("--dataset", "imagefolder", "--data-dir")
# Flag, path, exit code, and what the sentence says.
PATHS = [
    (DATA, "n" * 256, 3, "(File name too long); fix that, or give another --data-dir"),
    (("--run-dir",), "/".join(["d" * 99] * 41), 2, "(File name too long); choose another --run-dir"),
    (DATA, "file/in", 3, "no folder file/in;"),
    (DATA, "two\nlines", 3, "no folder two lines;"),
    (DATA, "CLOSED/in", 3, "closed/in (Permission denied); fix that, or give another --data-dir"),
    (("--run-dir",), "file", 2, "(file is not a folder); choose another --run-dir"),
    (("--run-dir",), "file/in", 2, "(file is not a folder); choose another --run-dir"),
    (("--run-dir",), "CLOSED/in", 2, "closed/in (Permission denied); choose another --run-dir"),
    (("--checkpoint-dir",), "file/in", 2, "(file is not a folder); choose another --run-dir or --checkpoint-dir"),
    (("--init-from",), "circle", 2, "--init-from circle: Too many levels of symbolic links"),
    (("--config",), "file/in", 2, "--config file/in: Not a directory"),
]


def _ends(folder: Path, commands: list[list[str]], ended: Any) -> None:
    """Runs trainings in this one process, and puts the exit code and standard error of each into the queue `ended`."""
    os.chdir(folder)
    for words in commands:
        said = io.StringIO()
        with (
            contextlib.redirect_stderr(said),
            contextlib.redirect_stdout(io.StringIO()),
            _bound("closed" in str(words)),
        ):
            code = trainer_main.main(words, {})
        ended.put((code, said.getvalue()))


@contextlib.contextmanager
def _bound(by_permissions: bool) -> Iterator[None]:
    """Nothing is closed to root."""
    before = os.geteuid()
    if by_permissions and before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def ends(folder: Path, commands: list[list[str]]) -> list[tuple[int, str]]:
    ended = warm.queue()
    warm.start(_ends, folder, commands, ended)
    return [ended.get(timeout=60) for _ in commands]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that every user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_a_wrong_path_is_refused_in_one_sentence_with_the_code_of_settings_or_data(open_folder: Path) -> None:
    (open_folder / "file").touch()
    (open_folder / "circle").symlink_to("circle")
    (open_folder / "closed").mkdir(mode=0)
    paths = [path.replace("CLOSED", str(open_folder / "closed")) for _, path, _, _ in PATHS]

    done = ends(open_folder, [[*SMALL, *flags, path] for (flags, _, _, _), path in zip(PATHS, paths, strict=True)])

    for (flags, path, code, words), (got, err) in zip(PATHS, done, strict=True):
        assert (got, err.count("\n"), err.startswith("error: "), words in err) == (code, 1, True, True), (
            flags, path[:40], got, err,
        )  # fmt: skip
