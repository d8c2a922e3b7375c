from trainer.datasets.crops import Crop, keyed_generator, middle_crop, random_crop
from trainer.distributed.sampler import Order


def test_middle_crop_is_the_224_of_256() -> None:
    assert middle_crop(256, 512) == Crop(16, 144, 224, 224)


def test_random_crops_stay_inside_with_the_promised_area_and_ratio() -> None:
    rng = keyed_generator(Order(1, 0, 0), 0)
    crops = [random_crop(300, 400, rng) for _ in range(2000)]

    assert all(c.top >= 0 and c.left >= 0 and c.top + c.height <= 300 and c.left + c.width <= 400 for c in crops)
    shares = [c.height * c.width / 120_000 for c in crops]
    ratios = [c.width / c.height for c in crops]
    assert 0.079 < min(shares) < 0.09
    assert 0.94 < max(shares) <= 1
    assert 0.74 < min(ratios) < 0.76
    assert 1.32 < max(ratios) < 1.35


def test_an_image_too_narrow_for_any_crop_gives_its_middle() -> None:
    assert random_crop(1000, 10, keyed_generator(Order(1, 0, 0), 0)) == Crop(493, 0, 13, 10)


def test_random_numbers_depend_on_seed_epoch_and_position_only() -> None:
    first = [keyed_generator(Order(9, seed, epoch), p).random() for seed in (0, 1) for epoch in (0, 1) for p in (0, 1)]

    assert len(set(first)) == 8
    assert first[0] == keyed_generator(Order(123, 0, 0), 0).random()
