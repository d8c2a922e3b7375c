import numpy as np
import pytest
import torch

from trainer.datasets.base import CIFAR10, Normaliser

# Black, white and one other: (x / 255 - mean) / std with CIFAR-10's constants, by hand.
PIXELS = torch.tensor([[[[0, 0, 0], [255, 255, 255]], [[51, 102, 204], [0, 0, 0]]]], dtype=torch.uint8)
BLACK, WHITE, OTHER = (-1.98947, -1.98029, -1.70680), (2.05911, 2.12648, 2.11583), (-1.17976, -0.33758, 1.35130)


@pytest.mark.parametrize("channels_last", [False, True])
def test_normalised_pixels_are_exact(channels_last: bool) -> None:
    images = Normaliser(CIFAR10, 2, torch.device("cpu"), channels_last)(PIXELS)

    expected = torch.tensor([[BLACK, WHITE], [OTHER, BLACK]]).permute(2, 0, 1)
    assert torch.allclose(images[0], expected, atol=2e-5)


def test_channels_last_is_a_matter_of_memory_only() -> None:
    device = torch.device("cpu")

    images = Normaliser(CIFAR10, 2, device, True)(PIXELS)
    contiguous = Normaliser(CIFAR10, 2, device, False)(PIXELS)

    assert images.is_contiguous(memory_format=torch.channels_last)
    assert contiguous.is_contiguous()
    assert torch.equal(images, contiguous)


@pytest.mark.parametrize("size", [1, 13, 37, 48, 224, 300])
def test_an_image_of_any_size_is_normalised_bit_by_bit_like_a_batch(size: int) -> None:
    normalise = Normaliser(CIFAR10, size, torch.device("cpu"), True)
    pixels = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    last, first = np.empty((size, size, 3), np.float32), np.empty((3, size, size), np.float32)

    normalise.write(pixels, last)
    normalise.write(pixels, first.transpose(1, 2, 0))

    assert torch.equal(torch.from_numpy(first), normalise(torch.from_numpy(pixels)[None])[0])
    assert np.array_equal(first, last.transpose(2, 0, 1))
