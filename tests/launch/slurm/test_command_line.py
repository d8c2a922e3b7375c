"""launch.slurm's command line, where there is no Slurm."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.core.cli import LaunchOptions
from launch.slurm import __main__ as command_line
from launch.slurm.options import SlurmOptions
from tests.conftest import trainer_env
from trainer.config import TrainConfig


@pytest.fixture(autouse=True)
def no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_dry_run_shows_the_script_on_a_laptop(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--nodes", "2", "--job-name", "x", "--dry-run"]) == 0

    out = capsys.readouterr().out
    assert "  #SBATCH --nodes=2\n" in out
    assert "problem: there is no sinfo here; run this on a login node" in out
    assert not Path("runs").exists()


def test_a_dry_run_for_programs_is_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--job-name", "x", "--dry-run=json"]) == 0

    plan = json.loads(capsys.readouterr().out)
    assert plan["command"] == ["sbatch", "--parsable", str(tmp_path / "runs/x/job.sbatch")]
    assert plan["script"].startswith("#!/bin/bash\n#SBATCH --job-name=x\n")


@pytest.mark.parametrize("argv", [["--nodes", "2"], ["status"], ["stop", "x"]])
def test_without_slurm_nothing_is_done(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(argv) == 2

    assert capsys.readouterr().err.startswith("error: there is no ")


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
        ("--container-image a --container-edf b", "both name the image; give one"),
        ("--container-mounts a:/b", "there is none; give --container-image"),
        ("--container-image a --container-mounts b", "--container-mounts b: write HOST:CONTAINER"),
        ("--partiton x", "unknown flag --partiton; did you mean --partition?"),
        ("--sbatch='a", "close every quote"),
        ("--sbatch=--array=0-3", "--sbatch --array=0-3: launch.slurm says that itself"),
        ("--sbatch=-a0-3", "--sbatch -a0-3: launch.slurm says that itself"),
        ("--nodelist n\x0b0", "--nodelist must be a single line"),
    ],
)
def test_what_cannot_work_is_said_before_slurm_is_asked(
    flags: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(flags.split(" ")) == 2

    assert sentence in capsys.readouterr().err


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs/x").mkdir(parents=True)
    (tmp_path / "runs/x/thesis.tex").touch()

    command_line.main(["--job-name", "x", "--dry-run"])

    assert "launch.slurm did not make it; take another --job-name" in capsys.readouterr().out


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
