import pytest
import torch
from torch import Tensor

from trainer.batches import Batches
from trainer.datasets.base import Batch, Normalisation, Normaliser
from trainer.datasets.resident import Images, ResidentSplit, draw, fits, resized
from trainer.distributed.sampler import Order, positions, shard, updates_left
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


def together(batches: list[Batch]) -> Batch:
    return Batch(torch.cat([b.images for b in batches]), torch.cat([b.labels for b in batches]))


def test_shifts_and_mirroring_are_those_of_a_slow_reference() -> None:
    order = Order(SIZE, seed=1, epoch=2)

    [batch] = split().train_batches(order, [slice(0, SIZE)])

    draws = draw(order, 4, True).T.tolist()
    expected = [augmented_slowly(noise().pixels[i], top, left, flip) for i, top, left, flip in draws]
    assert torch.allclose(batch.images, torch.stack(expected).permute(0, 3, 1, 2).float())
    assert batch.labels.tolist() == order.permutation.tolist()


def test_draws_cover_every_shift_and_mirror_half() -> None:
    draws = draw(Order(20_000, seed=0, epoch=0), 4, True)

    assert draws[1].unique().tolist() == list(range(9))
    assert draws[2].unique().tolist() == list(range(9))
    assert 9_800 < int(draws[3].sum()) < 10_200


def test_borders_are_black_before_normalising() -> None:
    black = torch.tensor([-2.5, -0.8333333, -1.875])  # (0 - mean) / std

    [batch] = split(normalisation=SHIFTED).train_batches(Order(SIZE, 0, 0), [slice(0, SIZE)])

    top = draw(Order(SIZE, 0, 0), 4, True)[1]
    moved_down = int((top == 0).nonzero()[0])
    assert torch.allclose(batch.images[moved_down, :, :4], black[:, None, None].expand(3, 4, SIDE))


def test_images_are_never_mirrored_where_the_classes_forbid_it() -> None:
    assert draw(Order(1000, 0, 0), 4, flip=False)[3].sum() == 0


def test_without_augmentation_images_stay_as_they_are() -> None:
    order = Order(SIZE, 0, 0)

    [batch] = split(flip=False, shift=0).train_batches(order, [slice(0, SIZE)])

    assert torch.equal(batch.images, noise().pixels[order.permutation].permute(0, 3, 1, 2).float())


def test_two_ranks_together_see_the_same_augmented_images_as_one() -> None:
    order = Order(SIZE, seed=3, epoch=1)
    one, two = Batches(8, 1, 1), Batches(4, 1, 2)

    alone = together(list(split().train_batches(order, positions(one, 0, 1, 0, 3))))
    ranks = [list(split().train_batches(order, positions(two, rank, 1, 0, 3))) for rank in (0, 1)]

    joined = together([batch for step in zip(*ranks, strict=True) for batch in step])
    assert torch.equal(joined.images, alone.images)
    assert torch.equal(joined.labels, alone.labels)


def test_resuming_at_step_s_gives_the_same_batches() -> None:
    order, batches = Order(SIZE, seed=0, epoch=4), Batches(4, 1, 1)
    steps = updates_left(SIZE, 0, batches)

    unbroken = list(split().train_batches(order, positions(batches, 0, 1, 0, steps)))
    resumed = list(split().train_batches(order, positions(batches, 0, 1, 4 * 4, steps - 4)))

    assert torch.equal(together(resumed).images, together(unbroken[4:]).images)


def test_another_epoch_augments_differently() -> None:
    assert not torch.equal(draw(Order(SIZE, 0, 0), 4, True)[1:], draw(Order(SIZE, 0, 1), 4, True)[1:])


@pytest.mark.parametrize("world_size", [1, 3])
def test_evaluation_covers_each_image_once(world_size: int) -> None:
    batches = [b for r in range(world_size) for b in split().eval_batches(shard(SIZE, r, world_size), 5)]

    seen = together(batches)
    assert sorted(seen.labels.tolist()) == list(range(SIZE))
    assert torch.equal(seen.images, noise().pixels[seen.labels].permute(0, 3, 1, 2).float())


def test_resized_keeps_colours_and_makes_the_shape() -> None:
    grey = torch.full((2, 8, 8, 3), 100, dtype=torch.uint8)

    larger = resized(grey, 12)

    assert larger.shape == (2, 12, 12, 3)
    assert larger.unique().tolist() == [100]


def test_a_size_that_does_not_fit_in_memory_is_refused_with_one_that_does() -> None:
    tiny = torch.zeros(1, 1, 1, 3, dtype=torch.uint8).expand(60_000, 32, 32, 3)

    with pytest.raises(DataError, match="60000 images of 224 pixels do not fit in memory; --image-size may be 154"):
        resized(tiny, 224)
    assert fits(60_000, 154)
