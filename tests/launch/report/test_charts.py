"""The pictures: what they show, in which units, and that they can be read."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from PIL import Image

from launch.core.drawing.charts import LINES, Bars, Chart, Lines, lines_of
from launch.core.drawing.picture import COLOURS, MARKERS, STYLES, _lay_out, _look, figure_of, save
from launch.core.runs import Run
from launch.report import findings
from launch.report.page import all_charts
from tests.launch.report.made import EVERYTHING, SCALED, run


def charts(*runs: Run) -> dict[str, Chart]:
    return {one.name: one for one in all_charts(findings.find(runs)) if not isinstance(one, str)}


def missing(*runs: Run) -> list[str]:
    return [one for one in all_charts(findings.find(runs)) if isinstance(one, str) and one]


ALL = charts(*EVERYTHING)
NAMES = ["time_per_epoch", "speedup", "efficiency", "weak_scaling", "amdahl", "gustafson", "breakdown",
         "compute_communication", "all_reduce", "memory", "cost_per_epoch", "cost_per_accuracy", "loss", "accuracy",
         "accuracy_over_time", "accuracy_over_epochs", "large_batch", "large_batch_gap"]  # fmt: skip
UNITS = re.compile(r"\((s|ms|×|%|% of ideal|MiB|USD|GB/s|USD per percentage point|percentage points|nats|"  # noqa: RUF001
                   r"cross-entropy, nats|images per update)\)(, log)?$|^GPUs(, log)?$|^epoch$|"
                   r"images per (GPU|update)$")  # fmt: skip


def test_everything_that_is_measured_is_drawn() -> None:
    assert list(ALL) == NAMES
    assert missing(*EVERYTHING) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_axis_has_a_label_with_a_unit(name: str) -> None:
    (axes,) = figure_of(ALL[name]).axes

    assert UNITS.search(axes.get_xlabel()), axes.get_xlabel()
    label = axes.get_ylabel() or axes.get_title("left")
    assert UNITS.search(label), label


@pytest.mark.parametrize("name", NAMES)
def test_no_text_lies_on_another_or_outside(name: str) -> None:
    check_apart(figure_of(ALL[name]))


def test_few_rows_leave_room_for_what_their_labels_mean() -> None:
    chart = ALL["breakdown"]
    assert isinstance(chart, Bars)

    check_apart(figure_of(replace(chart, rows=chart.rows[:1])))


def check_apart(drawn: Figure) -> None:
    for _ in range(2):
        drawn.draw_without_rendering()
    boxes = [(text, box) for text, box in texts(drawn) if box.width > 0]

    for place, (text, box) in enumerate(boxes):
        assert box.x0 > -1, text
        assert box.y0 > -1, text
        assert box.x1 < drawn.bbox.width + 1, text
        assert box.y1 < drawn.bbox.height + 1, text
        for other, second in boxes[:place]:
            assert not box.padded(-1).overlaps(second.padded(-1)), (text, other)


def texts(drawn: Figure) -> list[tuple[str, "object"]]:
    """Every text that is seen, with its place."""
    (axes,) = drawn.axes
    shown = [
        axes.xaxis.label,
        axes.yaxis.label,
        axes._left_title,
        *axes.texts,
        *(t for legend in drawn.legends for t in legend.texts),
    ]
    low, high = sorted(axes.get_xlim())
    bottom, top = sorted(axes.get_ylim())
    shown += [t.label1 for t in axes.xaxis.get_major_ticks() if low <= t.get_loc() <= high]
    shown += [t.label1 for t in axes.yaxis.get_major_ticks() if bottom <= t.get_loc() <= top]
    if drawn._suptitle is not None:
        shown.append(drawn._suptitle)
    return [(text.get_text(), text.get_window_extent()) for text in shown if text.get_text()]


@pytest.mark.parametrize("dpi", [72, 300])
def test_labels_stay_in_the_picture_at_every_resolution(dpi: int) -> None:
    chart = ALL["breakdown"]
    assert isinstance(chart, Bars)
    with _look():
        drawn = figure_of(
            replace(chart, rows=tuple(replace(bar, label=f"{bar.label}, ramp 0:64,4:512") for bar in chart.rows))
        )
        _lay_out(drawn)
        drawn.set_dpi(dpi)
        drawn.draw_without_rendering()

        assert min(label.get_window_extent().x0 for label in drawn.axes[0].get_yticklabels()) > 0


def test_the_speedup_is_drawn_against_a_grey_dashed_ideal() -> None:
    (axes,) = figure_of(ALL["speedup"]).axes
    ideal, first = axes.get_lines()[:2]

    assert (ideal.get_label(), ideal.get_color(), list(ideal.get_ydata())) == (
        "ideal: n times one, weak and strong", "#767676", [1, 2, 4, 8],
    )  # fmt: skip
    assert ideal.is_dashed()
    assert list(first.get_xdata()) == [1, 2, 4, 8]
    assert list(first.get_ydata()) == pytest.approx([1, 1.8182, 3.0769, 4.7059], abs=1e-4)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "4", "8"]
    assert axes.get_yscale() == "log"


def test_the_parts_of_an_update_are_as_long_as_they_took() -> None:
    chart = ALL["breakdown"]
    assert isinstance(chart, Bars)

    assert chart.parts == ("data wait", "forward", "backward", "communication", "optimizer")
    place, alone = next((place, row) for place, row in enumerate(chart.rows) if row.label.startswith("1 "))
    assert alone.parts == pytest.approx((10, 30, 50, 0, 10))
    assert alone.text == "100 ms"
    (axes,) = figure_of(chart).axes
    assert list(axes.containers[1])[place].get_width() == pytest.approx(30)


def test_a_range_is_drawn_where_there_is_one() -> None:
    again = [replace(one, name=f"{one.name}-again", settings={**one.settings, "seed": 1},
                     epochs=tuple({**e, "images_per_s": 0.9 * e["images_per_s"]} for e in one.epochs))
             for one in SCALED]  # fmt: skip

    assert len(figure_of(charts(*SCALED)["speedup"]).axes[0].collections) == 0
    assert len(figure_of(charts(*SCALED, *again)["speedup"]).axes[0].collections) > 0


def test_lines_differ_in_marker_and_style_and_not_in_colour_alone() -> None:
    (axes,) = figure_of(ALL["accuracy_over_epochs"]).axes
    lines = [line for line in axes.get_lines() if line.get_label()[0] != "_"]

    assert len({line.get_marker() for line in lines}) == len(lines) > 2
    assert len(COLOURS) == len(MARKERS) == len(STYLES) == LINES


def test_what_is_not_measured_is_listed() -> None:
    said = missing(run("a", device="CPU", accuracy=None))

    assert len(said) == 15
    assert all(": " in line for line in said)
    assert [line for line in said if "--usd-per-gpu-hour" in line] != []


def test_more_lines_than_are_distinguishable_are_left_to_the_table() -> None:
    chart = ALL["speedup"]
    assert isinstance(chart, Lines)

    shown, note = lines_of([chart.lines[0]] * 9)

    assert (len(shown), note) == (7, "7 of 9 series; all are in the table.")


def test_a_picture_is_one_column_of_a_paper_at_300_dpi_and_the_same_again(tmp_path: Path) -> None:
    first = save(ALL["speedup"], tmp_path, ["png", "svg", "pdf"])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    assert save(ALL["speedup"], tmp_path, ["png", "svg", "pdf"]) == first
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert set(before) == {"speedup.png", "speedup.svg", "speedup.pdf"}
    with Image.open(tmp_path / "speedup.png") as picture:
        assert picture.width == 1050  # 3.5 inches
        assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)
