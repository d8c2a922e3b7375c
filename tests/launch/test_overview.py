"""`python -m launch`, --version and tab completion: how a newcomer finds the commands."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from launch import __main__ as overview
from launch.core.backend import BACKENDS, find
from launch.core.cli import LaunchOptions, RehearsalOptions
from launch.core.jobs import VERBS
from launch.core.training.options import ScriptOptions
from launch.sagemaker.__main__ import main as sagemaker
from tests.conftest import ROOT
from trainer.settings.argparser import flag

DDP = "import sys; from launch.__main__ import ddp; sys.exit(ddp())"
COMMANDS = sorted(path.parent.name for path in (ROOT / "launch").glob("*/__main__.py"))


def test_every_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert overview.main(["--help"]) == 0

    text = capsys.readouterr().out
    assert sorted([*BACKENDS, *overview.TOOLS]) == COMMANDS
    assert [name for name in (*COMMANDS, *overview.TRAINER, *overview.VERBS) if f"\n  {name} " not in text] == []


def test_without_a_command_the_list_is_shown_as_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert overview.main([]) == 2
    assert "usage: python -m launch NAME" in capsys.readouterr().out


def test_a_misspelt_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert overview.main(["sweeep"]) == 2
    assert capsys.readouterr().err.startswith("error: unknown command 'sweeep'; did you mean 'sweep'?")


def test_a_command_after_launch_is_that_command() -> None:
    words = ["-m", "launch", "local", "--model", "cnn", "--dry-run"]
    ended = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.returncode == 0
    assert "-m trainer --model cnn" in ended.stdout


@pytest.mark.parametrize(
    "module",
    ["trainer", "launch.ec2"],
)
def test_every_command_knows_its_version(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", module, "--version"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, f"aws-ddp-toolkit {version('aws-ddp-toolkit')}\n")


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("python -m trainer --precisi", ["--precision"]),
        ("python -m launch.ec2 logs --foll", ["--follow"]),
        ("python -m launch.ec2 sta", ["status"]),
        ("ddp swe", ["sweep"]),
        ("ddp ec2 sta", ["status"]),
        ("ddp train --precisi", ["--precision"]),
    ],
)
def test_a_shell_completes_flags_and_those_of_verbs(line: str, completions: list[str], tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    program = ["-c", DDP] if line.startswith("ddp") else ["-m", line.split()[2]]
    env = {
        **os.environ, "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9",
        "_ARGCOMPLETE": "1" if line.startswith("ddp") else "3",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "_ARGCOMPLETE_IFS": " ",
    }  # fmt: skip
    subprocess.run([sys.executable, *program], cwd=ROOT, env=env, check=False, capture_output=True)

    assert answer.read_text().split() == completions


def flags_page() -> str:
    """A row for each flag that only launchers have: its backends, and what it does on the first of them."""
    rows: dict[str, tuple[list[str], str]] = {}
    for name in BACKENDS:
        for model in (LaunchOptions, RehearsalOptions, find(name).options, ScriptOptions):
            if model is RehearsalOptions and not find(name).rehearsal:
                continue
            for field, about in model.model_fields.items():
                rows.setdefault(field, ([], str(about.description)))[0].append(name)
    verbs = [f"| `{verb}` | {text.splitlines()[0]} |" for verb, (text, _) in VERBS.items()]
    lines = [f"| `{flag(name)}` | {', '.join(on)} | {text} |" for name, (on, text) in sorted(rows.items())]
    return "\n".join(
        [
            "# Flags and verbs of the launchers",
            "",
            "What `--help-all` and `VERB --help` print, on one page. The training's settings are in "
            "[trainer/SETTINGS.md](../trainer/SETTINGS.md). "
            "`python -m pytest tests/launch/test_overview.py --write-golden` writes this page.",
            "",
            "| flag | on | |",
            "| --- | --- | --- |",
            *lines,
            "",
            "| verb, as in `ddp ec2 status JOB` | |",
            "| --- | --- |",
            *verbs,
            "",
        ]
    )


def test_the_page_of_flags_is_what_the_options_say(golden: Callable[[str, str], None]) -> None:
    golden(str(ROOT / "launch/FLAGS.md"), flags_page())


def test_a_verb_of_other_backends_is_named_as_that(capsys: pytest.CaptureFixture[str]) -> None:
    assert sagemaker(["forward", "JOB", "8888"]) == 2
    assert "launch.sagemaker has no verb forward" in capsys.readouterr().err


# ---- the console script


def run_ddp(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """As the script that pip makes, which never has the current folder on its path."""
    command = [sys.executable, "-P", "-c", DDP, *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_files_named_like_the_toolkits_are_not_in_the_way(tmp_path: Path) -> None:
    for name in ("trainer.py", "launch.py", "utils.py", "logging.py"):
        (tmp_path / name).write_text("raise SystemExit('a file of the user')\n")

    ended = run_ddp("train", "--help", cwd=tmp_path)

    assert "of the user" not in ended.stderr
    assert ended.stdout.startswith("usage: ddp train ")


def test_commands_in_texts_are_those_of_the_script(tmp_path: Path) -> None:
    ended = run_ddp("ec2", "stop", "no-such-job", "--region", "nowhere", cwd=tmp_path)
    shown = run_ddp("ec2", "--help", cwd=tmp_path)

    assert shown.stdout.startswith("usage: ddp ec2 ")
    assert "python -m launch" not in ended.stderr + shown.stdout
