"""The script that is submitted, whole."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.slurm.lookup import environment
from launch.slurm.script import directives, render
from launch.slurm.show import as_text
from tests.launch.slurm.jobs import EVERY_KIND, placed, planned
from trainer.errors import SettingsError


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_the_script_of_every_kind(kind: str, golden: Callable[[str, str], None]) -> None:
    """Its head and its settings; the rest is the same for all."""
    script = render(placed(kind))

    golden(f"{kind}.sbatch", script[: script.index("\nLOG=") + 1] if kind != "srun" else script)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_shellcheck_finds_nothing(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "job.sh"
    file.write_text(render(placed(kind)))

    # trap calls a function by name; and values are quoted already, with their commas and for torchrun's shell.
    command = [Path(sys.executable).parent / "shellcheck", "--exclude", "SC2329,SC2054,SC2016", file]
    ended = subprocess.run(command, capture_output=True, text=True)

    assert ended.returncode == 0, ended.stdout


def test_the_plan_for_a_reader(golden: Callable[[str, str], None]) -> None:
    made = planned(EVERY_KIND["edf"], model="resnet18", dataset="imagenet", epochs=16, data_dir=Path("/scratch/in"))

    golden("dry-run.txt", as_text(made) + "\n")


def test_the_plan_says_how_long_it_should_take_where_slurm_tells_the_gpu() -> None:
    made = planned(EVERY_KIND["srun"], model="resnet18", dataset="imagenet", epochs=16)

    assert dict(made.rows)["expected"] == (
        "1.9 h: 416 s per epoch (256 to 605), 3,200 images/s, limited by JPEG decoding (estimated rate)"
    )


def test_the_edf_mounts_what_the_ranks_need() -> None:
    options = {**EVERY_KIND["edf"], "container_mounts": ("/scratch:/scratch",)}

    made = planned(options, dataset="imagenet", data_dir=Path("/scratch/imagenet"))

    assert made.edf == (
        'image = "/images/toolkit.sqsh"\nmounts = [\n    "/scratch:/scratch",\n    "/home/me:/home/me",\n]\n'
        'workdir = "/home/me"\n'
    )


def test_torchruns_task_has_the_cpus_of_all_its_processes() -> None:
    assert "--cpus-per-task=4" in directives(placed("torchrun"))
    assert "--cpus-per-task=2" in directives(placed("srun"))


def test_a_job_around_us_and_the_users_defaults_do_not_speak_into_the_new_job() -> None:
    env = {"PATH": "/bin", "SLURM_CONF": "c", "SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "1",
           "SRUN_CPUS_PER_TASK": "1", "SBATCH_PARTITION": "p", "SBATCH_ACCOUNT": "a",
           "SBATCH_TIMELIMIT": "5", "SBATCH_ARRAY_INX": "0-3"}  # fmt: skip

    assert environment(env, ["--partition=main", "--time=20"]) == {
        "PATH": "/bin",
        "SLURM_CONF": "c",
        "SBATCH_ACCOUNT": "a",
    }


def test_a_path_that_a_container_cannot_mount_is_refused() -> None:
    with pytest.raises(SettingsError, match="cannot mount a path with a comma or colon"):
        planned(EVERY_KIND["pyxis"], Path("/home/a,b"))
