"""The requests of version 3 of SageMaker's SDK, by a process of the Python that has it: the import takes seconds."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests import needs
from tests.conftest import ROOT
from tests.once import once


def requests_of_sdk_3(
    name: str, jobs: Sequence[Mapping[str, Any]], folders: pytest.TempPathFactory
) -> list[list[dict[str, Any]]]:
    """Of each of `jobs`, given by their settings, in order.  name: of these jobs, for other test processes."""

    def ask() -> str:
        done = subprocess.run(
            [needs.SDK_3, "-m", "tests.launch.sagemaker.sdk_3"],
            input=json.dumps(list(jobs)), cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    made: list[list[dict[str, Any]]] = json.loads(once(name, ask, folders))
    return made
