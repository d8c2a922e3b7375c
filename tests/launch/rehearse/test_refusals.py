"""What is refused before anything starts, in one sentence."""

from collections.abc import Callable
from pathlib import Path

import pytest

from launch.ec2.__main__ import main

Rehearse = Callable[..., tuple[int, str]]


@pytest.fixture
def rehearse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rehearse:
    """The exit code and the sentence of a rehearsal in tmp_path."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        code = main(["--rehearse", *words])
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        return code, err

    return run


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--dry-run"], "error: --dry-run "),
        (["--job-name", "../escaped"], "error: --job-name ../escaped: "),
        (["--job-name", "mine"], "error: runs/mine exists from an earlier run; choose another --job-name."),
        (["--inject", "spot-notice"], "error: --inject spot-notice@epoch:1: only spot instances get a notice"),
        (["--instance-type", "g5.2xlagre"], "error: unknown instance type 'g5.2xlagre'; did you mean 'g5.2xlarge'?"),
    ],
)  # fmt: skip
def test_one_sentence_and_nothing_made(words: list[str], sentence: str, rehearse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)

    code, said = rehearse(*words)

    assert code == 2
    assert said.startswith(sentence)
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "mine"]


def test_without_a_run_folder_nothing_starts(rehearse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("no folder")

    code, said = rehearse("--job-name", "mine")

    assert code == 6
    assert said.startswith("error: cannot create runs/mine (Not a directory)")


ON_EC2 = ("--instance-type", "c7i.2xlarge", "--allow-cpu", "--job-name", "mine", "--script", "train.py")


@pytest.mark.parametrize(
    ("listed", "asks_for"),
    [
        ("no-such-package-here", "no-such-package-here"),
        ("-r more.txt\nnumpy", "no-such-package-either"),
        ("numpy<1", "numpy<1"),
        ("numpy>=1  # as pip reads it\n-r installed.txt\n", None),
    ],
)
def test_missing_packages_are_refused_before_anything_starts(
    listed: str, asks_for: str | None, rehearse: Rehearse, tmp_path: Path
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "more.txt").write_text("no-such-package-either\n")
    (tmp_path / "installed.txt").write_text("torch\n")
    (tmp_path / "requirements.txt").write_text(listed)
    (tmp_path / "runs" / "mine").mkdir(parents=True)

    code, said = rehearse(*ON_EC2)

    assert code == 2
    if asks_for is None:
        assert said.startswith("error: runs/mine exists")  # which is looked at next
    else:
        assert asks_for in said
        assert f"pip install -r {tmp_path}/requirements.txt" in said
