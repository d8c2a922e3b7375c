"""JPEGs decoded on the GPU by nvJPEG, through torchvision: threads only read, and find the crop from the header.

It frees processors where they are few, and takes GPU time and memory from the training.  nvJPEG does not tell of every
damage within an image's data that the decoder on the CPU notices.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from trainer.datasets.crops import Crop
from trainer.datasets.decode import crop
from trainer.datasets.encoded import colour_jpeg_shape
from trainer.datasets.looks import View
from trainer.datasets.normalisation import Normaliser
from trainer.datasets.rows import mirror
from trainer.datasets.unreadable import UnreadableError
from trainer.errors import SettingsError, one_line

Decode = Callable[[list[Tensor]], list[Tensor]]


class Encoded(NamedTuple):
    """An image that the GPU will decode."""

    data: bytes
    part: Crop


class GpuRows:
    """Rows of a batch whose JPEGs the GPU decodes; other formats, and JPEGs without colour, the CPU.

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
        """Decodes on the CPU, which tells the readable from the others."""
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
