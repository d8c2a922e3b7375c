"""What a run says of its model's images and classes, for whoever has no data set."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run
from trainer.datasets.base import DIGITS
from trainer.errors import SettingsError
from trainer.signature import Signature, from_json, from_values
from trainer.state.checkpoint import load, read

CATS = Signature(("cat", "dog\udcff"), 32, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 0.875)  # a folder that is no UTF-8


def test_a_run_and_its_checkpoints_say_what_the_model_takes(train: Run, tmp_path: Path) -> None:
    done = train("--dataset", "digits", "--image-size", "16", "--max-steps", "1")

    expected = Signature(tuple("0123456789"), 16, DIGITS.mean, DIGITS.std)
    model_json = tmp_path / "run" / "model.json"
    assert from_json(model_json.read_bytes(), model_json) == ("cnn", expected), done.stderr
    best = tmp_path / "run" / "checkpoints" / "best.pt"
    assert from_values(load(read(best))["signature"], best) == expected


def test_a_signature_comes_back_as_it_was() -> None:
    assert from_json(CATS.as_json("vgg11"), Path("model.json")) == ("vgg11", CATS)


@pytest.mark.parametrize(
    "changes",
    [
        {"classes": None}, {"classes": []}, {"classes": [1, 2]}, {"classes": 7}, {"image_size": "32"},
        {"image_size": True}, {"image_size": 0}, {"mean": [0.5]}, {"mean": "abc"}, {"std": [1, 1, 0]},
        {"std": [1, 1, 1e400]}, {"middle": 0}, {"middle": None}, {"model": 5},
    ],
    ids=str,
)  # fmt: skip
def test_a_model_json_that_somebody_changed_gets_a_sentence(changes: dict[str, Any]) -> None:
    content = json.loads(CATS.as_json("cnn")) | changes

    with pytest.raises(SettingsError, match=r"RUN/model\.json does not say what the model's classes and images are"):
        from_json(json.dumps(content), Path("RUN/model.json"))


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, b"\xff"], ids=["empty", "list", "cut", "deep", "bytes"])
def test_a_model_json_that_is_none_gets_a_sentence(text: str | bytes) -> None:
    with pytest.raises(SettingsError, match="give a run of this version"):
        from_json(text, Path("model.json"))
