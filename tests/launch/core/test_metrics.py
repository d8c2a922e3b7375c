"""The metrics of scripts that nobody here wrote: any names, with or without steps and epochs."""

from typing import Any

import pytest

from launch.aws.progress import in_words, newest_of
from launch.core import metrics


def test_a_step_that_was_done_again_counts_as_it_was_last() -> None:
    records: list[dict[str, Any]] = [
        {"step": 1, "loss": 3.0},
        {"step": 2, "loss": 2.0},
        {"step": 2, "loss": 1.0},
        {"lr": 1},
        {"lr": 1},
    ]

    assert metrics.merged(records) == [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 1.0}, {"lr": 1}, {"lr": 1}]


@pytest.mark.parametrize(
    ("records", "axis", "places"),
    [
        ([{"epoch": 1, "loss": 4.0}, {"epoch": 2, "loss": 3.0}], "epoch", [(1, 4.0), (2, 3.0)]),
        ([{"epoch": 1, "step": 10, "loss": 4.0}, {"epoch": 1, "step": 9, "loss": 3.0}], "step", [(9, 3.0), (10, 4.0)]),
        ([{"loss": 4.0}, {"loss": 3.0}, {"acc": 1}], "", [(1, 4.0), (2, 3.0)]),
        ([{"step": 5, "acc": 1}, {"epoch": 1, "loss": 2.0}, {"epoch": 1, "loss": 1.0}], "epoch", [(1, 1.0)]),
        ([{"step": 1, "loss": None}], "", []),
    ],
)
def test_a_metric_is_drawn_over_what_its_records_are_counted_by(
    records: list[dict[str, Any]], axis: str, places: list[tuple[float, float]]
) -> None:
    assert metrics.axis_of(records, "loss") == axis
    assert metrics.course(records, "loss", axis) == places


@pytest.mark.parametrize(
    ("name", "best"),
    [("loss", 1.0), ("val_loss", 1.0), ("eval/perplexity", 1.0), ("accuracy", 3.0), ("val.f1", 3.0), ("lr", None)],
)
def test_the_best_is_known_where_the_name_says_which_way(name: str, best: float | None) -> None:
    assert metrics.best([{name: 1.0}, {name: 3.0}, {"other": 9}], name) == best


def test_progress_shows_the_newest_of_each_metric_and_no_foreign_text() -> None:
    records: list[dict[str, Any]] = [
        {"epoch": 1, "val_loss": 0.5}, {"loss": 0.123456, "step": 40, "\x1b[2J": 1.0, "note": "\x1b[2J"},
        {"loss": None}, {"huge": float("inf")},
    ]  # fmt: skip

    record = newest_of(records)

    assert record is not None
    assert in_words(record, "?") == "epoch 1, step 40, val_loss 0.5, loss 0.1235"


@pytest.mark.parametrize("impossible", [float("nan"), float("inf"), True, "1", None], ids=str)
def test_what_nothing_can_count_with_is_left_out_of_each_look(impossible: object) -> None:
    records = [{"step": 1, "loss": impossible}, {"step": 2, "loss": 2.0}, {"step": impossible, "loss": 3.0}]

    assert metrics.best(records[:2], "loss") == 2.0
    assert metrics.course(records, "loss", "step") == [(2, 2.0)]
    assert metrics.place_of({"step": impossible}) is None
