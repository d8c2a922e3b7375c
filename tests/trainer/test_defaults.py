"""Numbers that nobody gave: they suit data set, model and length, and whoever gives some keeps them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Run
from trainer.chance import warning_for_guessing
from trainer.config import TrainConfig
from trainer.defaults import resolved
from trainer.models import NAMES, SENSITIVE
from trainer.optimizers import TABLE
from trainer.settings import flags


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ({}, "cnn"), ({"dataset": "digits"}, "cnn"),
        ({"dataset": "cifar10"}, "resnet18"), ({"model": "vgg11"}, "vgg11"),
        ({"dataset": "imagefolder"}, "resnet18"), ({"dataset": "digits", "model": "resnet18"}, "resnet18"),
        ({"model": None}, "cnn"), ({"model": "", "dataset": "imagenet"}, "resnet18"),
    ],
    ids=str,
)  # fmt: skip
def test_the_model_follows_from_the_data_set(given: dict[str, Any], model: str) -> None:
    (config,) = flags.build(given, [TrainConfig])
    assert isinstance(config, TrainConfig)
    assert config.model == model
    # What a launcher sends to a node means the same there.
    (again,) = flags.parse(flags.to_argv(config), [TrainConfig], prog="", about="", sections={})
    assert again == config


@pytest.mark.parametrize(
    ("settings", "images", "rate"),
    [
        ({"dataset": "cifar10"}, 50_000, 0.1),
        ({"dataset": "cifar10", "epochs": 1, "batch_size": 1000}, 50_000, 0.025),  # 50 updates
        ({"dataset": "cifar10", "epochs": 1, "batch_size": 1000, "max_steps": 5}, 50_000, 0.025),
        ({"dataset": "digits"}, 1437, 0.1),  # without batch norm nothing has to catch up
        ({"dataset": "imagenet", "model": "vgg11"}, 1_281_167, 0.01),
        ({"dataset": "cifar10", "model": "vit_b_16"}, 50_000, 0.01),
        ({"dataset": "cifar10", "model": "vit_b_16", "optimizer": "adamw"}, 50_000, 0.0003),
        ({"dataset": "imagefolder", "batch_size": 4, "lr": 7.0}, 40, 7.0),
    ],
)
def test_the_learning_rate_follows_from_model_optimizer_and_updates(
    settings: dict[str, Any], images: int, rate: float
) -> None:
    assert resolved(TrainConfig(**settings), images, replicas=1).lr == pytest.approx(rate)


def test_replicas_that_share_a_batch_change_no_rate() -> None:
    alone, shared = (
        resolved(TrainConfig(model="resnet18", global_batch_size=128), 1437, replicas) for replicas in (1, 8)
    )
    assert alone == shared


@pytest.mark.parametrize("name", ["lr", "weight_decay", "warmup_epochs"])
def test_what_is_given_stays_and_all_else_is_filled(name: str) -> None:
    config = resolved(TrainConfig(model="resnet18", **{name: 0.125}), 1437, replicas=2)
    assert getattr(config, name) == 0.125
    assert None not in (config.lr, config.weight_decay, config.warmup_epochs)
    assert resolved(config, 10**6, replicas=1) == config  # what is saved is what was meant


@pytest.mark.parametrize("optimizer", TABLE)
def test_every_model_has_a_rate(optimizer: str) -> None:
    usual = TABLE[optimizer].peak_lr
    for model in NAMES:
        rate = resolved(TrainConfig(model=model, optimizer=optimizer, dataset="cifar10"), 50_000, 1).lr
        assert rate == usual if not model.startswith(SENSITIVE) else 0 < rate < usual  # type: ignore[operator]


def test_a_run_says_and_saves_what_it_chose(train: Run, tmp_path: Path) -> None:
    done = train("--model", "resnet18", "--image-size", "8", "--max-steps", "1")

    assert "\nsgd, learning rate 0.008, cosine, 0.4 of 2 epochs to warm up\n" in done.stdout, done.stderr
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (saved["lr"], saved["warmup_epochs"], saved["weight_decay"]) == (0.008, 0.4, 0.0005)


def told(config: TrainConfig, epoch: int, top1: float, **changes: Any) -> str | None:
    facts = {"is_last": False, "best_top1": top1, "images": 360, "classes": 10, "updates": 25} | changes
    return warning_for_guessing(config, epoch, **facts)


def test_a_run_that_guesses_is_told_what_to_change() -> None:
    assert told(TrainConfig(), 3, 0.103) == (
        "after 3 epochs an accuracy of 10.3% is no better than guessing among 10 classes. Lower --lr to 0.01; "
        "train for more updates (--epochs, a smaller --batch-size) than 25."
    )
    own = TrainConfig(dataset="imagefolder", lr=0.03)
    assert told(own, 1, 0.33, is_last=True, classes=3, images=60, updates=2000) == (
        "after 1 epoch an accuracy of 33.0% is no better than guessing among 3 classes. Lower --lr to 0.003; "
        "and check that each image is in the folder of its class."
    )


@pytest.mark.parametrize(
    ("settings", "epoch", "top1", "changes"),
    [
        ({}, 3, 0.2, {}),  # learns
        ({}, 2, 0.1, {}),  # too early to say
        ({}, 4, 0.1, {}),  # said already
        ({"dataset": "synthetic"}, 3, 0.1, {"is_last": True}),  # there is nothing to learn
        ({}, 3, 0.5, {"classes": 2, "images": 10**6, "best_top1": 0.51}),
    ],
)
def test_others_are_not(settings: dict[str, Any], epoch: int, top1: float, changes: dict[str, Any]) -> None:
    assert told(TrainConfig(**settings), epoch, top1, **changes) is None


def test_a_run_evaluated_seldom_is_told_at_its_first_chance() -> None:
    rarely = TrainConfig(eval_every=2)
    assert [epoch for epoch in (2, 4, 6) if told(rarely, epoch, 0.1)] == [4]
