"""Slurm for the tests that need one: a cluster per worker, empty for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import trainer_env
from tests.launch.slurm.cluster import Cluster, started, why_not


@pytest.fixture(scope="session")
def one_cluster() -> Iterator[Cluster]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with started() as cluster:
        yield cluster


@pytest.fixture
def cluster(one_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Slurm, in the environment of a user who stands in tmp_path."""
    for name, value in trainer_env({"SLURM_CONF": one_cluster.env["SLURM_CONF"]}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    one_cluster.empty()
    yield one_cluster
    one_cluster.empty()
