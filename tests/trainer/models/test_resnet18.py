import torch
from torch import nn

from trainer.models.resnet18 import build


def parameters(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def test_the_cifar_network_has_the_known_number_of_parameters() -> None:
    assert parameters(build("resnet18", classes=10, image_size=32)) == 11_173_962


def test_the_imagenet_network_has_the_known_number_of_parameters() -> None:
    assert parameters(build("resnet18", classes=1000, image_size=224)) == 11_689_512


def test_small_images_keep_their_resolution_until_the_second_stage() -> None:
    model = build("resnet18", classes=10, image_size=32).eval()
    stem = nn.Sequential(*list(model.children())[:4])
    assert stem(torch.zeros(1, 3, 32, 32)).shape == (1, 64, 32, 32)


def test_large_images_are_shrunk_fourfold_first() -> None:
    model = build("resnet18", classes=10, image_size=65).eval()
    stem = nn.Sequential(*list(model.children())[:4])
    assert stem(torch.zeros(1, 3, 224, 224)).shape == (1, 64, 56, 56)


def test_the_same_seed_gives_the_same_weights() -> None:
    torch.manual_seed(3)
    first = build("resnet18", classes=10, image_size=32)
    torch.manual_seed(3)
    second = build("resnet18", classes=10, image_size=32)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
