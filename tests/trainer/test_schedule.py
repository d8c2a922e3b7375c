"""The learning rate over a run, as literal numbers."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Run
from trainer.config import TrainConfig, batches_at
from trainer.errors import SettingsError
from trainer.models import NAMES, SENSITIVE
from trainer.optimizers import TABLE
from trainer.optimizers.schedule import (
    count_updates,
    learning_rate,
    resolved,
    updates_after,
    warning_for_few_updates,
    warning_for_guessing,
)
from trainer.settings import flags


@pytest.mark.parametrize(
    ("settings", "progress", "expected"),
    [
        ({"schedule": "constant"}, [0, 3.5, 9.9], [1.0, 1.0, 1.0]),
        ({"schedule": "cosine"}, [0, 2.5, 5, 7.5, 10], [1.0, 0.853553, 0.5, 0.146447, 0.0]),
        ({"schedule": "cosine", "warmup_epochs": 2}, [0, 1, 2, 6, 10], [0.04, 0.52, 1.0, 0.5, 0.0]),
        ({"schedule": "constant", "warmup_epochs": 2}, [0, 1, 2], [0.04, 0.52, 1.0]),
        (
            {"schedule": "multistep", "milestones": (6, 3), "lr_gamma": 0.5},
            [0, 2.99, 3, 5.99, 6, 9],
            [1.0, 1.0, 0.5, 0.5, 0.25, 0.25],
        ),
        ({"schedule": "onecycle", "warmup_epochs": None}, [0, 1.5, 3, 6.5, 10], [0.04, 0.52, 1.0, 0.5, 0.0]),
        ({"schedule": "onecycle", "warmup_epochs": 2}, [0, 2, 6, 10], [0.04, 1.0, 0.5, 0.0]),
        # By default a fifth of the run warms up, but at most five epochs.
        ({"schedule": "cosine", "epochs": 1, "warmup_epochs": None}, [0, 0.1, 0.2], [0.04, 0.52, 1.0]),
        ({"schedule": "cosine", "epochs": 90, "warmup_epochs": None}, [0, 2.5, 5], [0.04, 0.52, 1.0]),
    ],
    ids=str,
)
def test_the_rate_over_a_run(settings: dict[str, Any], progress: list[float], expected: list[float]) -> None:
    config = TrainConfig(**{"lr": 1.0, "epochs": 10, "warmup_epochs": 0} | settings)

    assert [round(learning_rate(config, at, global_batch=256), 6) for at in progress] == expected


@pytest.mark.parametrize(("scaling", "rate"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_the_rate_follows_the_global_batch_as_asked(scaling: str, rate: float) -> None:
    config = TrainConfig(lr=0.1, schedule="constant", lr_scaling=scaling, lr_base_batch=256)
    assert learning_rate(config, 0.0, global_batch=1024) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("settings", "replicas", "updates"),
    [
        ({"batch_size": 32, "accumulate": 2}, 4, 9),  # 1000 // 256 = 3 an epoch
        ({"batch_ramp": {0: 100, 2: 500}}, 2, 22),  # 10 + 10 + 2
        ({"batch_size": 100, "max_steps": 7}, 1, 7),
    ],
)
def test_updates_are_whole_batches_over_all_epochs(settings: dict[str, Any], replicas: int, updates: int) -> None:
    assert count_updates(TrainConfig(epochs=3, **settings), train_size=1000, replicas=replicas) == updates


def test_updates_of_a_run_without_end_are_counted_at_once() -> None:
    ramp = {0: 100, 3: 500, 10**13: 1000}
    assert count_updates(TrainConfig(epochs=10**12, batch_ramp=ramp), train_size=1000, replicas=2) == 2 * 10**12 + 24
    assert updates_after(TrainConfig(epochs=10**12, batch_ramp=ramp), 1000, 2, epoch=1) == 2 * 10**12 + 4


def test_updates_after_an_epoch_are_those_of_each_later_one() -> None:
    for epoch in range(-1, 7):
        config = TrainConfig(epochs=7, batch_ramp={0: 100, 2: 500, 3: 50, 9: 10})
        later = [1000 // batches_at(config, number, 2).per_update for number in range(epoch + 1, 7)]
        assert updates_after(config, 1000, 2, epoch) == sum(later)


def test_a_ramp_that_does_not_divide_is_refused_before_training() -> None:
    config = TrainConfig(epochs=3, batch_ramp={0: 100, 2: 501})
    with pytest.raises(SettingsError, match="500"):
        count_updates(config, train_size=1000, replicas=2)


@pytest.mark.parametrize(
    ("given", "model"),
    [
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


@pytest.mark.parametrize(("updates", "is_warned"), [(31, True), (200, False)])
def test_a_run_with_few_updates_is_warned_with_what_to_do(updates: int, is_warned: bool) -> None:
    assert ("--batch-ramp" in (warning_for_few_updates(updates) or "")) is is_warned


@pytest.mark.parametrize(
    ("settings", "epoch", "top1", "changes", "lr"),
    [
        ({}, 3, 0.103, {}, "0.01"),
        ({"dataset": "imagefolder", "lr": 0.03}, 1, 0.33, {"is_last": True, "classes": 3, "images": 60}, "0.003"),
        ({}, 3, 0.2, {}, None),  # learns
        ({}, 2, 0.1, {}, None),  # too early to say
        ({}, 4, 0.1, {}, None),  # said already
        ({"eval_every": 2}, 4, 0.1, {}, "0.01"),  # at its first chance
        ({"dataset": "synthetic"}, 3, 0.1, {"is_last": True}, None),  # there is nothing to learn
        ({}, 3, 0.5, {"classes": 2, "images": 10**6, "best_top1": 0.51}, None),
    ],
)
def test_a_run_at_chance_level_gets_a_warning_with_a_lower_rate(
    settings: dict[str, Any], epoch: int, top1: float, changes: dict[str, Any], lr: str | None
) -> None:
    facts = {"is_last": False, "best_top1": top1, "images": 360, "classes": 10, "updates": 25} | changes

    warning = warning_for_guessing(TrainConfig(**settings), epoch, **facts)

    assert (lr is None) is (warning is None)
    assert warning is None or f"Lower --lr to {lr};" in warning
