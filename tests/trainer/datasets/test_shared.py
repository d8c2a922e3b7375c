"""The memory in which processes hand over images: when it is written to again, and when not."""

import gc
import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
import torch

from trainer.datasets.looks import Looks
from trainer.datasets.processes import Decoded, Task, _Decoder
from trainer.datasets.shared import HEAD, SharedMemory, let_go
from trainer.datasets.source import Piece

SIDE = 8


@pytest.fixture
def tasks(tmp_path: Path) -> list[Task]:
    """Of one image each, of different greys."""
    for grey in (0, 100, 200):
        (tmp_path / f"{grey}.jpg").write_bytes(simplejpeg.encode_jpeg(np.full((SIDE, SIDE, 3), grey, np.uint8)))
    return [Task((Piece(str(path)),), Looks(None, range(1)), SIDE) for path in sorted(tmp_path.glob("*.jpg"))]


def handed_over(decoded: Decoded) -> Decoded:
    """As the training gets it."""
    arrived: Decoded = pickle.loads(ForkingPickler.dumps(decoded))
    return arrived


def test_a_piece_is_lent_again_only_once_it_is_let_go() -> None:
    memory = SharedMemory()
    first, second = memory.lend(100), memory.lend(100)
    assert first.is_shared()
    assert first.data_ptr() != second.data_ptr()

    let_go(second)

    assert memory.lend(90).data_ptr() == second.data_ptr()
    assert memory.lend(100).data_ptr() not in (first.data_ptr(), second.data_ptr())


def test_pieces_that_images_have_outgrown_are_kept_only_while_they_are_read() -> None:
    memory = SharedMemory()
    small, read = memory.lend(10), memory.lend(10)
    let_go(small)

    large = memory.lend(1000)

    assert len(large) == HEAD + 1000
    assert {piece.data_ptr() for piece in memory._pieces} == {read.data_ptr(), large.data_ptr()}


def test_a_process_decodes_into_its_memory_again_once_the_training_has_read_it(tasks: list[Task]) -> None:
    decoder = _Decoder()
    place = (decoded := decoder[tasks[0]]).pixels.data_ptr()
    arrived = handed_over(decoded)
    black = arrived.pixels.clone()

    others = [handed_over(decoder[task]) for task in tasks[1:]]
    assert torch.equal(arrived.pixels, black), "it is read, and was written to"
    assert [int(other.pixels.float().mean()) for other in others] == [100, 200]

    del arrived, decoded
    gc.collect()
    assert decoder[tasks[1]].pixels.data_ptr() == place


def test_what_was_copied_for_a_gpu_is_read(tasks: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)  # which needs a GPU
    decoder = _Decoder()
    place = (decoded := decoder[tasks[2]]).pixels.data_ptr()

    pinned = handed_over(decoded).pin_memory()
    gc.collect()

    assert decoder[tasks[0]].pixels.data_ptr() == place
    assert int(pinned.pixels.float().mean()) == 200
