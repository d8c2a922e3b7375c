"""The engine that builds and runs the images of all tests here."""

from collections.abc import Iterator

import pytest

from tests.container.engine import Engine, engine_in


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Engine]:
    """One for all workers: the image is built once."""
    mine = tmp_path_factory.getbasetemp()
    with engine_in((mine if worker_id == "master" else mine.parent) / "engine") as made:
        yield made
