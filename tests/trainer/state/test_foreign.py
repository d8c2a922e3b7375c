"""A checkpoint from elsewhere: the right state, or a sentence."""

import copy
import random
from typing import Any

import pytest
import torch

from tests.trainer.ranks_here import alone
from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.state import snapshot
from trainer.training import Training, assemble

FOREIGN = (None, True, -1, 10**30, 1e999, float("nan"), "", "../../x", "a\nb", [], {}, [1], {"a": 1}, {1: 2},
           torch.zeros(0), torch.zeros(3, dtype=torch.int64), torch.full((2, 2), float("nan")))  # fmt: skip


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A training with everything that a checkpoint may hold."""
    config = TrainConfig(
        model="cnn", dataset="synthetic", synthetic_images=16, image_size=8, device="cpu", precision="fp32",
        ema_decay=0.9, cache_dir=tmp_path_factory.mktemp("cache"),
    )  # fmt: skip
    return assemble(config, alone())


def places(tree: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every part of `tree`."""
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [(*way, key) for key, _ in parts] + [place for key, part in parts for place in places(part, (*way, key))]


def altered(state: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """`state` with one part taken out, or put in the place of something else."""
    changed = copy.deepcopy(state)
    *way, last = rng.choice(places(changed))
    holder: Any = changed
    for key in way:
        holder = holder[key]
    if rng.random() < 0.3:
        del holder[last]
    else:
        holder[last] = rng.choice(FOREIGN)
    return changed


def is_one_sentence(text: str) -> bool:
    return text.isprintable() and "weights_only" not in text and len(text) < 600


def test_any_content_is_restored_or_refused_in_a_sentence(training: Training) -> None:
    state, rng, refused = snapshot.take(training), random.Random(0), []
    for _ in range(60):
        changed = altered(state, rng)
        try:
            snapshot.restore(training, changed)
        except SettingsError as error:
            refused.append(str(error))
        else:
            progress = training.progress
            assert min(progress.epoch, progress.images, progress.updates) >= 0
            assert progress.best == "" or "/" not in progress.best
    assert len(refused) > 20
    assert [sentence for sentence in refused if not is_one_sentence(sentence)] == []
    snapshot.restore(training, state)


@pytest.mark.parametrize("part", ["model", "ema"])
def test_weights_that_are_no_numbers_are_refused(part: str, training: Training) -> None:
    """Or the training would end at once, and blame the learning rate."""
    state = snapshot.take(training)
    weights = state["model"] if part == "model" else state["ema"]["weights"]
    weights["head.bias"][1] = float("nan")

    with pytest.raises(SettingsError, match=r"does not fit this run \(head.bias is not finite\)"):
        snapshot.restore(training, state)
