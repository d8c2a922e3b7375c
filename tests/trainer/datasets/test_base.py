import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import Run
from trainer.datasets.base import CIFAR10, DIGITS, Signature, from_json, from_values
from trainer.datasets.decode import Normaliser
from trainer.errors import SettingsError
from trainer.state.checkpoint import load, read

# Black, white and one other: (x / 255 - mean) / std with CIFAR-10's constants, by hand.
PIXELS = torch.tensor([[[[0, 0, 0], [255, 255, 255]], [[51, 102, 204], [0, 0, 0]]]], dtype=torch.uint8)
BLACK, WHITE, OTHER = (-1.98947, -1.98029, -1.70680), (2.05911, 2.12648, 2.11583), (-1.17976, -0.33758, 1.35130)


@pytest.mark.parametrize("channels_last", [False, True])
def test_normalised_pixels_are_exact(channels_last: bool) -> None:
    images = Normaliser(CIFAR10, 2, torch.device("cpu"), channels_last)(PIXELS)

    expected = torch.tensor([[BLACK, WHITE], [OTHER, BLACK]]).permute(2, 0, 1)
    assert torch.allclose(images[0], expected, atol=2e-5)


@pytest.mark.parametrize("size", [1, 13, 37, 48, 224, 300])
def test_an_image_of_any_size_is_normalised_bit_by_bit_like_a_batch(size: int) -> None:
    normalise = Normaliser(CIFAR10, size, torch.device("cpu"), True)
    pixels = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    last, first = np.empty((size, size, 3), np.float32), np.empty((3, size, size), np.float32)

    normalise.write(pixels, last)
    normalise.write(pixels, first.transpose(1, 2, 0))

    assert torch.equal(torch.from_numpy(first), normalise(torch.from_numpy(pixels)[None])[0])
    assert np.array_equal(first, last.transpose(2, 0, 1))


CATS = Signature(("cat", "dog\udcff"), 32, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 0.875)  # a folder that is no UTF-8


def test_a_run_and_its_checkpoints_say_what_the_model_takes(train: Run, tmp_path: Path) -> None:
    done = train("--dataset", "digits", "--image-size", "16", "--max-steps", "1")

    expected = Signature(tuple("0123456789"), 16, DIGITS.mean, DIGITS.std)
    model_json = tmp_path / "run" / "model.json"
    assert from_json(model_json.read_bytes(), model_json) == ("cnn", expected), done.stderr
    best = tmp_path / "run" / "checkpoints" / "best.pt"
    assert from_values(load(read(best))["signature"], best) == expected


CHANGES = [
    {"classes": None}, {"classes": [1, 2]}, {"image_size": "32"}, {"image_size": 0}, {"mean": [0.5]},
    {"std": [1, 1, 0]}, {"std": [1, 1, 1e400]}, {"middle": 0}, {"model": 5},
]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "[]", "{", b"\xff", *(json.dumps(json.loads(CATS.as_json("cnn")) | one) for one in CHANGES)], ids=str
)
def test_a_model_json_that_is_none_or_that_somebody_changed_gets_a_sentence(text: str | bytes) -> None:
    assert from_json(CATS.as_json("vgg11"), Path("model.json")) == ("vgg11", CATS)
    with pytest.raises(SettingsError, match=r"RUN/model\.json"):
        from_json(text, Path("RUN/model.json"))
