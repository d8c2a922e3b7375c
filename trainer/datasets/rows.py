"""The images of a batch in the making: what threads write, row by row, and how it becomes the model's input.

For a CPU the threads normalise as well, while an image is in the cache; for a GPU they write bytes, a quarter of
what must be copied there, and the GPU mirrors and normalises.  With `--decode gpu` nvJPEG decodes JPEGs there, too,
through torchvision: threads only read, and find the crop from the header.
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
    """Places for the images of one batch.  Threads fill rows of their own, so nothing needs a lock."""

    def put(self, row: int, data: bytes, view: View) -> None:
        """Fills a row with what a file holds, seen as `view` says.  Raises UnreadableError."""
        ...

    def settle(self) -> dict[int, str]:
        """Ends what threads have begun, once all rows were put; returns the rows that turn out unreadable, and why."""
        ...

    def copy(self, row: int, source: int | None) -> None:
        """Fills a row with another one, or with black."""
        ...

    def images(self) -> Tensor:
        """(B, 3, S, S) float32, normalised, on the device.  All rows must have been filled."""
        ...


class Memory:
    """Memory of batches, lent again once no tensor in it is held.

    Fresh pages cost the system more time than an image takes to be normalised: tests/bench/RESULTS.md.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[int, ...], list[NDArray[np.float32]]] = {}

    def lend(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """An array of any content, taken back when it, and every tensor made of it, has gone."""
        if shape not in self._free:  # what had another shape has had its time
            self._free = {shape: []}
        free = self._free[shape]
        whole = free.pop() if free else np.empty(shape, np.float32)
        lent = whole[:]
        weakref.finalize(lent, free.append, whole).atexit = False
        return lent


class FloatRows:
    """Rows of a batch for the CPU."""

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
    """Rows of bytes.  pixels: (B, S, S, 3) uint8; flips: (B,) bool, true for what is still to be mirrored."""

    def __init__(self, pixels: Tensor, flips: Tensor) -> None:
        self.pixels, self.flips = pixels, flips
        # Their memory as NumPy's arrays, of which a row is sooner found.
        self._rows: Pixels = pixels.numpy()
        self._flips = flips.numpy()

    def put(self, row: int, data: bytes, view: View) -> None:
        put_crop(data, view.choose, self._rows[row])
        self._flips[row] = view.mirrored


class ByteRows(PixelRows):
    """Rows of a batch for a GPU, in memory from which it copies while the CPU goes on."""

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
    """(B, 3, S, S) float32 on the device.  pixels, flips: as PixelRows has them."""
    there = [part.to(device, non_blocking=True) for part in (pixels, flips)]
    return normalise(mirror(*there))


def mirror(pixels: Tensor, flips: Tensor) -> Tensor:
    """(B, S, S, 3), with the images where `flips` (B,) is true flipped left to right."""
    # Picking whole images needs no look at the mask, for which the GPU would have to be waited for, as [mask] does.
    both = torch.cat([pixels, pixels.flip(2)])
    return both.index_select(0, torch.arange(len(pixels), device=pixels.device) + flips * len(pixels))


class Encoded(NamedTuple):
    """An image that the GPU will decode."""

    data: bytes
    part: Crop


class GpuRows:
    """Rows of a batch whose JPEGs the GPU decodes; other formats, and JPEGs without colour, the CPU.

    It frees processors where they are few, and takes GPU time and memory from the training.  nvJPEG does not report
    every damage within an image's data that the decoder on the CPU notices.

    decode: JPEGs as (n,) uint8 -> (3, H, W) uint8 of each, on the device.
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
        except RuntimeError:  # one that nvJPEG cannot decode ends them all
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
        """Decode on the CPU, which finds the unreadable ones."""
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
    """(3, H, W) uint8 of each JPEG, on the device.  Raises RuntimeError, and ImportError where torchvision has none."""
    from torchvision.io import ImageReadMode, decode_jpeg

    with warnings.catch_warnings():
        # Since 0.29 in favour of TorchCodec, which is one more package, and for newer torch only.
        warnings.simplefilter("ignore", DeprecationWarning)
        images: list[Tensor] = decode_jpeg(files, mode=ImageReadMode.RGB, device=device)
    return images


def check_gpu_decodes(device: torch.device, decode: Callable[..., list[Tensor]] = decode_on) -> None:
    """Raises SettingsError where the device is no GPU, or torchvision has no nvJPEG."""
    if device.type != "cuda":
        raise SettingsError("--decode gpu needs a GPU, and the training runs on the CPU; drop it.")
    from simplejpeg import encode_jpeg

    tiny = torch.from_numpy(np.frombuffer(encode_jpeg(np.zeros((16, 16, 3), np.uint8)), np.uint8).copy())
    try:
        decode(device, [tiny])
    except (ImportError, RuntimeError) as error:
        raise SettingsError(
            f"--decode gpu needs a torchvision that is built for CUDA with nvJPEG ({one_line(error, 120)}); "
            "install one, or drop it."
        ) from error
