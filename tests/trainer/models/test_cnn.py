import re

import pytest
import torch

from trainer.errors import DataError, SettingsError
from trainer.models.cnn import build


@pytest.mark.parametrize("image_size", [8, 40, 224])
def test_any_size_that_eight_divides_works(image_size: int) -> None:
    model = build("cnn", classes=7, image_size=image_size)
    assert sum(weight.numel() for weight in model.parameters()) < 190_000
    assert model(torch.zeros(2, 3, image_size, image_size)).shape == (2, 7)


@pytest.mark.parametrize(("image_size", "nearest"), [(28, 32), (33, 32), (4, 8)])
def test_other_sizes_are_refused_with_the_nearest_that_works(image_size: int, nearest: int) -> None:
    with pytest.raises(SettingsError, match=f"not {image_size}; try --image-size {nearest}"):
        build("cnn", classes=10, image_size=image_size)


@pytest.mark.parametrize("shape", [(2, 3, 16, 16), (2, 1, 32, 32), (2, 32, 32, 3)])
def test_images_of_another_shape_are_named_with_what_was_expected(shape: tuple[int, ...]) -> None:
    model = build("cnn", classes=10, image_size=32)
    with pytest.raises(DataError, match=f"{re.escape(str(shape))}.*--image-size"):
        model(torch.zeros(shape))


@pytest.mark.slow("the check of images' shape compiles into the model's graph")
def test_the_shape_check_compiles_into_one_graph() -> None:
    model = build("cnn", classes=10, image_size=8)
    images = torch.randn(2, 3, 8, 8)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), model(images))
