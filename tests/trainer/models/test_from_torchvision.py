import pytest
import torch
import torchvision

from trainer.errors import SettingsError
from trainer.models import OWN, TORCHVISION
from trainer.models.from_torchvision import build


def test_the_list_of_names_is_torchvisions() -> None:
    theirs = torchvision.models.list_models(module=torchvision.models)
    assert sorted(TORCHVISION) == sorted(set(theirs) - set(OWN))


@pytest.mark.parametrize(("name", "image_size"), [("regnet_x_400mf", 32), ("googlenet", 32)])
def test_a_model_trains_on_the_size_it_was_built_for(name: str, image_size: int) -> None:
    model = build(name, classes=7, image_size=image_size)
    assert model(torch.zeros(2, 3, image_size, image_size)).shape == (2, 7)


def test_a_vision_transformer_is_built_for_the_size_of_the_images() -> None:
    model = build("vit_b_32", classes=7, image_size=64)
    assert model.get_parameter("encoder.pos_embedding").shape == (1, 5, 768)  # 2 x 2 patches and the class


@pytest.mark.parametrize(
    ("name", "image_size"),
    [("vit_b_32", 48), ("alexnet", 32), ("densenet121", 8)],
)
def test_a_size_that_a_model_cannot_take_is_one_sentence_with_a_remedy(name: str, image_size: int) -> None:
    with pytest.raises(SettingsError, match=rf"^{name} cannot take images of {image_size} px .*--image-size 224"):
        build(name, classes=10, image_size=image_size)


def test_trying_the_size_leaves_the_model_and_the_random_numbers_alone() -> None:
    torch.manual_seed(5)
    ours = build("mobilenet_v3_small", classes=3, image_size=32)
    drawn = torch.rand(1)

    torch.manual_seed(5)
    theirs = torchvision.models.mobilenet_v3_small(num_classes=3)
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True))
    assert torch.equal(drawn, torch.rand(1))
