"""index.npy of a prepared split: where each image lies, in the order of the source's own listing.  Torch-free."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

# offset: of the image's first byte in its shard; a tar's header of HEADER bytes lies before it.
ENTRY = np.dtype([("shard", "<u4"), ("offset", "<u8"), ("length", "<u4"), ("label", "<u4")])
HEADER = 512

Entries = NDArray[Any]  # (N,) of ENTRY


def index_bytes(entries: Entries) -> bytes:
    """The content of index.npy."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(entries), version=(1, 0), allow_pickle=False)
    return file.getvalue()
