"""What is refused before anything starts, in one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


def rehearse(folder: Path, *words: str, module: str = "launch.ec2") -> tuple[int, str]:
    """Exit code and last words."""
    ended = subprocess.run(
        [sys.executable, "-m", module, "--rehearse", *words],
        cwd=folder, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.stdout == ""
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--dry-run"], "error: --dry-run prints the plan and --rehearse plays it; leave one of them out.\n"),
        (["--job-name", "../escaped"], "error: --job-name ../escaped: at most 48 letters, digits and hyphens, "
                                       "with a letter or digit at both ends.\n"),
        (["--job-name", "mine"], "error: runs/mine exists from an earlier run; choose another --job-name.\n"),
    ],
)  # fmt: skip
def test_one_sentence_and_nothing_made(words: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)

    assert rehearse(tmp_path, *words) == (2, sentence)

    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "mine"]


def test_an_impossible_fault_leaves_no_folder_behind(tmp_path: Path) -> None:
    code, said = rehearse(tmp_path, "--inject", "spot-notice")

    assert code == 2
    assert said == "error: --inject spot-notice@epoch:1: only spot instances get a notice; add --spot.\n"
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_instance_type_is_named_with_the_nearest(tmp_path: Path) -> None:
    code, said = rehearse(tmp_path, "--instance-type", "g5.2xlagre")

    assert code == 2
    assert "g5.2xlarge" in said
    assert said.count("\n") == 1


def test_without_a_run_folder_nothing_starts(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("no folder")

    code, said = rehearse(tmp_path, "--job-name", "mine")

    assert code == 6
    assert said == "error: cannot create runs/mine (Not a directory); change to a folder that you may write to.\n"


ON_EC2 = ("--instance-type", "c7i.2xlarge", "--allow-cpu", "--job-name", "mine", "--script", "train.py")


@pytest.mark.parametrize(
    ("listed", "asks_for"),
    [
        ("no-such-package-here", "no-such-package-here"),
        ("-r more.txt\nnumpy", "no-such-package-either"),
        ("numpy<1", "numpy<1"),
    ],
)
def test_missing_packages_are_refused_before_anything_starts(listed: str, asks_for: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "more.txt").write_text("no-such-package-either\n")
    (tmp_path / "requirements.txt").write_text(listed)

    code, said = rehearse(tmp_path, *ON_EC2)

    assert code == 2
    assert asks_for in said
    assert said.endswith(f"; run pip install -r {tmp_path}/requirements.txt\n")
    assert not (tmp_path / "runs").exists()


def test_installed_packages_are_accepted(tmp_path: Path) -> None:
    """It ends for another reason, which comes next."""
    (tmp_path / "train.py").touch()
    (tmp_path / "requirements.txt").write_text("numpy>=1  # as pip reads it\n-r more.txt\n")
    (tmp_path / "more.txt").write_text("torch\n")
    (tmp_path / "runs" / "mine").mkdir(parents=True)

    assert rehearse(tmp_path, *ON_EC2)[1] == "error: runs/mine exists from an earlier run; choose another --job-name.\n"
