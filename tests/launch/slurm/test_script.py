"""The script that is submitted, whole, and the plan that shows it; a path in it stays one line."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from launch.core.plan import as_text
from launch.slurm.container import edf
from launch.slurm.folder import JobFolder
from launch.slurm.listing import Partition
from launch.slurm.lookup import environment
from launch.slurm.options import SlurmOptions
from launch.slurm.planner import Facts
from launch.slurm.script import PER_NODE, _quoted, directives, render, step
from tests.launch.slurm.jobs import EVERY_KIND, GPUS, planned, resolved
from trainer.errors import SettingsError

# ---- script


TORCHRUN = ["bash", "-c", PER_NODE, "torchrun"]
# How the other kinds differ from the first, whose golden file is the whole script.
RUN = {
    "torchrun": ["--cpus-per-task=4", *TORCHRUN, "/venv/bin/python"],
    "pyxis": ["--cpus-per-task=2", "--container-image=ghcr.io#me/toolkit:1",
              "--container-mounts=/data/imagenet:/data:ro,/home/me:/home/me", "--container-workdir=/home/me", "python"],
    "edf": ["--cpus-per-task=4", "--environment=/home/me/runs/digits/edf.toml", *TORCHRUN, "python"],
    "own-edf": ["--cpus-per-task=2", "--environment=toolkit", "python"],
}  # fmt: skip


def test_the_whole_script(golden: Callable[[str, str], None]) -> None:
    golden("job.sbatch", render(resolved("srun")))


@pytest.mark.parametrize("kind", RUN)
def test_the_steps_of_other_kinds_differ_by_what_srun_runs(kind: str) -> None:
    words = step(resolved(kind))

    begin = ["srun", "--kill-on-bad-exit=0", "--wait=180", "--export=ALL"]
    assert words[: 4 + len(RUN[kind])] == [*begin, *RUN[kind]]
    assert words[-2:] == ["--run-dir", "/home/me/runs/digits"]


def test_a_health_check_gets_the_number_of_gpus_per_node() -> None:
    """Without it a node whose driver has lost a GPU passes."""
    words = {health: step(planned(GPUS, health_check=health).payload.job) for health in (True, False)}

    assert set(words[True]) - set(words[False]) >= {"--export=ALL,DDP_NODE_GPUS=2"}
    assert not [word for word in words[False] if "DDP_NODE" in word]
    without = planned({**GPUS, "gpus_per_node": 0}, health_check=True).payload.job
    assert not [word for word in step(without) if "DDP_NODE" in word]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_shellcheck_finds_nothing(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "job.sh"
    file.write_text(render(resolved(kind)))

    # trap calls a function by name; and values are quoted already, with their commas and for torchrun's shell.
    command = [Path(sys.executable).parent / "shellcheck", "--exclude", "SC2329,SC2054,SC2016", file]
    ended = subprocess.run(command, capture_output=True, text=True)

    assert ended.returncode == 0, ended.stdout


def test_the_plan_for_a_reader(golden: Callable[[str, str], None]) -> None:
    kind = EVERY_KIND["edf"] | {"gpu_type": "a100", "cpus_per_task": None}
    plan = planned(kind, model="resnet18", dataset="imagenet", epochs=16, data_dir=Path("/scratch/in"))

    without_script = replace(plan, files=(("job.sbatch", "(the script)"), *plan.files[1:]))

    golden("dry-run.txt", as_text(without_script) + "\n")


def test_a_gpu_that_is_not_known_is_not_forecast() -> None:
    assert planned(EVERY_KIND["torchrun"]).quotes == ()
    assert planned({"job_name": "x"}, device="cpu").quotes == ()


@pytest.mark.parametrize(
    ("options", "variant"),
    [
        ({}, "cuda12"),
        ({"container_nccl_hook": "cuda13"}, "cuda13"),
        ({"container_nccl_hook": "none"}, None),
        ({"gpus_per_node": 0}, None),
    ],
)
def test_the_edf_mounts_what_the_ranks_need_and_asks_for_cscss_network_hook(
    options: dict[str, object], variant: str | None
) -> None:
    """https://docs.cscs.ch/software/container-engine/resource-hook: without it NCCL falls back to TCP."""
    kind = {**EVERY_KIND["edf"], "container_mounts": ("/scratch:/scratch",), **options}

    edf = tomllib.loads(dict(planned(kind, dataset="imagenet", data_dir=Path("/scratch/imagenet")).files)["edf.toml"])

    hook = edf.pop("annotations", {}).get("com", {}).get("hooks", {}).get("aws_ofi_nccl", {})
    assert hook == ({"enabled": "true", "variant": variant} if variant else {})
    assert edf == {
        "image": "/images/toolkit.sqsh",
        "mounts": ["/scratch:/scratch", "/home/me:/home/me"],
        "workdir": "/home/me",
    }


@pytest.mark.parametrize(
    ("options", "cwd", "words"),
    [
        ({"container_nccl_hook": "cuda12"}, "/home/me", "goes into the EDF"),
        ({}, "/home/a,b", "cannot mount a path with a comma or colon"),
    ],
)
def test_what_a_container_cannot_have_is_refused(options: dict[str, object], cwd: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        planned({**EVERY_KIND["pyxis"], **options}, Path(cwd))


@pytest.mark.parametrize("kind", ["pyxis", "edf"])
def test_containers_mount_the_weights_to_begin_with_and_the_checkpoints(kind: str) -> None:
    plan = planned(EVERY_KIND[kind], init_from=Path("/archive/run7/best.pt"), checkpoint_dir=Path("/fast/saved"))

    shown = dict(plan.files).get("edf.toml", "") + " ".join(step(plan.payload.job))
    assert "/archive/run7:/archive/run7" in shown
    assert "/fast/saved:/fast/saved" in shown
    relative = planned(EVERY_KIND[kind], init_from=Path("runs/a/best.pt")).payload.job
    assert relative.train.init_from == Path("/home/me/runs/a/best.pt")


@pytest.mark.parametrize(("gpu_type", "flag"), [("a100", "--gres=gpu:a100:2"), (None, "--gres=gpu:2")])
def test_gpus_are_requested_with_gres_as_an_option(gpu_type: str | None, flag: str) -> None:
    flags = directives(planned({**GPUS, "gres": True, "gpu_type": gpu_type}).payload.job)

    assert [one for one in flags if one.startswith(("--gres", "--gpus-per-node"))] == [flag]


def test_one_gpu_by_default_gives_a_warning_where_nodes_have_more() -> None:
    four = Partition("main", True, True, None, 2, 32, 1000, (("a100", 2), ("v100", 2)))
    facts = Facts(
        JobFolder(Path("/home/me/runs/x"), exists=False, script=None, ids=(), starts=()), Path("/home/me"), "python",
        (four,),
    )  # fmt: skip
    one = {"job_name": "x", "cpus_per_task": 1}

    warned = planned(one, facts=facts).warnings

    (warning,) = warned
    assert "--gpus-per-node" in warning
    assert planned({**one, "gpus_per_node": 1}, facts=facts).warnings == ()
    assert planned({**one, "gpus_per_node": 4}, facts=facts).problems == ()  # 2 of each type are 4


def test_a_job_around_us_and_the_users_defaults_do_not_change_the_new_job() -> None:
    env = {"PATH": "/bin", "SLURM_CONF": "c", "SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "1",
           "SRUN_CPUS_PER_TASK": "1", "SBATCH_PARTITION": "p", "SBATCH_ACCOUNT": "a",
           "SBATCH_TIMELIMIT": "5", "SBATCH_ARRAY_INX": "0-3"}  # fmt: skip

    assert environment(env, ["--partition=main", "--time=20"]) == {
        "PATH": "/bin",
        "SLURM_CONF": "c",
        "SBATCH_ACCOUNT": "a",
    }


# ---- hostile paths


@pytest.mark.parametrize("end", ["\n", "\x1b[2K"])
def test_a_path_that_would_end_its_line_is_refused(end: str) -> None:
    with pytest.raises(SettingsError, match="has characters that do not print") as caught:
        _quoted(f"--chdir={Path('/home/me') / f'a{end}touch ran'}")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("end", ["\n", '"\\'])
def test_a_container_mounts_the_folder_that_was_named_and_no_other(end: str) -> None:
    folder = Path(f"/data/a{end}b")
    options = SlurmOptions.model_validate({**EVERY_KIND["edf"], "time": "1:00:00"})

    written = edf(options, Path("/home/me"), [folder])

    assert written is not None
    assert tomllib.loads(written)["mounts"] == [f"{folder}:{folder}"]
