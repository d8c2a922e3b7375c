from trainer.datasets.order import PHILOX_BLOCK, Crop, Order, draw, middle_crop, random_crop


def test_middle_crop_is_the_224_of_256() -> None:
    assert middle_crop(256, 512) == Crop(16, 144, 224, 224)


def test_random_crops_stay_inside_with_the_promised_area_and_ratio() -> None:
    crops = [random_crop(300, 400, draws[PHILOX_BLOCK:]) for draws in draw(Order(2000, 0, 0), range(2000))]

    assert all(c.top >= 0 and c.left >= 0 and c.top + c.height <= 300 and c.left + c.width <= 400 for c in crops)
    assert min(c.top for c in crops) == min(c.left for c in crops) == 0
    assert (max(c.top + c.height for c in crops), max(c.left + c.width for c in crops)) == (300, 400)
    shares = [c.height * c.width / 120_000 for c in crops]
    ratios = [c.width / c.height for c in crops]
    assert 0.079 < min(shares) < 0.09
    assert 0.94 < max(shares) <= 1
    assert 0.74 < min(ratios) < 0.76
    assert 1.32 < max(ratios) < 1.35


def test_an_image_too_narrow_for_any_crop_gives_its_middle() -> None:
    assert random_crop(1000, 10, draw(Order(1, 0, 0), range(1))[0][PHILOX_BLOCK:]) == Crop(493, 0, 13, 10)


def test_random_numbers_depend_on_seed_epoch_and_position_only() -> None:
    first = [draw(Order(9, seed, epoch), range(p, p + 1))[0] for seed in (0, 1) for epoch in (0, 1) for p in (0, 1)]

    assert len({number for numbers in first for number in numbers}) == sum(map(len, first))
    assert first[:2] == draw(Order(123, 0, 0), range(2))
    assert draw(Order(9, 0, 0), range(3, 6))[1:] == draw(Order(9, 0, 0), range(4, 6))
