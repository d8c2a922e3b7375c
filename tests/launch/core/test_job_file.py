"""One job file for every backend, and the user's own defaults below it."""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from launch.config.__main__ import main as config
from launch.core import user_file
from launch.core.backend import BACKENDS, find
from launch.core.verbs import Verb, run_verb

JOB = """
nodes: 2
instance_type: g5.12xlarge
max_hours: 6
max_usd: 500
data: photos
epochs: 3
ec2: {root_gb: 300}
sagemaker: {encrypt-traffic: true}
slurm: {cpus-per-task: 8}
local: {max_restarts: 2}
"""


@pytest.fixture(autouse=True)
def _no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def launch(backend: str, *words: str) -> int:
    code: int = import_module(f"launch.{backend}.__main__").main(list(words))
    return code


def dry_run(backend: str, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """The plan as data; without an account or a cluster, its exit code may be any."""
    launch(backend, *words, "--dry-run=json")
    printed = capsys.readouterr()
    assert printed.out, printed.err
    return json.loads(printed.out)


def written(text: str, name: str = "job.yaml") -> str:
    Path(name).write_text(text)
    return name


def defaults(text: str) -> None:
    user_file.path().parent.mkdir(parents=True, exist_ok=True)
    user_file.path().write_text(text)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a user with defaults of their own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return tmp_path


# Backend -> what its plan says of JOB, and the settings that it does not use.
MEANT = {
    "local": (["--nproc-per-node 4", "--max-restarts 2", "--epochs 3"], "nodes, max_hours, max_usd, data"),
    "ec2": (
        ["2 x g5.12xlarge", '"time_limit_h": 6.0', '"VolumeSize": 300', '"--epochs", "3"', '"volume": "per-node"'], ""
    ),
    "sagemaker": (
        ['"InstanceType": "ml.g5.12xlarge"', '"InstanceCount": 2', '"MaxRuntimeInSeconds": 21600', "/data/photos/",
         '"EnableInterContainerTrafficEncryption": true'],
        "",
    ),
    "slurm": (["--nodes=2", "--gpus-per-node=4", "--time=360", "--cpus-per-task=8", "--epochs 3"], "max_usd, data"),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_job_file_means_the_same_on_every_backend(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = dry_run(backend, capsys, "--config", written(JOB))
    text = json.dumps(plan) + " ".join(plan.get("command", ())) + "".join(plan.get("files", {}).values())
    meant, unused = MEANT[backend]

    assert [words for words in (*meant, "imagefolder") if words not in text] == []
    noted = [warning for warning in plan["warnings"] if "job.yaml" in warning]
    assert noted == ([f"job.yaml sets {unused}, which {backend} does not use."] if unused else [])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_file_of_a_script_means_the_same_on_every_backend(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    written("print('trained')", "train.py")
    file = written("script: train.py\nargs: --rate 0.25\ninstance_type: g5.12xlarge")

    assert "0.25" in json.dumps(dry_run(backend, capsys, "--config", file))


def test_the_section_of_a_backend_counts_more_than_the_rest_and_a_flag_more_than_both(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = written("instance_type: g5.12xlarge\nepochs: 3\nlocal: {nproc_per_node: 2, epochs: 4}\nslurm: {epochs: 5}")

    assert "--nproc-per-node 2" in " ".join(dry_run("local", capsys, "--config", file)["command"])
    assert "--epochs 4" in " ".join(dry_run("local", capsys, "--config", file)["command"])
    assert "--epochs 6" in " ".join(dry_run("local", capsys, "--config", file, "--epochs", "6")["command"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_hour: 2", "unknown setting 'max_hour' in job.yaml; did you mean 'max_hours'?"),
        ("slurm: {partion: gpu}", "unknown setting 'partion' in job.yaml, slurm; did you mean 'partition'?"),
        ("local: {partition: gpu}", "unknown setting 'partition' in job.yaml, local"),
        ("ec2: fast", "ec2 in job.yaml must hold `name: value` lines."),
        ("instance_type: g5.12xlrge", "did you mean 'g5.12xlarge'?"),
    ],
)
def test_a_mistake_in_any_section_is_an_error_on_every_backend(
    text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for backend in ("local", "slurm"):
        assert launch(backend, "--config", written(text), "--dry-run") == 2
        assert said in capsys.readouterr().err


def test_data_in_a_folder_of_this_machine_are_read_there(capsys: pytest.CaptureFixture[str]) -> None:
    Path("photos").mkdir()

    plan = dry_run("local", capsys, "--config", written("data: photos"))
    assert "--dataset imagefolder --data-dir photos" in " ".join(plan["command"])
    assert plan["warnings"] == []


@pytest.mark.parametrize("backend", [name for name in BACKENDS if "wait" in find(name).options.model_fields])
def test_every_backend_follows_a_job_by_default(backend: str) -> None:
    options = find(backend).options.model_fields
    assert (options["wait"].default, options["detach"].default) == (True, False)


# ---- the user's own defaults


def test_the_users_defaults_count_less_than_the_file_and_flags(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    defaults("epochs: 7\nbatch_size: 64\nlr: 0.5\ninstance_type: g5.12xlarge\nlocal: {max_restarts: 4}")
    file = written("batch_size: 32\nlr: 0.25")
    command = " ".join(dry_run("local", capsys, "--config", file, "--lr", "0.125")["command"])

    for words in ("--nproc-per-node 4", "--max-restarts 4", "--epochs 7", "--batch-size 32", "--lr 0.125"):
        assert words in command


def test_the_users_defaults_are_no_notes_and_rule_out_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    defaults("region: eu-west-1\ntensorboard: true\nbatch_size: 64\nmax_silence_s: 100")
    written("print('trained')", "train.py")

    for words in (["--script", "train.py"], ["--global-batch-size", "128"]):
        assert dry_run("local", capsys, *words)["warnings"] == []


@pytest.mark.parametrize("text", ["regoin: eu-west-1", "job_name: mine", "ec2: {partition: gpu}", "epochs: two"])
def test_a_wrong_default_of_the_user_is_an_error_with_its_file(
    text: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    defaults(text)
    assert launch("local", "--dry-run") == 2
    assert str(user_file.path()) in capsys.readouterr().err


@pytest.mark.parametrize("text", ["nodes: two", "script: train.py\nargs: --rate '1"])
def test_a_wrong_value_in_a_job_file_is_an_error_with_the_file(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    written("print('trained')", "train.py")

    assert launch("ec2", "--config", written(text), "--dry-run") == 2
    assert "job.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("regions", ["eu-west-1", "[eu-west-1, us-east-1]"])
def test_verbs_look_for_a_job_in_the_users_region(regions: str, home: Path) -> None:
    defaults(f"region: {regions}\nepochs: 3")
    seen: list[Mapping[str, Any]] = []

    def act(options: Any) -> int:
        seen.append(options.model_dump())
        return 0

    from launch.core.options import RegionOptions

    for words in ([], ["--region", "us-west-2"]):
        run_verb("ddp ec2", {"status": Verb("", RegionOptions, act)}, "status", words)
    assert [one["region"] for one in seen] == ["eu-west-1", "us-west-2"]


def test_config_shows_where_the_users_defaults_are_and_what_they_set(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert config([]) == 0
    assert capsys.readouterr().out.startswith(f"{home}/settings/aws-ddp-toolkit/config.yaml\nthere is no such file")

    defaults("region: eu-west-1\nsagemaker: {role: training}\nvariables: A=b,API_TOKEN=0123456789abc")
    assert config([]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  variables: A=b,API_TOKEN=***  (local, ec2, sagemaker, slurm)",
        "  region: eu-west-1  (ec2, sagemaker)",
        "  role: training  (sagemaker)",
    ]


@pytest.mark.parametrize(
    ("backend", "words", "other"),
    [("ec2", ("--partition", "gpu"), "launch.slurm"), ("slurm", ("--max-hours=3",), "launch.ec2 and launch.sagemaker")],
)
def test_a_flag_of_another_backend_is_named_as_that(
    backend: str, words: tuple[str, ...], other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert import_module(f"launch.{backend}.__main__").main([*words, "--dry-run"]) == 2
    assert f"{words[0].partition('=')[0]} is a flag of {other}" in capsys.readouterr().err
