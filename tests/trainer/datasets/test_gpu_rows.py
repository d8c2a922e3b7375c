"""Decoding on a GPU, as far as a CPU can tell: its decoder is torchvision's for the CPU here."""

import io

import numpy as np
import pytest
import simplejpeg
import torch
from PIL import Image

from trainer.datasets.base import IMAGENET
from trainer.datasets.decode import Normaliser
from trainer.datasets.order import Crop, View
from trainer.datasets.rows import ByteRows, GpuRows, check_gpu_decodes, decode_on
from trainer.datasets.streaming import UnfinishedBatch
from trainer.errors import SettingsError

CPU, SIDE = torch.device("cpu"), 16
NORMALISE = Normaliser(IMAGENET, SIDE, CPU, channels_last=True)
NOISE = np.random.default_rng(0).integers(0, 256, (48, 40, 3), dtype=np.uint8)
JPEG = simplejpeg.encode_jpeg(NOISE)


def saved(mode: str, kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(NOISE).convert(mode).save(file, kind)
    return file.getvalue()


def look(flip: bool) -> View:
    return View(lambda height, width: Crop(3, 5, 32, 20), flip)


def test_a_gpu_makes_the_batch_that_a_cpu_makes() -> None:
    files = [JPEG, JPEG, saved("RGB", "PNG"), saved("L", "JPEG"), saved("CMYK", "JPEG")]
    on_gpu, on_cpu = GpuRows(6, SIDE, NORMALISE, CPU), ByteRows(6, SIDE, NORMALISE, CPU)

    for rows in (on_gpu, on_cpu):
        for row, data in enumerate(files):
            rows.put(row, data, look(flip=row % 2 == 0))
        assert rows.settle() == {}
        rows.copy(5, 2)

    level = 1 / 255 / min(IMAGENET.std)
    assert on_gpu.images().shape == (6, 3, SIDE, SIDE)
    assert (on_gpu.images() - on_cpu.images()).abs().max() < level  # no rounding in between
    assert on_gpu.images().is_contiguous(memory_format=torch.channels_last)


def test_only_what_nvjpeg_takes_goes_to_the_gpu() -> None:
    decoded: list[torch.Tensor] = []

    def decode(files: list[torch.Tensor]) -> list[torch.Tensor]:
        decoded.extend(files)
        return decode_on(CPU, files)

    rows = GpuRows(3, SIDE, NORMALISE, CPU, decode)
    for row, data in enumerate([saved("CMYK", "JPEG"), JPEG, saved("RGB", "PNG")]):
        rows.put(row, data, look(flip=False))
    rows.settle()

    assert [bytes(file.numpy()) for file in decoded] == [JPEG]


def test_an_image_that_ends_a_batch_on_the_gpu_is_named_and_replaced() -> None:
    rows = GpuRows(3, SIDE, NORMALISE, CPU)
    for row, data in enumerate([JPEG, JPEG[: len(JPEG) // 2], JPEG]):
        rows.put(row, data, look(flip=False))
    batch = UnfinishedBatch([7, 8, 9], torch.tensor([1, 2, 3]), rows)

    batch.finish()

    assert list(batch.bad) == [1]
    assert torch.equal(rows.images()[1], rows.images()[0])


def test_a_machine_without_a_gpu_or_nvjpeg_is_refused_in_a_sentence() -> None:
    def without(device: torch.device, files: list[torch.Tensor]) -> list[torch.Tensor]:
        raise RuntimeError("decode_jpegs_cuda: torchvision not compiled with nvJPEG support")

    with pytest.raises(SettingsError, match="--decode gpu needs a GPU, and the training runs on the CPU; drop it"):
        check_gpu_decodes(CPU)
    with pytest.raises(SettingsError, match=r"needs a torchvision built for CUDA with nvJPEG \(decode_jpegs"):
        check_gpu_decodes(torch.device("cuda"), without)
