"""Slurm for the tests that need one: a cluster per worker, empty for each test, and a user of it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.core.clock import Clock
from launch.core.terminal import say
from launch.slurm.runtime import Runtime
from tests.conftest import trainer_env
from tests.launch.slurm.cluster import Cluster, started
from tests.launch.slurm.user import User


@pytest.fixture(scope="session")
def one_cluster() -> Iterator[Cluster]:
    with started() as cluster:
        yield cluster


@pytest.fixture
def cluster(one_cluster: Cluster) -> Iterator[Cluster]:
    """Slurm without jobs."""
    one_cluster.empty()
    yield one_cluster
    one_cluster.empty()


@pytest.fixture
def user(cluster: Cluster, tmp_path: Path) -> User:
    """Somebody who works in tmp_path, with this Python."""
    env = trainer_env({name: cluster.env[name] for name in ("SLURM_CONF", "PATH")})
    return User(Runtime(env, tmp_path, sys.executable, Clock(), say))
