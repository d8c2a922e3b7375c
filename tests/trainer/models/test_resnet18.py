import pytest
import torch
from torch import nn

from trainer.models.resnet18 import build


@pytest.mark.parametrize(("classes", "side", "parameters"), [(10, 32, 11_173_962), (1000, 224, 11_689_512)])
def test_it_has_the_known_number_of_parameters(classes: int, side: int, parameters: int) -> None:
    model = build("resnet18", classes=classes, image_size=side)
    assert sum(weight.numel() for weight in model.parameters()) == parameters


@pytest.mark.parametrize(
    ("image_size", "seen", "channels_and_side"), [(32, 32, (64, 32)), (65, 224, (64, 56))], ids=["CIFAR", "ImageNet"]
)
def test_only_large_images_are_shrunk_first(image_size: int, seen: int, channels_and_side: tuple[int, int]) -> None:
    model = build("resnet18", classes=10, image_size=image_size).eval()
    stem = nn.Sequential(*list(model.children())[:4])
    assert stem(torch.zeros(1, 3, seen, seen)).shape[1:3] == channels_and_side
