"""The trainer's side of a SageMaker container; tests/launch/sagemaker/test_container.py has the toolkit around it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from tests import needs
from tests.conftest import trainer_env
from tests.trainer.settings.test_flags import BOOLEANS, OTHER, read
from trainer import sagemaker
from trainer.config import TrainConfig
from trainer.contract import SAGEMAKER_FAILURE_PATTERN, SAGEMAKER_SCRIPT_TEXT, Exit
from trainer.distributed.ranks import Ranks, read_ranks
from trainer.errors import MachineError, SettingsError
from trainer.sagemaker import install, read_secrets
from trainer.script.config import ScriptConfig, parse
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
def test_every_setting_survives_the_sdk_and_the_toolkit(as_flags: Mapping[str, list[str]]) -> None:
    for name, value in GIVEN:
        wanted = {"true": True, "false": False, "none": None}.get(str(value).lower(), OTHER[name])
        found = read(*as_flags[json.dumps({name: json.dumps(value)})])
        assert found == TrainConfig(**{name: wanted}), (name, value)


@pytest.mark.parametrize(
    ("env", "flags"),
    [
        ({}, ["--run-dir", "/opt/ml/checkpoints", "--progress", "false"]),
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
    assert sagemaker.folder_flags(env) == flags


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
    [("0", Exit.DONE, ["config.yaml", "metrics.jsonl", "model.pt"]), ("1", Exit.DONE, []), ("0", Exit.INTERRUPTED, [])],
)
def test_rank_0_hands_over_what_is_done_without_the_checkpoints(
    rank: str, code: Exit, handed_over: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer_that(monkeypatch, code)
    left_behind(tmp_path / "checkpoints")

    ended = sagemaker.main([], container(tmp_path, RANK=rank, WORLD_SIZE="2"))

    assert ended == code
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == handed_over


def reported(stderr: str) -> tuple[int, str]:
    """The exit code and the sentence in the line for the toolkit."""
    (found,) = SAGEMAKER_FAILURE_PATTERN.finditer(stderr)
    return int(found["code"]), found["sentence"]


def test_what_is_wrong_with_several_settings_arrives_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = sagemaker.main(["--epochs", "many", "--lr", "-1"], container(tmp_path))

    error = capsys.readouterr().err
    assert code == Exit.SETTINGS
    assert error.startswith("error: --epochs many: must be a whole number.\n--lr -1: must be")
    assert reported(error)[0] == Exit.SETTINGS
    assert reported(error)[1].startswith("--epochs many: must be a whole number. --lr -1: must be")


def test_a_bugs_traceback_comes_after_the_line_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer_that(monkeypatch, ValueError("boom\nand more"))

    code = sagemaker.main([], container(tmp_path))

    lines = capsys.readouterr().err.splitlines()
    assert code == Exit.BUG
    assert lines[:2] == ["Exception: exit code 1: ValueError: boom and more", "Traceback (most recent call last):"]


@needs_toolkit
@pytest.mark.parametrize("after", ["", " Traceback (most recent call last)\n"])
def test_code_and_sentence_are_found_in_the_toolkits_text(after: str) -> None:
    from sagemaker_training.errors import ExecuteUserScriptError

    line = 'Exception: exit code 5: the loss is not finite; earlier checkpoints are "untouched".\n'
    text = str(ExecuteUserScriptError("torchrun train.py", return_code=1, output=f"{line}{after}".strip()))

    assert reported(text) == (5, 'the loss is not finite; earlier checkpoints are "untouched".')
    assert reported(text[:100])[0] == 5


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
    assert reported(ended.stderr) == (
        2,
        "unknown flag --bach-size; did you mean --batch-size? See --help for all of them.",
    )


PLANTED = "planted-0f3c9a7e51"
ENV = {
    "AWS_REGION": "us-east-1",
    "DDP_SECRET_WANDB_API_KEY": "ssm:/ddp-toolkit/wandb",
    "DDP_SECRET_MLFLOW_TRACKING_PASSWORD": "secretsmanager:ddp-toolkit/mlflow",
}


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One that holds both secrets."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        boto3.client("ssm", "us-east-1").put_parameter(Name="/ddp-toolkit/wandb", Type="SecureString", Value=PLANTED)
        boto3.client("ssm", "us-east-1").put_parameter(
            Name="/ddp-toolkit/file", Type="SecureString", Value=f"{PLANTED}\n"
        )
        held = boto3.client("secretsmanager", "us-east-1")
        held.create_secret(Name="ddp-toolkit/mlflow", SecretString=PLANTED + "\nand more")
        held.create_secret(Name="ddp-toolkit/bytes", SecretBinary=PLANTED.encode())
        yield


@pytest.mark.usefixtures("region")
def test_what_the_environment_names_is_read() -> None:
    """Without the newline at the end of a file that was stored: in a header of HTTP it would end the training."""
    found = read_secrets({**ENV, "DDP_SECRET_KEY": "ssm:/ddp-toolkit/file"})

    assert found == {"WANDB_API_KEY": PLANTED, "MLFLOW_TRACKING_PASSWORD": PLANTED + "\nand more", "KEY": PLANTED}


@pytest.mark.usefixtures("region")
@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("ssm:/ddp-toolkit/none", r"ParameterNotFound"),
        ("secretsmanager:none", r"ResourceNotFoundException"),
        ("secretsmanager:ddp-toolkit/bytes", "binary"),
    ],
)
def test_a_secret_that_is_not_there_is_a_wrong_setting_and_nothing_is_trained(
    where: str, named: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sagemaker, "train", pytest.fail)

    assert sagemaker.main([], {"AWS_REGION": "us-east-1", "DDP_SECRET_KEY": where}) == Exit.SETTINGS

    code, sentence = reported(capfd.readouterr().err)
    assert code == Exit.SETTINGS
    assert "KEY: " in sentence
    assert named in sentence


@pytest.mark.parametrize(
    ("code", "kind"), [("AccessDeniedException", SettingsError), ("InternalServerError", MachineError)]
)
def test_an_error_of_aws_is_named_and_not_repeated(
    code: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ClientError({"Error": {"Code": code, "Message": PLANTED}}, "GetParameter")

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", refuse)
    with pytest.raises(kind, match=code) as caught:
        read_secrets(ENV)
    assert PLANTED not in str(caught.value)


@pytest.mark.usefixtures("region")
def test_the_training_finds_them_in_its_environment_and_nobody_else_hears_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    seen = dict[str, str]()

    def train(argv: Sequence[str], env: Mapping[str, str]) -> int:
        assert PLANTED not in " ".join(argv)
        seen.update(env)
        return Exit.INTERRUPTED

    monkeypatch.setattr(sagemaker, "train", train)

    assert sagemaker.main([], {**ENV, "SM_MODEL_DIR": str(tmp_path / "model")}) == Exit.INTERRUPTED

    assert seen["WANDB_API_KEY"] == PLANTED
    assert PLANTED not in "".join(capfd.readouterr())


HERE = "numpy==1.0.0 \\\n    --hash=sha256:00\n"  # installed here, in another version
AWAY = "no-such-package==1.0 ; sys_platform != 'x' \\\n    --hash=sha256:11 \\\n    --hash=sha256:22\n"


class Pip:
    """In the place of the process."""

    def __init__(self, code: int = 0, stderr: str = "") -> None:
        self.code, self.stderr = code, stderr
        self.calls: list[tuple[Sequence[str], str]] = []

    def __call__(self, words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        self.calls.append((words, Path(words[-1]).read_text()))
        return subprocess.CompletedProcess(words, self.code, "", self.stderr)


@pytest.fixture(autouse=True)
def path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def test_only_what_the_image_lacks_is_installed_and_its_own_comes_first(tmp_path: Path) -> None:
    (tmp_path / "packages.txt").write_text(HERE + AWAY)
    before, pip = list(sys.path), Pip()

    install(tmp_path / "packages.txt", pip)

    ((words, listed),) = pip.calls
    assert listed == AWAY
    assert {"--require-hashes", "--no-deps", "--only-binary", "--target"} <= set(words)
    assert sys.path == [*before, words[words.index("--target") + 1]]


# The second of two hosts with four GPUs each, by the two ways in which AWS's toolkit starts ranks.
TORCHRUN = {"RANK": "4", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4",
            "MASTER_ADDR": "algo-1", "MASTER_PORT": "7777"}  # fmt: skip
MPIRUN = {"OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
          "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "MASTER_ADDR": "algo-1"}  # fmt: skip


class Runs(list[tuple[ScriptConfig, Ranks]]):
    """The arguments of trainer.script, and its place."""

    def main(self, argv: Sequence[str], env: Mapping[str, str]) -> int:
        self.append((parse(argv), read_ranks(env)))
        return 0


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr("trainer.script.__main__.main", runs.main)
    return runs


def start(tmp_path: Path, env: Mapping[str, str], *flags: str) -> int:
    words = ["--source", "/s", "--digest", "0" * 64, "--work", "/w", *flags, "--", "train.py"]
    file = tmp_path / "input/config/hyperparameters.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"sagemaker_ddp_script": json.dumps(words)}))
    places = {"SM_MODEL_DIR": str(tmp_path / "model"), "SM_CHANNEL_SCRIPT": str(tmp_path / "input/data/script")}
    return sagemaker.main([], {**places, **env})


@pytest.mark.parametrize("env", [TORCHRUN, MPIRUN], ids=["torchrun", "mpirun"])
def test_one_process_of_a_host_with_several_gpus_is_the_only_one_there(
    tmp_path: Path, runs: Runs, env: Mapping[str, str]
) -> None:
    assert start(tmp_path, env, "--processes", "one") == 0

    others = {name: str(int(value) + 1) for name, value in env.items() if name.endswith("RANK")}
    assert start(tmp_path, {**env, **others}, "--processes", "one") == 0  # who end at once

    ((config, ranks),) = runs
    assert config.processes == "one"
    assert (ranks.rank, ranks.world_size) == (ranks.node_rank, ranks.nodes) == (1, 2)
    assert (ranks.local_rank, ranks.local_world_size, ranks.master_addr) == (0, 1, "algo-1")


@pytest.mark.parametrize(
    ("channels", "folder"),
    [
        ([], None),
        (["data"], "input/data/data"),
        (["train", "val"], "input/data"),
        (["training"], "input/data"),  # as SageMaker's own examples call it
    ],
)
def test_a_script_gets_the_folder_of_its_channel(
    tmp_path: Path, runs: Runs, channels: Sequence[str], folder: str | None
) -> None:
    places = {f"SM_CHANNEL_{name.upper()}": str(tmp_path / "input/data" / name) for name in channels}

    assert start(tmp_path, TORCHRUN | places) == 0

    ((config, ranks),) = runs
    assert config.data_dir == (None if folder is None else tmp_path / folder)
    assert ranks.rank == 4


def test_results_that_cannot_be_kept_are_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer_that(monkeypatch, Exit.DONE)
    left_behind(tmp_path / "checkpoints")
    env = container(tmp_path)
    (tmp_path / "model" / "model.pt").mkdir()  # in the way

    code = sagemaker.main([], env)

    assert code == Exit.MACHINE
    assert reported(capsys.readouterr().err)[1].startswith(
        f"cannot copy model.pt to {tmp_path}/model (Is a directory);"
    )


def test_an_image_without_boto3_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)

    with pytest.raises(SettingsError, match="--secret needs boto3"):
        read_secrets(ENV)
