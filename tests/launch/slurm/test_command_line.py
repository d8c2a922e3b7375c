"""launch.slurm's command line, where there is no Slurm."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.core.cli import LaunchOptions
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.terminal import say
from launch.slurm.options import SlurmOptions
from launch.slurm.runtime import Runtime
from tests.conftest import trainer_env
from tests.launch.data.desk import prepared
from tests.launch.slurm.user import User
from trainer.config import TrainConfig


@pytest.fixture
def user(tmp_path: Path) -> User:
    """Somebody with a laptop."""
    return User(Runtime({"PATH": str(tmp_path / "bin")}, tmp_path, sys.executable, Clock(), say))


def test_a_dry_run_shows_the_script_on_a_laptop(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    assert user.run("--nodes", "2", "--job-name", "job", "--dry-run") == 0

    out = capsys.readouterr().out
    assert "  #SBATCH --nodes=2\n" in out
    assert "problem: sinfo is not installed on this machine; run this on a login node" in out
    assert not user.folder.exists()


def test_a_dry_run_forecasts_prepared_data_in_a_folder(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    (user.runtime.cwd / "shared").mkdir()
    (user.runtime.cwd / "shared/manifest.json").write_text(json.dumps(prepared(90_000, 10_000, 3_000_000_000)))
    data = ("--dataset", "imagefolder", "--data-dir", "shared")
    assert user.run("--job-name", "job", "--gpus-per-node", "4", "--gpu-type", "a100", *data, "--dry-run=json") == 0

    plan = json.loads(capsys.readouterr().out)
    assert plan["facts"]["data"] == {"train": 90_000, "val": 10_000, "bytes": 3_000_000_000, "classes": 3, "px": 256}
    (quote,) = plan["quotes"]
    assert 90_000 / quote["images_per_s"] == pytest.approx(quote["epoch_s"], rel=0.2)


class Bucket:
    """A folder in S3, as far as a plan looks at it; None: for which there are no rights."""

    def __init__(self, content: bytes | None) -> None:
        self.region, self.content, self.asked = "us-east-1", content, list[tuple[str, str]]()

    def read(self, bucket: str, key: str, _most: int) -> bytes:
        self.asked.append((bucket, key))
        if self.content is None:
            raise AwsError("s3:GetObject is refused", "AccessDenied")
        return self.content


def test_a_dry_run_forecasts_prepared_data_in_s3(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    bucket = Bucket(json.dumps(prepared(90_000, 10_000, 3_000_000_000)).encode())
    user.runtime = replace(user.runtime, make_aws=lambda region: bucket)
    asked = ("--job-name", "job", "--gpus-per-node", "4", "--gpu-type", "a100", "--dataset", "imagefolder")
    assert user.run(*asked, "--data-url", "s3://shared/photos", "--dry-run=json") == 0

    plan = json.loads(capsys.readouterr().out)
    assert bucket.asked == [("shared", "photos/manifest.json")]
    assert plan["facts"]["data"]["train"] == 90_000
    (quote,) = plan["quotes"]
    assert 90_000 / quote["images_per_s"] == pytest.approx(quote["epoch_s"], rel=0.2)

    user.runtime = replace(user.runtime, make_aws=lambda region: Bucket(None))
    assert user.run(*asked, "--data-url", "s3://shared/photos", "--dry-run=json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert "its number of images is unknown" in plan["quotes"][0]["why_unknown"]
    assert [problem["exit_code"] for problem in plan["problems"]] == [2]  # no Slurm here, and nothing of S3


def test_a_damaged_manifest_is_no_problem_of_a_plan(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    (user.runtime.cwd / "manifest.json").write_text("[1]")
    data = ("--dataset", "imagefolder", "--data-dir", ".")
    assert user.run("--job-name", "job", "--gpu-type", "a100", *data, "--dry-run=json") == 0

    (quote,) = json.loads(capsys.readouterr().out)["quotes"]
    assert "its number of images is unknown" in quote["why_unknown"]


def test_a_dry_run_for_programs_is_json(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    assert user.run("--job-name", "job", "--dry-run=json") == 0

    plan = json.loads(capsys.readouterr().out)
    assert plan["command"] == ["sbatch", "--parsable", str(user.folder / "job.sbatch")]
    assert plan["files"]["job.sbatch"].startswith("#!/bin/bash\n#SBATCH --job-name=job\n")
    assert [problem["exit_code"] for problem in plan["problems"]] == [2]


@pytest.mark.parametrize("argv", [["--nodes", "2"], ["status"], ["stop", "x"]])
def test_without_slurm_nothing_is_done(argv: list[str], user: User, capsys: pytest.CaptureFixture[str]) -> None:
    assert user.run(*argv) == 2

    assert "is not installed on this machine; run this on a login node" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--nproc-per-node 4 --gpus-per-node 2", "each process needs a GPU of its own"),
        ("--device cpu --gpus-per-node 1", "--device cpu uses no GPU"),
        ("--device cuda --gpus-per-node 0", "--device cuda needs --gpus-per-node of at least 1"),
        ("--nodes 2 --strategy dp", "--strategy dp trains in one process, not 2"),
        ("--nodes 3 --global-batch-size 100", "does not divide among 3 replicas"),
        ("--time 4h", "--time 4h: write minutes"),
        ("--time 2", "leaves nothing to train before the save 120 s ahead"),
        ("--job-name a_b", "--job-name a_b: at most 48 letters"),
        ("--container-image a --container-edf b", "both name an image; give one"),
        ("--container-mounts a:/b", "needs a --container-image; give"),
        ("--container-image a --container-mounts b", "--container-mounts b: write HOST:CONTAINER"),
        ("--partiton x", "unknown flag --partiton; did you mean --partition?"),
        ("--sbatch='a", "close every quote"),
        ("--sbatch=--array=0-3", "--sbatch --array=0-3: launch.slurm sets that flag itself"),
        ("--sbatch=-a0-3", "--sbatch -a0-3: launch.slurm sets that flag itself"),
        ("--nodelist n\x0b0", "--nodelist must be a single line"),
    ],
)
def test_a_job_that_cannot_work_is_refused_before_slurm_is_asked(
    flags: str, sentence: str, user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    assert user.run(*flags.split(" ")) == 2

    assert sentence in capsys.readouterr().err


def test_a_folder_that_is_not_ours_is_left_alone(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    user.folder.mkdir(parents=True)
    (user.folder / "thesis.tex").touch()

    assert user.submit("--dry-run=json") == 2

    sentences = [problem["sentence"] for problem in json.loads(capsys.readouterr().out)["problems"]]
    assert any("launch.slurm did not make it; choose another --job-name" in sentence for sentence in sentences)


def test_launchers_and_trainer_share_no_name() -> None:
    names: list[Any] = [*LaunchOptions.model_fields, *SlurmOptions.model_fields, *TrainConfig.model_fields]

    assert len(names) == len(set(names))


def test_help_needs_neither_slurm_nor_what_is_slow_to_import() -> None:
    code = (
        "import sys\nfrom launch.slurm.__main__ import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(*sorted({'torch', 'numpy', 'yaml', 'launch.slurm.planner'} & set(sys.modules)), file=sys.stderr)"
    )

    ended = subprocess.run([sys.executable, "-c", code], env=trainer_env(), capture_output=True, text=True)

    assert "--container-image" in ended.stdout
    assert ended.stderr.strip() == ""
