"""The table of data sets, from which the launchers learn what each needs."""

import pytest

from trainer import datasets
from trainer.errors import import_function


def test_launchers_learn_what_each_data_set_needs() -> None:
    assert [name for name in datasets.NAMES if datasets.needs_data(name)] == ["imagefolder", "imagenet"]
    assert [name for name in datasets.NAMES if datasets.is_folder(name)] == ["imagefolder", "imagenet"]
    assert [name for name in datasets.NAMES if not datasets.reads_data_dir(name)] == ["digits", "synthetic"]


@pytest.mark.parametrize("name", datasets.NAMES)
def test_every_data_set_can_be_loaded(name: str) -> None:
    assert callable(import_function(datasets.find(name).load))
