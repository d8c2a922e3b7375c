"""Whatever stands in a checkpoint, also with a digest that fits: the right state, or a sentence."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.ranks_here import alone
from trainer.config import TrainConfig
from trainer.errors import CheckpointError, SettingsError
from trainer.state import snapshot
from trainer.state.checkpoint import Checkpoints, load, write
from trainer.training import Training, assemble, read_weights

FOREIGN = (None, True, -1, 10**30, 1e999, float("nan"), "", "../../x", "a\nb", [], {}, [1], {"a": 1}, {1: 2},
           torch.zeros(0), torch.zeros(3, dtype=torch.int64), torch.full((2, 2), float("nan")))  # fmt: skip
NAME = "epoch-0001-step-000010.pt"


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
    for _ in range(120):
        changed = altered(state, rng)
        try:
            snapshot.restore(training, changed)
        except SettingsError as error:
            refused.append(str(error))
        else:
            progress = training.progress
            assert min(progress.epoch, progress.images, progress.updates) >= 0
            assert progress.best == "" or "/" not in progress.best
    assert len(refused) > 40
    assert [sentence for sentence in refused if not is_one_sentence(sentence)] == []
    snapshot.restore(training, state)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon"])
def test_whatever_an_optimizer_is_said_to_remember_its_next_update_ends_without_a_traceback(
    optimizer: str, tmp_path: Path
) -> None:
    config = TrainConfig(
        model="cnn", dataset="synthetic", synthetic_images=16, image_size=8, device="cpu", precision="fp32",
        optimizer=optimizer, cache_dir=tmp_path,
    )  # fmt: skip
    training, rng, refused = assemble(config, alone()), random.Random(0), list[str]()
    for weight in training.wrapped.plain.parameters():
        weight.grad = torch.zeros_like(weight)
    training.optimizer.step()
    state = copy.deepcopy(snapshot.take(training))
    for _ in range(100):
        changed = {**state, "optimizer": altered({"state": state["optimizer"]["state"]}, rng)}
        changed["optimizer"]["param_groups"] = state["optimizer"]["param_groups"]
        try:
            snapshot.restore(training, copy.deepcopy(changed))
        except SettingsError as error:
            refused.append(str(error))
        else:
            training.optimizer.step()
    assert len(refused) > 30
    assert all(map(is_one_sentence, refused))
    snapshot.restore(training, state)  # what it does remember it goes on with


def test_weights_of_which_nothing_is_remembered_go_on_like_new_ones(tmp_path: Path) -> None:
    config = TrainConfig(
        model="cnn", dataset="synthetic", synthetic_images=16, image_size=8, device="cpu", precision="fp32",
        optimizer="sgd", momentum=0.5, weight_decay=0.0, cache_dir=tmp_path,
    )  # fmt: skip
    training = assemble(config, alone())
    for weight in training.wrapped.plain.parameters():
        weight.grad = torch.ones_like(weight)
    training.optimizer.step()
    state = copy.deepcopy(snapshot.take(training))
    del state["optimizer"]["state"][0]

    snapshot.restore(training, state)
    training.optimizer.step()

    momentum = [training.optimizer.state_dict()["state"][place]["momentum_buffer"] for place in (0, 1)]
    assert [buffer.unique().tolist() for buffer in momentum] == [[1.0], [1.5]]


@pytest.mark.parametrize("part", ["model", "ema"])
def test_weights_that_are_no_numbers_are_refused(part: str, training: Training) -> None:
    """Or the training would end at once, and blame the learning rate."""
    state = snapshot.take(training)
    weights = state["model"] if part == "model" else state["ema"]["weights"]
    weights["head.bias"][1] = float("nan")

    with pytest.raises(SettingsError, match=r"does not fit this run \(head.bias is not finite\)"):
        snapshot.restore(training, state)


@pytest.mark.parametrize("sums", [[float("nan"), 0.0, 8.0], [float("inf"), 0.0, 8.0], [1.0, -1.0, 8.0], [1.0]])
def test_sums_that_no_epoch_has_are_refused(sums: list[float], training: Training) -> None:
    state = snapshot.take(training)
    state["ranks"][0]["sums"] = torch.tensor(sums, dtype=torch.float64)

    with pytest.raises(SettingsError, match=r"does not fit this run \(the sums of an epoch are"):
        snapshot.restore(training, state)


@pytest.mark.parametrize("vouched", [True, False], ids=["a digest that fits", "the digest of the whole one"])
def test_any_bytes_are_read_or_refused_in_a_sentence(vouched: bool, training: Training, tmp_path: Path) -> None:
    rng, told = random.Random(0), list[str]()
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save({"format": 1, "weight": torch.arange(20)}, 1, 10, is_best=False)
    checkpoints.wait()
    whole = (tmp_path / NAME).read_bytes()
    for _ in range(50):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if vouched:
            write(tmp_path / NAME, bytes(data))
        else:
            (tmp_path / NAME).write_bytes(data)
        try:
            found = checkpoints.newest(told.append)
            assert found is not None
            assert isinstance(load(found), dict)
            assert vouched or found == whole
        except CheckpointError as error:
            told.append(str(error))
    assert len(told) > 25
    assert all(is_one_sentence(sentence) for sentence in told)


@pytest.mark.parametrize("digest", [b"", b"\xff\xfe", b"\0" * 100, b"x" * 10**6, b"0" * 64])
def test_any_digest_means_the_checkpoint_before(digest: bytes, tmp_path: Path) -> None:
    checkpoints, told = Checkpoints(tmp_path, keep=3), list[str]()
    for epoch in (1, 2):
        checkpoints.save({"format": 1, "epoch": epoch}, epoch, epoch * 10, is_best=False)
    checkpoints.wait()
    path = tmp_path / "epoch-0002-step-000020.pt.sha256"
    path.write_bytes(digest)

    found = checkpoints.newest(told.append)

    assert found is not None
    assert load(found)["epoch"] == 1
    assert len(told) == 1
    assert is_one_sentence(told[0])


@pytest.mark.parametrize("content", [*FOREIGN, {"format": 1, "model": 3}, {"weight": [1]}], ids=repr)
def test_weights_to_start_from_that_are_none_are_refused(content: object, training: Training, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "model.pt")

    with pytest.raises((SettingsError, RuntimeError)) as error:  # load_state_dict's, which the caller puts into words
        training.wrapped.plain.load_state_dict(read_weights(tmp_path / "model.pt"))
    assert "weights_only" not in str(error.value)
