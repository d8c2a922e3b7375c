"""A script's arguments reach it as they were typed, on every backend."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from launch.core.backend import BACKENDS
from launch.core.job import Job
from launch.core.training.script import Script
from launch.ec2 import checks, planner, requests
from launch.local.options import LocalOptions
from launch.local.planner import plan as local_plan
from launch.sagemaker.request import request_of
from launch.slurm.script import render
from tests.conftest import ROOT
from tests.launch.ec2 import known as ec2
from tests.launch.sagemaker import known as sagemaker
from tests.launch.slurm.jobs import resolved
from trainer import sagemaker as container
from trainer.script.config import parse

ARGUMENTS = (
    "", " ", "a b", "it's", '"quoted"', "line\nbreak", "tab\t", "\u00e9\u2603\U0001f600", "$HOME", "${HOME}", "$(id)",
    "`id`", "back\\slash", "\\n", "%2C", "100%", "a,b", "[1, 2]", "--", "-x", "--run-dir", "*", "!!", "#", ";", "&&",
    "{a,b}", "@NAME@", "~", "",
)  # fmt: skip
VARIABLES = ("CUDA_VISIBLE_DEVICES=0,1", "EMPTY=", 'TEXT=%2C "$HOME" it\'s')
PRINTS = "import json, os, sys; print(json.dumps([sys.argv[1:], [f'{n}={os.environ[n]}' for n in %s]]))"
Carry = Callable[[Script, Path], Sequence[str]]


def local(script: Script, folder: Path) -> Sequence[str]:
    planned = local_plan(Job(script, LocalOptions()), python=("python",), now=datetime(2026, 3, 1), letters="k3v7q")
    return after_module(planned.command)


def ec2_node(script: Script, folder: Path) -> Sequence[str]:
    """What the node's bash reads in its user data."""
    asked = Job(replace(script, digest="0" * 64), ec2.job().where)
    cluster = planner.plan(asked, checks.resolve(asked), ec2.NAME, ec2.FACTS).payload.cluster
    settings, _, _ = requests.user_data(cluster, cluster.resolved.instances[0]).partition("\nshutdown ")
    ended = subprocess.run(
        ["bash", "-c", f"{settings}\n" + r'''printf '%s\0' "${TRAIN[@]}"'''], capture_output=True, text=True, check=True
    )
    return after_module(ended.stdout.split("\0")[:-1])


def slurm_node(script: Script, folder: Path) -> Sequence[str]:
    """What srun is given by the job's script, which runs here."""
    srun = folder / "bin/srun"
    srun.parent.mkdir()
    srun.write_text(f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], open('{folder}/words', 'w'))\n")
    srun.chmod(0o755)
    text = render(replace(resolved("torchrun"), train=script.at(run_dir=folder), folder=folder))
    env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1",
           "SLURM_JOB_NODELIST": "n0"}  # fmt: skip
    subprocess.run(["bash", "-c", text], env=env, check=True, capture_output=True)
    return after_module(json.loads((folder / "words").read_text()))


def sagemaker_container(script: Script, folder: Path) -> Sequence[str]:
    """What a rank reads in the file into which SageMaker puts the request's hyperparameters."""
    described = sagemaker.plan().payload.description
    request = request_of(replace(described, hyperparameters=script.hyperparameters))
    assert all(value.isascii() and "\n" not in value for value in request["HyperParameters"].values())
    file = folder / "input/config/hyperparameters.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(request["HyperParameters"]))
    words = container.script_command({"SM_MODEL_DIR": str(folder / "model")})
    assert words is not None
    return ["--run-dir", "x", *words]


CARRIERS: dict[str, Carry] = {
    "local": local, "ec2": ec2_node, "sagemaker": sagemaker_container, "slurm": slurm_node
}  # fmt: skip


def after_module(words: Sequence[str]) -> Sequence[str]:
    place = list(words).index("trainer.script")
    return words[place + 1 :]


@pytest.mark.parametrize("backend", BACKENDS)
def test_arguments_and_variables_reach_the_script_unchanged(backend: str, tmp_path: Path) -> None:
    sent = Script(("train.py", *ARGUMENTS), variables=VARIABLES)

    config = parse(CARRIERS[backend](sent, tmp_path))

    assert config.words == ("train.py", *ARGUMENTS)
    assert config.variables == VARIABLES


def test_the_script_finds_them_in_its_argv_and_its_environment(tmp_path: Path) -> None:
    names = [variable.partition("=")[0] for variable in VARIABLES]
    (tmp_path / "train.py").write_text(PRINTS % names)
    sent = Script(("train.py", *ARGUMENTS), variables=VARIABLES, run_dir=tmp_path / "run")

    ended = subprocess.run(
        [sys.executable, *sent.words], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert json.loads(ended.stdout) == [list(ARGUMENTS), list(VARIABLES)]
