"""The trainer's side of a SageMaker container; tests/launch/sagemaker/test_container.py has the toolkit around it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.conftest import trainer_env
from tests.trainer.settings.test_flags import BOOLEANS, OTHER, read
from trainer import sagemaker
from trainer.config import TrainConfig
from trainer.contract import SAGEMAKER_FAILURE_PATTERN, SAGEMAKER_SCRIPT_TEXT, Exit
from trainer.distributed.failure import say
from trainer.errors import ends_reported_to
from trainer.settings.argparser import as_text

# The toolkit's own functions, for many jobs: hyperparameters.json -> the flags of train.py.
TOOLKIT = """
import json, sys
from sagemaker_training import environment, mapping
for line in sys.stdin:
    open(environment.hyperparameters_file_dir, "w").write(line)
    print(json.dumps(mapping.to_cmd_args(environment.read_hyperparameters())))
"""
# Each way in which a setting may be given: as a Python value, and as the text that the launcher sends.
GIVEN: list[tuple[str, Any]] = [
    *((name, value) for name, value in TrainConfig(**OTHER).model_dump(mode="json").items()),
    *((name, as_text(value)) for name, value in OTHER.items()),
    *((name, value) for name in BOOLEANS for value in (True, False, "true", "false")),
    *((name, given) for name in OTHER if TrainConfig.model_fields[name].default is None for given in (None, "none")),
]  # fmt: skip

needs_toolkit = needs.sagemaker_toolkit()


@pytest.fixture(scope="module")
def as_flags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """For each of GIVEN, as JSON: the flags that it arrives as."""
    base = tmp_path_factory.mktemp("ml")
    (base / "input" / "config").mkdir(parents=True)
    # As the SDK does: https://github.com/aws/sagemaker-python-sdk/blob/v2.257.7/src/sagemaker/job.py
    requests = [json.dumps({name: json.dumps(value)}) for name, value in GIVEN]
    ended = subprocess.run(
        [sys.executable, "-c", TOOLKIT], input="\n".join(requests), env=os.environ | {"SAGEMAKER_BASE_DIR": str(base)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("[")]
    return dict(zip(requests, answers, strict=True))


@needs_toolkit
@pytest.mark.parametrize(("name", "value"), GIVEN)
def test_every_setting_survives_the_sdk_and_the_toolkit(
    name: str, value: Any, as_flags: Mapping[str, list[str]]
) -> None:
    wanted = {"true": True, "false": False, "none": None}.get(str(value).lower(), OTHER[name])

    assert read(*as_flags[json.dumps({name: json.dumps(value)})]) == TrainConfig(**{name: wanted})


@pytest.mark.parametrize(
    ("env", "flags"),
    [
        ({}, ["--run-dir", "/opt/ml/checkpoints", "--progress", "false"]),
        ({"SM_MODEL_DIR": "/m/model"}, ["--run-dir", "/m/checkpoints", "--progress", "false"]),
        (
            {"SM_MODEL_DIR": "/m/model", "SM_CHANNELS": '["data","more"]', "SM_CHANNEL_DATA": "/m/input/data/data",
             "SM_CHANNEL_MORE": "/m/input/data/more", "SM_INPUT_DIR": "/m/input"},
            ["--run-dir", "/m/checkpoints", "--progress", "false", "--data-dir", "/m/input/data/data"],
        ),
        (
            {"SM_MODEL_DIR": "/m/model", "SM_CHANNELS": '["train","val"]', "SM_CHANNEL_TRAIN": "/m/input/data/train",
             "SM_CHANNEL_VAL": "/m/input/data/val", "SM_INPUT_DIR": "/m/input"},
            ["--run-dir", "/m/checkpoints", "--progress", "false", "--data-dir", "/m/input/data"],
        ),
    ],
)  # fmt: skip
def test_places_follow_from_the_container(env: dict[str, str], flags: list[str]) -> None:
    assert sagemaker.places(env) == flags


def container(folder: Path, **env: str) -> dict[str, str]:
    (folder / "model").mkdir()
    return {"SM_MODEL_DIR": str(folder / "model"), **env}


def trainer_that(monkeypatch: pytest.MonkeyPatch, does: Any) -> list[str]:
    """Puts `does` in the place of the trainer, and returns where the flags that it got will be."""
    flags: list[str] = []

    def train(argv: Sequence[str], env: Mapping[str, str]) -> int:
        flags.extend(argv)
        if isinstance(does, Exception):
            raise does
        return int(does)

    monkeypatch.setattr(sagemaker, "train", train)
    return flags


def left_behind(folder: Path) -> None:
    """What a run leaves in its folder."""
    (folder / "checkpoints").mkdir(parents=True)
    for name in ("model.pt", "model.pt.sha256", "metrics.jsonl", "config.yaml", "checkpoints/best.pt"):
        (folder / name).write_text(name)


@pytest.mark.parametrize(
    ("env", "interface"),
    [
        ({"SM_HOSTS": '["algo-1", "algo-2"]', "SM_NETWORK_INTERFACE_NAME": "eth0"}, "eth0"),
        ({"SM_HOSTS": '["algo-1"]', "SM_NETWORK_INTERFACE_NAME": "eth0"}, None),
        ({"SM_HOSTS": '["algo-1", "algo-2"]', "SM_NETWORK_INTERFACE_NAME": "eth0", "GLOO_SOCKET_IFNAME": "x"}, "x"),
        ({}, None),
    ],
)
def test_gloo_meets_on_the_network_of_several_hosts(
    env: dict[str, str], interface: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sagemaker, "train", lambda flags, env: Exit.SETTINGS)
    sagemaker.main([], env)
    assert env.get("GLOO_SOCKET_IFNAME") == interface


def test_the_users_flags_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = trainer_that(monkeypatch, Exit.DONE)
    left_behind(tmp_path / "mine")

    code = sagemaker.main(["--run_dir", str(tmp_path / "mine"), "--amp", "True"], container(tmp_path))

    config = read(*flags)
    assert (code, config.run_dir, config.progress, config.amp) == (0, tmp_path / "mine", False, True)
    assert (tmp_path / "model" / "model.pt").read_text() == "model.pt"


@pytest.mark.parametrize(
    ("rank", "code", "handed_over"),
    [
        ("0", Exit.DONE, ["config.yaml", "metrics.jsonl", "model.pt"]),
        ("1", Exit.DONE, []),
        ("0", Exit.INTERRUPTED, []),
    ],
)
def test_rank_0_hands_over_what_is_done_without_the_checkpoints(
    rank: str, code: Exit, handed_over: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer_that(monkeypatch, code)
    left_behind(tmp_path / "checkpoints")

    ended = sagemaker.main([], container(tmp_path, RANK=rank, WORLD_SIZE="2"))

    assert ended == code
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == handed_over


def told(stderr: str) -> tuple[int, str]:
    """The exit code and the sentence in the line for the toolkit."""
    (found,) = SAGEMAKER_FAILURE_PATTERN.finditer(stderr)
    return int(found["code"]), found["sentence"]


def test_results_that_cannot_be_kept_are_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer_that(monkeypatch, Exit.DONE)
    left_behind(tmp_path / "checkpoints")
    env = container(tmp_path)
    (tmp_path / "model" / "model.pt").mkdir()  # in the way

    code = sagemaker.main([], env)

    assert code == Exit.MACHINE
    assert told(capsys.readouterr().err)[1].startswith(f"cannot copy model.pt to {tmp_path}/model (Is a directory);")


def test_what_is_wrong_with_several_settings_arrives_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = sagemaker.main(["--epochs", "many", "--lr", "-1"], container(tmp_path))

    error = capsys.readouterr().err
    assert code == Exit.SETTINGS
    assert error.startswith("error: --epochs many: must be a whole number.\n--lr -1: must be")
    assert told(error)[0] == Exit.SETTINGS
    assert told(error)[1].startswith("--epochs many: must be a whole number. --lr -1: must be")


def test_a_bugs_traceback_comes_after_the_line_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer_that(monkeypatch, ValueError("boom\nand more"))

    code = sagemaker.main([], container(tmp_path))

    lines = capsys.readouterr().err.splitlines()
    assert code == Exit.BUG
    assert lines[:2] == ["Exception: exit code 1: ValueError: boom and more", "Traceback (most recent call last):"]


def test_what_a_thread_says_the_toolkit_hears_too() -> None:
    heard: list[tuple[int, str]] = []

    with ends_reported_to(lambda code, sentence: heard.append((code, sentence))):
        say(Exit.MACHINE, "rank 1 hangs.")
    say(Exit.MACHINE, "nobody hears this.")

    assert heard == [(6, "rank 1 hangs.")]


@needs_toolkit
@pytest.mark.parametrize("after", ["", " Traceback (most recent call last)\n"])
def test_code_and_sentence_are_found_in_the_toolkits_text(after: str) -> None:
    from sagemaker_training.errors import ExecuteUserScriptError

    line = 'Exception: exit code 5: the loss is not finite; earlier checkpoints are "untouched".\n'
    text = str(ExecuteUserScriptError("torchrun train.py", return_code=1, output=f"{line}{after}".strip()))

    assert told(text) == (5, 'the loss is not finite; earlier checkpoints are "untouched".')
    assert told(text[:100])[0] == 5


def test_the_script_of_the_bundle_starts_the_trainer_and_ends_with_its_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SAGEMAKER_SCRIPT_TEXT)

    ended = subprocess.run(
        [sys.executable, "train.py", "--bach-size", "3"],
        cwd=tmp_path,
        env=trainer_env(),
        capture_output=True,
        text=True,
    )

    assert ended.returncode == Exit.SETTINGS
    assert told(ended.stderr) == (2, "unknown flag --bach-size; did you mean --batch-size? See --help for all of them.")
