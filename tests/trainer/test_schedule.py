"""The learning rate over a run, as literal numbers."""

from typing import Any

import pytest

from trainer.batches import batches_at
from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.schedule import count_updates, learning_rate, peak_lr, updates_after, warning_for_few_updates


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
