import pytest

from trainer.config import TrainConfig, side_at, sides
from trainer.datasets.base import Data, Signature
from trainer.errors import SettingsError
from trainer.training import _build_model


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        (2, [128, 224]),
        (5, [128, 152, 176, 200, 224]),
        (6, [128, 152, 176, 200, 224, 224]),
        (11, [128, 128, 152, 152, 176, 176, 200, 200, 224, 224, 224]),
    ],
)
def test_images_grow_over_the_epochs_and_end_at_their_full_size(epochs: int, expected: list[int]) -> None:
    assert [side_at(epoch, epochs, 128, 224) for epoch in range(epochs)] == expected
    assert sides(epochs, 128, 224) == sorted(set(expected))
    assert sides(epochs, None, 224) == [224]


def test_a_model_for_one_size_is_refused_before_it_trains() -> None:
    config = TrainConfig(model="cnn", dataset="imagenet", image_size_start=32)
    nobody = range(0)
    data = Data(nobody, nobody, Signature(("cat", "dog"), 48, (0, 0, 0), (1, 1, 1)))  # type: ignore[arg-type]

    with pytest.raises(SettingsError, match=r"cnn cannot take the 32 px of --image-size-start 32; drop it, or take a "):
        _build_model(config, data)

    _build_model(config.model_copy(update={"model": "resnet18"}), data)
