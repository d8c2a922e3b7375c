"""How long a sweep still takes, and the line that says so."""

import io

import pytest

from launch.sweep.command import StatusLine
from launch.sweep.loop import left_s
from launch.sweep.runner import numbers


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"expected_s": {"a": 60.0, "b": 30.0}, "to_begin": ["a", "b"], "took_s": []}, 90.0),
        ({"expected_s": {}, "to_begin": ["a", "b"], "took_s": []}, None),
        ({"expected_s": {}, "to_begin": ["b", "c"], "took_s": [10.0, 20.0, 90.0]}, 40.0),
        # A third of the first run took 10 s: 20 s of it are left, and 30 s for each of the others.
        ({"expected_s": {}, "to_begin": ["b"], "took_s": [], "current": "a", "elapsed_s": 10.0, "share": 1 / 3}, 50.0),
        ({"expected_s": {"a": 60.0}, "to_begin": [], "took_s": [], "current": "a", "elapsed_s": 45.0}, 15.0),
        ({"expected_s": {"a": 60.0}, "to_begin": [], "took_s": [], "current": "a", "elapsed_s": 90.0}, 0.0),
    ],
)
def test_time_left_is_what_is_expected_or_what_runs_took(arguments: dict[str, object], expected: float | None) -> None:
    left = left_s(**arguments)  # type: ignore[arg-type]

    assert left == (None if expected is None else pytest.approx(expected))


def test_no_line_is_overwritten_where_the_output_is_no_terminal() -> None:
    file = io.StringIO()

    StatusLine(file, {"TERM": "xterm"}).show("1/2  a")

    assert file.getvalue() == ""


@pytest.mark.parametrize(
    "printed", ["epoch=" + "9" * 400, "epoch=1e-300", "epoch=-1e999", "epoch=nan"], ids=lambda text: text[:12]
)
def test_no_number_that_a_training_prints_ends_the_sweep(printed: str) -> None:
    """Which watches jobs that cost money: of 400 digits Python makes no float, and of 1e301 seconds no duration."""
    epoch = numbers(printed)["epoch"]
    assert left_s({"a": 8.9e13}, ["a"], []) is None
    assert epoch is None or left_s({}, [], [], "a", elapsed_s=10.0, share=epoch / 3) is None
