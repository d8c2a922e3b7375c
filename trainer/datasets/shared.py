"""Memory in which a process hands images over to the training, and into which it decodes again once they are read.

Fresh pages of shared memory for each lot of images took a fifth of all processor time: tests/bench/RESULTS.md.
"""

import torch
from torch import Tensor

HEAD = 64  # bytes before the content; the first says whether somebody still reads it
FREE, LENT = 0, 1


class SharedMemory:
    """The pieces that one process has, each lent again once whoever was given it has let go of it."""

    def __init__(self) -> None:
        self._pieces: list[Tensor] = []

    def lend(self, count: int) -> Tensor:
        """(HEAD + at least `count`,) uint8 of any content behind its head, until let_go() is called in any process."""
        piece = next((piece for piece in self._pieces if _is_free(piece) and len(piece) >= HEAD + count), None)
        if piece is None:
            # What is free and too small has had its time: images have grown.
            self._pieces = [piece for piece in self._pieces if not _is_free(piece)]
            piece = _shared_bytes(HEAD + count)
            self._pieces.append(piece)
        piece[0] = LENT
        return piece


def let_go(piece: Tensor) -> None:
    """Says to the process that lent it that it may be written to again."""
    piece[0] = FREE


def _is_free(piece: Tensor) -> bool:
    return int(piece[0]) == FREE


def _shared_bytes(count: int) -> Tensor:
    """(count,) uint8 of any content, in memory that is handed over as it is: any other would be copied into such."""
    storage = torch.UntypedStorage._new_shared(count)  # as torch's own collate function has it
    return torch.empty(0, dtype=torch.uint8).set_(storage)
