"""Image sizes that grow over the epochs, as in FFCV's recipes for ImageNet: the size of a crop decides what it costs.

Pure and torch-free.
"""

import math

GROWING = 0.8  # of the epochs; the last ones see images as evaluation does
STEPS = 4  # few, since every new size is compiled, and benchmarked by cuDNN, once more
MULTIPLE = 8  # of pixels, which tensor cores want


def side_at(epoch: int, epochs: int, first: int | None, full: int) -> int:
    """Pixels a side in `epoch`, counted from 0: `first` in the first one, then more in STEPS, up to `full`."""
    if first is None:
        return full
    last_of_growth = max(1, math.ceil(GROWING * (epochs - 1)))
    step = STEPS * min(epoch, last_of_growth) // last_of_growth
    if step == STEPS:
        return full
    grown = first + (full - first) * step / STEPS
    return max(first, int(grown) // MULTIPLE * MULTIPLE)


def sides(epochs: int, first: int | None, full: int) -> list[int]:
    """The different sizes of a training, smallest first."""
    return sorted({side_at(epoch, epochs, first, full) for epoch in range(epochs)})
