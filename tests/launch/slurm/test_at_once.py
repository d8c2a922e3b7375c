"""Two submissions of one name at the same moment."""

import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from launch.core.clock import Clock
from launch.slurm.planner import SlurmPlan
from launch.slurm.runtime import Runtime
from launch.slurm.submit import launch
from tests.launch.slurm.jobs import planned
from trainer.errors import SettingsError

SBATCH = """#!/bin/bash
sleep 0.3
echo x >> {submitted}
wc -l < {submitted}
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    sbatch = tmp_path / "bin/sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(SBATCH.format(submitted=tmp_path / "submitted"))
    sbatch.chmod(0o755)
    env: Mapping[str, str] = {"PATH": f"{sbatch.parent}:{os.environ['PATH']}"}
    return Runtime(env, tmp_path, sys.executable, Clock(), lambda line: None)


def test_one_is_submitted_and_the_other_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    plans = [planned({"job_name": "job", "nodes": 1, "detach": True}, tmp_path, device="cpu") for _ in range(2)]

    def submit(plan: SlurmPlan) -> str:
        try:
            launch(plan, runtime)
        except SettingsError as error:
            return str(error)
        return "submitted"

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(submit, plans))

    assert said == [
        "job job has just been submitted by another command, as 1; see python -m launch.slurm status job, or choose "
        "another --job-name.",
        "submitted",
    ]
    assert (tmp_path / "submitted").read_text() == "x\n"
