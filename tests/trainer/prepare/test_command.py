"""`python -m trainer.prepare`, as a user types it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from trainer.contract import Exit
from trainer.prepare.__main__ import main


def test_it_says_what_was_made_and_what_to_type_next(
    photos, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "prepared"

    assert main([str(photos()), str(target), "--workers", "1", "--name", "pets"]) == Exit.DONE

    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("pets: 12 images to train on, 6 to evaluate on, 2 classes; 0.0 MB in 0.1 MB, 2 shards")
    assert said[1] == f"  python -m trainer --dataset imagefolder --data-dir {target}"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("nowhere", "new"), Exit.SETTINGS, "error: no nowhere"),
        ((".", "."), Exit.SETTINGS, "error: . cannot be SRC and DST"),
        ((".", "new"), Exit.DATA, "error: . has no train/"),
        (("file", "new"), Exit.DATA, "error: file is not a tar, or is damaged"),
        ((".", "file"), Exit.SETTINGS, "error: cannot use file (File exists)"),
    ],
)
def test_what_cannot_be_prepared_gets_a_sentence_and_its_exit_code(
    words: tuple[str, str], code: Exit, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("file").write_bytes(b"no tar" * 1000)

    assert main(list(words)) == code

    assert capsys.readouterr().err.startswith(sentence)
    assert not Path("new").exists()


@pytest.mark.parametrize(("flag", "value"), [("--resize", "0"), ("--quality", "best"), ("--name", "My Photos")])
def test_flags_out_of_range_are_refused(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["a", "b", flag, value])

    assert ended.value.code == Exit.SETTINGS
    assert f"'{value}'" in capsys.readouterr().err


def test_its_workers_never_load_torch() -> None:
    program = "import sys, trainer.prepare.pipeline; print('torch' in sys.modules)"

    assert (
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True).stdout == b"False\n"
    )
