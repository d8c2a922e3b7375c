"""launch.core.drawing.curves: what is drawn of the records of a training."""

from launch.core.drawing.charts import Lines
from launch.core.drawing.curves import MAX_POINTS, curves, learning

EPOCHS = [
    {"epoch": 1, "train_loss": 2.0, "eval_top1": 0.5, "images_per_s": 100.0, "forward_ms": 3.0, "backward_ms": 6.0},
    {"epoch": 2, "train_loss": 1.5, "eval_top1": 0.6, "images_per_s": 110.0, "forward_ms": 2.0, "backward_ms": 5.0},
]


def places(chart: Lines) -> dict[str, list[tuple[float, float]]]:
    return {line.label: [(x, y.value) for x, y in line.points] for line in chart.lines}


def test_a_training_has_charts_of_loss_accuracy_speed_and_the_parts_of_an_update() -> None:
    charts = {chart.name: places(chart) for chart in curves(EPOCHS)}

    assert charts == {
        "loss": {"training": [(1.0, 2.0), (2.0, 1.5)]},
        "top1": {"test": [(1.0, 50.0), (2.0, 60.0)]},
        "speed": {"": [(1.0, 100.0), (2.0, 110.0)]},
        "step": {"forward": [(1.0, 3.0), (2.0, 2.0)], "backward": [(1.0, 6.0), (2.0, 5.0)]},
    }
    assert [chart.name for chart in learning(EPOCHS)] == ["loss", "top1"]


def test_charts_show_an_epoch_that_was_trained_again_once() -> None:
    (chart,) = curves(
        [{"epoch": 1, "train_loss": 2.0}, {"epoch": 2, "train_loss": 1.5}, {"epoch": 2, "train_loss": 1.25}]
    )

    assert places(chart) == {"training": [(1.0, 2.0), (2.0, 1.25)]}


def test_values_that_are_missing_or_no_numbers_leave_gaps() -> None:
    (chart,) = curves([{"epoch": 1}, {"epoch": 2, "train_loss": float("nan"), "train_top1": 0.5, "eval_loss": None}])

    assert places(chart) == {"training": [(2.0, 50.0)]}
    assert curves([]) == []


def test_a_script_has_a_chart_for_each_metric_with_several_values() -> None:
    records = [{"step": 10, "loss": 0.5, "train/acc": 0.1}, {"step": 20, "loss": 0.25, "train/acc": 0.2, "end": 3}]

    assert [(chart.name, chart.title, chart.x_label) for chart in curves(records)] == [
        ("metric_loss", "loss by step", "step"), ("metric_train_acc", "train/acc by step", "step"),
    ]  # fmt: skip


def test_a_long_course_is_thinned_and_keeps_its_last_value() -> None:
    (chart,) = curves([{"step": step, "loss": 1000.0 / step} for step in range(1, 100_001)])

    (line,) = chart.lines
    assert len(line.points) <= MAX_POINTS + 1
    assert line.points[-1][0] == 100_000
    assert chart.is_log_y
