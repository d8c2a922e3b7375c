"""The table of ILSVRC's devkit: its classes by their number."""

import io
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from trainer.prepare.tars import _synsets

COLUMNS = ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children", "wordnet_height", "num_train_images")


def devkit(number: type = np.uint8, shape: tuple[int, ...] = (-1,), **options: Any) -> bytes:
    rows = [
        (number(n), f"n{n:08d}", "tench, Tinca tinca — fish", "gloss" * n, number(n % 3), np.arange(n % 4), 3, 1300)
        for n in range(1, 60)
    ]
    table = np.array(rows, dtype=[(name, object) for name in COLUMNS]).reshape(shape)
    savemat(file := io.BytesIO(), {"others": np.eye(3), "synsets": table}, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("number", "shape", "is_packed"), [(np.uint8, (-1,), True), (np.int16, (-1, 1), False), (np.float64, (1, -1), True)]
)
def test_synsets_without_children_are_read(number: type, shape: tuple[int, ...], is_packed: bool) -> None:
    found = _synsets(devkit(number, shape, do_compression=is_packed))

    assert found == {n: f"n{n:08d}" for n in range(3, 60, 3)}


@pytest.mark.parametrize("data", [b"", b"no table", devkit()[:1000], devkit().replace(b"synsets", b"symbols")])
def test_a_damaged_table_is_an_error_that_names_the_file(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^data/meta\.mat: "):
        _synsets(data)
