"""Buffers for a batch that threads fill row by row, and their conversion to the model's input.

For a CPU the threads also normalise, while the image is in the CPU cache.  For a GPU they write bytes, a quarter of the
data to copy, and the GPU mirrors and normalises.  With `--decode gpu` nvJPEG decodes JPEGs on the GPU through
torchvision: the threads only read files, and choose the crop from the header.
"""

import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from trainer.datasets.decode import Normaliser, Scratch, crop, put_crop
from trainer.datasets.encoded import Pixels, UnreadableError, colour_jpeg_shape
from trainer.datasets.order import Crop, View
from trainer.errors import SettingsError, one_line

Decode = Callable[[list[Tensor]], list[Tensor]]
_small = Scratch()


class Rows(Protocol):
    """Buffer for the images of one batch.  No two threads write to the same row, so no lock is needed."""

    def put(self, row: int, data: bytes, view: View) -> None:
        """Decode a file's content into a row, cropped and mirrored by `view`.  Raises UnreadableError."""
        ...

    def settle(self) -> dict[int, str]:
        """Finish decoding after all rows were put.  Return the rows that turned out unreadable, and why."""
        ...

    def copy(self, row: int, source: int | None) -> None:
        """Fill a row with a copy of row `source`, or with black."""
        ...

    def images(self) -> Tensor:
        """(B, 3, S, S) float32, normalised, on the device.  All rows must have been filled."""
        ...


class Memory:
    """A pool of batch buffers, each reused once no tensor refers to it.

    Page faults of new memory take longer than normalising the images: tests/bench/RESULTS.md.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[int, ...], list[NDArray[np.float32]]] = {}

    def lend(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """An uninitialised array, returned to the pool once it and all tensors made from it are gone."""
        if shape not in self._free:  # buffers of other shapes are no longer needed
            self._free = {shape: []}
        free = self._free[shape]
        whole = free.pop() if free else np.empty(shape, np.float32)
        lent = whole[:]
        weakref.finalize(lent, free.append, whole).atexit = False
        return lent


class FloatRows:
    """Rows of normalised floats, for training on a CPU."""

    def __init__(self, count: int, size: int, normalise: Normaliser, memory: Memory, channels_last: bool) -> None:
        self._size, self._normalise = size, normalise
        floats = memory.lend((count, size, size, 3) if channels_last else (count, 3, size, size))
        self._images = torch.from_numpy(floats)
        if channels_last:
            self._images, self._rows = self._images.permute(0, 3, 1, 2), floats
        else:
            self._rows = floats.transpose(0, 2, 3, 1)

    def put(self, row: int, data: bytes, view: View) -> None:
        pixels = _small.lend(self._size**2 * 3).reshape(self._size, self._size, 3)
        put_crop(data, view.choose, pixels, view.mirrored)
        self._normalise.write(pixels, self._rows[row])

    def settle(self) -> dict[int, str]:
        return {}

    def copy(self, row: int, source: int | None) -> None:
        if source is None:
            self._normalise.write(np.zeros(self._rows.shape[1:], np.uint8), self._rows[row])
        else:
            self._rows[row] = self._rows[source]

    def images(self) -> Tensor:
        return self._images


class PixelRows:
    """Rows of bytes.  pixels: (B, S, S, 3) uint8; flips: (B,) bool, true for images still to be mirrored."""

    def __init__(self, pixels: Tensor, flips: Tensor) -> None:
        self.pixels, self.flips = pixels, flips
        # NumPy views, because indexing a row is faster than with tensors.
        self._rows: Pixels = pixels.numpy()
        self._flips = flips.numpy()

    def put(self, row: int, data: bytes, view: View) -> None:
        put_crop(data, view.choose, self._rows[row])
        self._flips[row] = view.mirrored


class ByteRows(PixelRows):
    """Rows for a GPU, in pinned memory that it copies from asynchronously."""

    def __init__(self, count: int, size: int, normalise: Normaliser, device: torch.device) -> None:
        pinned = device.type == "cuda"
        pixels = torch.empty((count, size, size, 3), dtype=torch.uint8, pin_memory=pinned)
        super().__init__(pixels, torch.zeros(count, dtype=torch.bool, pin_memory=pinned))
        self._device, self._normalise = device, normalise

    def settle(self) -> dict[int, str]:
        return {}

    def copy(self, row: int, source: int | None) -> None:
        self._rows[row] = 0 if source is None else self._rows[source]
        self._flips[row] = False if source is None else self._flips[source]

    def images(self) -> Tensor:
        return unpacked(self.pixels, self.flips, self._normalise, self._device)


def unpacked(pixels: Tensor, flips: Tensor, normalise: Normaliser, device: torch.device) -> Tensor:
    """(B, 3, S, S) float32, mirrored and normalised, on the device.  pixels, flips: as in PixelRows."""
    on_device = [part.to(device, non_blocking=True) for part in (pixels, flips)]
    return normalise(mirror(*on_device))


def mirror(pixels: Tensor, flips: Tensor) -> Tensor:
    """(B, S, S, 3), with the images where `flips` (B,) is true flipped left to right."""
    # Indexing with [mask] would wait for the GPU to count its elements; selecting whole images does not.
    both = torch.cat([pixels, pixels.flip(2)])
    return both.index_select(0, torch.arange(len(pixels), device=pixels.device) + flips * len(pixels))


class Encoded(NamedTuple):
    """An image for the GPU to decode and crop."""

    data: bytes
    part: Crop


class GpuRows:
    """Rows whose colour JPEGs are decoded by the GPU; greyscale JPEGs and other formats are decoded by the CPU.

    This helps if there are few CPU cores, at the cost of GPU time and memory.  nvJPEG does not report all damage that
    the CPU's decoder detects.

    decode: list of (n,) uint8 JPEG files -> list of (3, H, W) uint8 images on the device.
    """

    def __init__(
        self, count: int, size: int, normalise: Normaliser, device: torch.device, decode: Decode | None = None
    ) -> None:
        self._size, self._device, self._normalise = size, device, normalise
        self._decode = decode or (lambda files: decode_on(device, files))
        self._encoded: dict[int, Encoded] = {}
        self._views: dict[int, View] = {}
        self._rows: list[Tensor | None] = [None] * count  # (3, S, S) float32, 0 to 255, on the device
        self._mirrored = [False] * count

    def put(self, row: int, data: bytes, view: View) -> None:
        self._mirrored[row], self._views[row] = view.mirrored, view
        shape = colour_jpeg_shape(data)
        if shape is None:
            self._rows[row] = self._by_cpu(data, view)
        else:
            self._encoded[row] = Encoded(data, view.choose(*shape))

    def settle(self) -> dict[int, str]:
        if not self._encoded:
            return {}
        try:
            files = [torch.from_numpy(np.frombuffer(image.data, np.uint8).copy()) for image in self._encoded.values()]
            images = self._decode(files)
        except RuntimeError:  # raised for the whole list if nvJPEG cannot decode one file
            return self._one_by_one()
        for (row, image), pixels in zip(self._encoded.items(), images, strict=True):
            top, left, height, width = image.part
            region = pixels[None, :, top : top + height, left : left + width].float()
            self._rows[row] = interpolate(region, (self._size, self._size), mode="bilinear", antialias=True)[0]
        return {}

    def copy(self, row: int, source: int | None) -> None:
        black = torch.zeros(3, self._size, self._size, device=self._device)
        self._rows[row] = black if source is None else self._rows[source]
        self._mirrored[row] = False if source is None else self._mirrored[source]

    def images(self) -> Tensor:
        pixels = torch.stack([row for row in self._rows if row is not None]).permute(0, 2, 3, 1).contiguous()
        flips = torch.tensor(self._mirrored).to(self._device, non_blocking=True)
        return self._normalise(mirror(pixels, flips))

    def _one_by_one(self) -> dict[int, str]:
        """Decode on the CPU, to find out which images are unreadable."""
        bad = {}
        for row, image in self._encoded.items():
            try:
                self._rows[row] = self._by_cpu(image.data, View(partial(_chosen, image.part), False))
            except UnreadableError as error:
                bad[row] = str(error)
        return bad

    def _by_cpu(self, data: bytes, view: View) -> Tensor:
        pixels = crop(data, view.choose, self._size)
        return torch.from_numpy(np.require(pixels, requirements=["W"])).to(self._device).permute(2, 0, 1).float()


def _chosen(part: Crop, height: int, width: int) -> Crop:
    return part


def decode_on(device: torch.device, files: list[Tensor]) -> list[Tensor]:
    """Decode JPEGs to (3, H, W) uint8 on the device.  Raises RuntimeError, or ImportError without nvJPEG support."""
    from torchvision.io import ImageReadMode, decode_jpeg

    with warnings.catch_warnings():
        # Deprecated since 0.29 in favour of TorchCodec, another package, which needs a newer torch.
        warnings.simplefilter("ignore", DeprecationWarning)
        images: list[Tensor] = decode_jpeg(files, mode=ImageReadMode.RGB, device=device)
    return images


def check_gpu_decodes(device: torch.device, decode: Callable[..., list[Tensor]] = decode_on) -> None:
    """Raise SettingsError if the device is not a GPU, or torchvision is built without nvJPEG."""
    if device.type != "cuda":
        raise SettingsError("--decode gpu needs a GPU, and the training runs on the CPU; drop it.")
    from simplejpeg import encode_jpeg

    tiny = torch.from_numpy(np.frombuffer(encode_jpeg(np.zeros((16, 16, 3), np.uint8)), np.uint8).copy())
    try:
        decode(device, [tiny])
    except (ImportError, RuntimeError) as error:
        raise SettingsError(
            f"--decode gpu needs a torchvision built for CUDA with nvJPEG ({one_line(error, 120)}); "
            "install one, or drop it."
        ) from error
