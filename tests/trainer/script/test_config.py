"""The command line of one rank of a user's own training: what is written is what is read."""

from pathlib import Path

import pytest

from trainer.errors import SettingsError
from trainer.script.config import ScriptConfig, parse, to_words

DIGEST = "0123456789abcdef" * 4
LEAST = ScriptConfig(run_dir=Path("runs/x"), words=("train.py",))
EVERYTHING = ScriptConfig(
    run_dir=Path("/run dir"), data_dir=Path("/data"), job="mine", restarts=2, source=Path("/in/s.tar.gz"),
    digest=DIGEST, work=Path("/job/source"), cwd="sub/folder", requirements="sub/requirements.txt", processes="one",
    max_silence_s=7.5, max_output_mb=3, words=("-m", "package.module", "--run-dir", "theirs", "--", "a b", ""),
)  # fmt: skip


def test_defaults_are_left_out() -> None:
    assert to_words(LEAST) == ("--run-dir", "runs/x", "--", "train.py")


@pytest.mark.parametrize("config", [LEAST, EVERYTHING])
def test_what_is_written_is_what_is_read(config: ScriptConfig) -> None:
    assert parse(to_words(config)) == config


def test_everything_after_the_first_double_hyphen_is_the_scripts() -> None:
    assert parse(["--run-dir", "x", "--", "t.py", "--max_silence_s", "--"]).words == ("t.py", "--max_silence_s", "--")


@pytest.mark.parametrize(("words", "name"), [(("a/t.py", "-x"), "a/t.py"), (("-m", "a.b", "-x"), "-m a.b")])
def test_a_script_is_called_what_its_user_calls_it(words: tuple[str, ...], name: str) -> None:
    assert ScriptConfig(run_dir=Path("x"), words=words).name == name


def test_a_file_whose_name_looks_like_an_option_is_still_a_file() -> None:
    assert ScriptConfig(run_dir=Path("x"), words=("-x.py", "-y")).for_python == ("./-x.py", "-y")
    assert ScriptConfig(run_dir=Path("x"), words=("-m", "a", "-y")).for_python == ("-m", "a", "-y")


WRONG = [
    ("--run-dir x train.py", "unexpected word 'train.py'"),
    ("--run-dir x", "no script is given"),
    ("--run-dir x -- -m", "no script is given"),
    ("-- train.py", "--run-dir"),
    ("--run-dir none -- t.py", "--run-dir"),
    ("--run-dir x --max-silence 3 -- t.py", "did you mean --max-silence-s"),
    ("--run-dir x --source s.tar.gz -- t.py", "--digest"),
    ("--run-dir x --digest 123 -- t.py", "--digest 123"),
    ("--run-dir x --cwd ../up -- t.py", "--cwd ../up"),
    ("--run-dir x --requirements /etc/r --work w -- t.py", "--requirements /etc/r"),
    ("--run-dir x --requirements r.txt -- t.py", "--work"),
    ("--run-dir x --processes ons -- t.py", "did you mean 'one'?"),
    ("--run-dir x --max-silence-s -1 -- t.py", "--max-silence-s -1"),
    ("--run-dir x --max-silence-s nan -- t.py", "--max-silence-s nan"),
    ("--run-dir x --max-output-mb 1.5 -- t.py", "--max-output-mb 1.5"),
    ("--run-dir a\0b -- t.py", "--run-dir"),
    ('--run-dir x --variables ["A=1", -- t.py', "--variables"),
]


@pytest.mark.parametrize(("words", "named"), WRONG)
def test_a_wrong_line_is_one_sentence(words: str, named: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse(words.split(" "))

    assert named in str(error.value)
    assert "{" not in str(error.value)  # pydantic shows everything that was given
    assert "\n" not in str(error.value)


def test_a_file_of_settings_is_read_as_flags_are(tmp_path: Path) -> None:
    file = tmp_path / "rank.yaml"
    file.write_text("run-dir: here\ndata_dir: none\nmax_silence_s: 5\nvariables: [A=1, B=2]\n")

    found = parse(["--config", str(file), "--max-silence-s", "6", "--", "t.py"])

    assert found == ScriptConfig(run_dir=Path("here"), max_silence_s=6, variables=("A=1", "B=2"), words=("t.py",))
    file.write_text("run-dir: [a, b]\n")
    with pytest.raises(SettingsError, match="must be a path"):
        parse(["--config", str(file), "--", "t.py"])
