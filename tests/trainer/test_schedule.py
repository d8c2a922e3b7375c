"""The learning rate over a run, as literal numbers."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Run
from trainer.batches import batches_at
from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.models import NAMES, SENSITIVE
from trainer.optimizers import TABLE
from trainer.schedule import (
    count_updates,
    learning_rate,
    peak_lr,
    resolved,
    updates_after,
    warning_for_few_updates,
    warning_for_guessing,
)
from trainer.settings import flags


def rates(progress: list[float], **settings: Any) -> list[float]:
    config = TrainConfig(**{"lr": 1.0, "epochs": 10, **settings})
    return [round(learning_rate(config, at, global_batch=256), 6) for at in progress]


def test_constant_never_changes() -> None:
    assert rates([0, 3.5, 9.9], schedule="constant") == [1.0, 1.0, 1.0]


def test_cosine_falls_from_the_peak_to_zero() -> None:
    assert rates([0, 2.5, 5, 7.5, 10], schedule="cosine", warmup_epochs=0) == [1.0, 0.853553, 0.5, 0.146447, 0.0]


def test_multistep_falls_at_each_milestone_in_any_order() -> None:
    progress = [0, 2.99, 3, 5.99, 6, 9]
    expected = [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    assert rates(progress, schedule="multistep", milestones=(6, 3), lr_gamma=0.5, warmup_epochs=0) == expected


def test_onecycle_rises_for_three_tenths_then_falls_to_zero() -> None:
    assert rates([0, 1.5, 3, 6.5, 10], schedule="onecycle") == [0.04, 0.52, 1.0, 0.5, 0.0]


def test_onecycle_rises_for_as_long_as_it_is_told() -> None:
    assert rates([0, 2, 6, 10], schedule="onecycle", warmup_epochs=2) == [0.04, 1.0, 0.5, 0.0]


@pytest.mark.parametrize("schedule", ["constant", "cosine", "multistep"])
def test_warm_up_is_linear_from_a_rate_above_zero(schedule: str) -> None:
    milestones = (5,) if schedule == "multistep" else ()
    assert rates([0, 1, 2], schedule=schedule, milestones=milestones, warmup_epochs=2) == [0.04, 0.52, 1.0]


@pytest.mark.parametrize(("epochs", "peak_at"), [(1, 0.2), (10, 2.0), (25, 5.0), (90, 5.0)])
def test_unless_told_otherwise_a_fifth_of_the_run_warms_up_but_at_most_five_epochs(epochs: int, peak_at: float) -> None:
    assert rates([0, peak_at / 2, peak_at], schedule="cosine", epochs=epochs) == [0.04, 0.52, 1.0]


def test_cosine_falls_over_what_warm_up_leaves() -> None:
    assert rates([2, 6, 10], schedule="cosine", warmup_epochs=2) == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(("scaling", "rate"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_the_rate_follows_the_global_batch_as_asked(scaling: str, rate: float) -> None:
    config = TrainConfig(lr=0.1, schedule="constant", lr_scaling=scaling, lr_base_batch=256)
    assert learning_rate(config, 0.0, global_batch=1024) == pytest.approx(rate)


@pytest.mark.parametrize(("optimizer", "rate"), [("sgd", 0.1), ("adamw", 1e-3), ("lars", 2.0), ("muon", 0.02)])
def test_each_optimizer_has_its_usual_peak(optimizer: str, rate: float) -> None:
    assert peak_lr(TrainConfig(optimizer=optimizer)) == rate


def test_a_given_rate_wins_over_the_usual_one() -> None:
    assert peak_lr(TrainConfig(optimizer="lars", lr=0.5)) == 0.5


def test_updates_are_whole_batches_over_all_epochs() -> None:
    config = TrainConfig(epochs=3, batch_size=32, accumulate=2)
    assert count_updates(config, train_size=1000, replicas=4) == 9  # 1000 // 256 = 3 an epoch


def test_updates_follow_the_batch_ramp() -> None:
    config = TrainConfig(epochs=3, batch_ramp={0: 100, 2: 500})
    assert count_updates(config, train_size=1000, replicas=2) == 22  # 10 + 10 + 2


def test_updates_of_a_run_without_end_are_counted_at_once() -> None:
    ramp = {0: 100, 3: 500, 10**13: 1000}
    assert count_updates(TrainConfig(epochs=10**12, batch_ramp=ramp), train_size=1000, replicas=2) == 2 * 10**12 + 24
    assert updates_after(TrainConfig(epochs=10**12, batch_ramp=ramp), 1000, 2, epoch=1) == 2 * 10**12 + 4


@pytest.mark.parametrize("epoch", range(-1, 7))
def test_updates_after_an_epoch_are_those_of_each_later_one(epoch: int) -> None:
    config = TrainConfig(epochs=7, batch_ramp={0: 100, 2: 500, 3: 50, 9: 10})
    later = [1000 // batches_at(config, number, 2).per_update for number in range(epoch + 1, 7)]
    assert updates_after(config, 1000, 2, epoch) == sum(later)


def test_updates_end_at_max_steps() -> None:
    config = TrainConfig(epochs=3, batch_size=100, max_steps=7)
    assert count_updates(config, train_size=1000, replicas=1) == 7


def test_a_ramp_that_does_not_divide_is_refused_before_training() -> None:
    config = TrainConfig(epochs=3, batch_ramp={0: 100, 2: 501})
    with pytest.raises(SettingsError, match="nearest that does is 500"):
        count_updates(config, train_size=1000, replicas=2)


def test_a_run_with_few_updates_is_warned_with_what_to_do() -> None:
    assert warning_for_few_updates(31) == (
        "only 31 updates in this training; with fewer than about 200 it may learn little. "
        "Use a smaller batch, --batch-ramp (such as 0:512,2:2048) or more --epochs."
    )


def test_two_hundred_updates_are_enough() -> None:
    assert warning_for_few_updates(200) is None


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
