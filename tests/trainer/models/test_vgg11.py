import pytest
import torch

from trainer.errors import SettingsError
from trainer.models.vgg11 import build


def test_the_cifar_network_is_that_of_the_exercise() -> None:
    model = build("vgg11", classes=10, image_size=32)
    assert sum(weight.numel() for weight in model.parameters()) == 9_231_114
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_large_images_get_the_network_of_the_paper() -> None:
    with torch.device("meta"):
        model = build("vgg11", classes=1000, image_size=224)
    assert sum(weight.numel() for weight in model.parameters()) == 132_863_336


@pytest.mark.parametrize("image_size", [16, 28, 48, 64])
def test_sizes_between_the_two_are_refused_with_a_remedy(image_size: int) -> None:
    with pytest.raises(SettingsError, match=rf"not {image_size} px; take --image-size 32 or --model resnet18"):
        build("vgg11", classes=10, image_size=image_size)
