import pytest
import torch
from torch import Tensor

from trainer.datasets.base import Normalisation
from trainer.datasets.decode import Normaliser
from trainer.datasets.order import Order
from trainer.datasets.resident import Images, ResidentSplit, draw, fits, resized
from trainer.errors import DataError

SIDE, SIZE = 8, 24
PLAIN = Normalisation((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))  # leaves 0..255 as they are
SHIFTED = Normalisation((0.5, 0.25, 0.75), (0.2, 0.3, 0.4))


def noise() -> Images:
    pixels = torch.randint(1, 256, (SIZE, SIDE, SIDE, 3), generator=torch.Generator().manual_seed(0))
    return Images(pixels.to(torch.uint8), torch.arange(SIZE))


def split(flip: bool = True, normalisation: Normalisation = PLAIN, shift: int = 4) -> ResidentSplit:
    device = torch.device("cpu")
    return ResidentSplit(noise(), Normaliser(normalisation, SIDE, device, False), device, shift, flip)


def augmented_slowly(pixels: Tensor, top: int, left: int, mirrored: int) -> Tensor:
    """(S, S, 3) -> (S, S, 3), one pixel at a time."""
    result = torch.zeros_like(pixels)
    for y in range(SIDE):
        for x in range(SIDE):
            from_y, from_x = y + top - 4, (SIDE - 1 - x if mirrored else x) + left - 4
            if 0 <= from_y < SIDE and 0 <= from_x < SIDE:
                result[y, x] = pixels[from_y, from_x]
    return result


def test_shifts_and_mirroring_are_those_of_a_slow_reference() -> None:
    order = Order(SIZE, seed=1, epoch=2)

    [batch] = split().train_batches(order, [slice(0, SIZE)])

    draws = draw(order, 4, True).T.tolist()
    expected = [augmented_slowly(noise().pixels[i], top, left, flip) for i, top, left, flip in draws]
    assert torch.allclose(batch.images, torch.stack(expected).permute(0, 3, 1, 2).float())
    assert batch.labels.tolist() == order.permutation.tolist()


def test_borders_are_black_before_normalising() -> None:
    black = torch.tensor([-2.5, -0.8333333, -1.875])  # (0 - mean) / std

    [batch] = split(normalisation=SHIFTED).train_batches(Order(SIZE, 0, 0), [slice(0, SIZE)])

    top = draw(Order(SIZE, 0, 0), 4, True)[1]
    moved_down = int((top == 0).nonzero()[0])
    assert torch.allclose(batch.images[moved_down, :, :4], black[:, None, None].expand(3, 4, SIDE))


def test_a_size_that_does_not_fit_in_memory_is_refused_with_one_that_does() -> None:
    tiny = torch.zeros(1, 1, 1, 3, dtype=torch.uint8).expand(60_000, 32, 32, 3)

    with pytest.raises(DataError, match="60000 images of 224 pixels do not fit in memory; --image-size may be 154"):
        resized(tiny, 224)
    assert fits(60_000, 154)
