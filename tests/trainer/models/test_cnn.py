import pytest
import torch
from torch.nn import functional as F

from trainer.errors import DataError, SettingsError
from trainer.models.cnn import build


def test_it_is_small() -> None:
    model = build("cnn", classes=10, image_size=32)
    assert sum(weight.numel() for weight in model.parameters()) == 186_538


@pytest.mark.parametrize("image_size", [64, 224])
def test_it_stays_small_for_large_images(image_size: int) -> None:
    model = build("cnn", classes=10, image_size=image_size)
    assert sum(weight.numel() for weight in model.parameters()) == 186_538


@pytest.mark.parametrize("image_size", [8, 24, 40, 64, 72])
def test_any_size_that_eight_divides_works(image_size: int) -> None:
    model = build("cnn", classes=7, image_size=image_size)
    assert model(torch.zeros(2, 3, image_size, image_size)).shape == (2, 7)


@pytest.mark.parametrize(("image_size", "nearest"), [(28, 32), (33, 32), (4, 8)])
def test_other_sizes_are_refused_with_the_nearest_that_works(image_size: int, nearest: int) -> None:
    with pytest.raises(SettingsError, match=f"not {image_size}; try --image-size {nearest}"):
        build("cnn", classes=10, image_size=image_size)


@pytest.mark.parametrize("shape", [(2, 3, 16, 16), (2, 1, 32, 32), (3, 32, 32), (2, 32, 32, 3)])
def test_images_of_another_shape_are_named_with_what_was_expected(shape: tuple[int, ...]) -> None:
    model = build("cnn", classes=10, image_size=32)
    with pytest.raises(DataError) as refused:
        model(torch.zeros(shape))
    assert str(refused.value) == (
        f"cnn got images of shape {shape} and takes (batch, 3, S, S) with S = 32; "
        "make --image-size the size that the data set gives."
    )


def test_an_images_gradient_does_not_depend_on_its_batch() -> None:
    torch.manual_seed(0)
    model = build("cnn", classes=10, image_size=16).double()
    images = torch.randn(8, 3, 16, 16, dtype=torch.float64)
    labels = torch.arange(8)

    def gradient(parts: list[slice]) -> torch.Tensor:
        model.zero_grad()
        for part in parts:
            (F.cross_entropy(model(images[part]), labels[part]) / len(parts)).backward()
        return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])

    torch.testing.assert_close(gradient([slice(0, 8)]), gradient([slice(0, 4), slice(4, 8)]))


def test_the_shape_check_compiles_into_one_graph() -> None:
    model = build("cnn", classes=10, image_size=8)
    images = torch.randn(2, 3, 8, 8)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), model(images))


def test_the_shape_check_still_speaks_when_compiled() -> None:
    compiled = torch.compile(build("cnn", classes=10, image_size=8), backend="eager")
    with pytest.raises(DataError, match="got images of shape"):
        compiled(torch.randn(2, 3, 16, 16))
