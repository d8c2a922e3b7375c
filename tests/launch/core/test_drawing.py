"""launch.core.drawing: what reports and receipts share.  tests/launch/report/test_charts.py looks at the pictures."""

import base64
import xml.etree.ElementTree as ET

import pytest

from launch.core.drawing.charts import Bar, Bars, Chart, Line, Lines, alt, exactly
from launch.core.drawing.picture import as_svg, data_uri, figure_of

CURVES = (Line("training", ((1, exactly(2.0)), (2, exactly(1.5)))), Line("test", ((1, exactly(2.2)),)))
LOSS = Lines("loss", "Loss", "epoch", "loss (nats)", CURVES)
MEMORY = Bars("memory", "Memory", "peak (MiB)", "rank", ("",), (Bar("0", (812.0,), "812 MiB"),))


@pytest.mark.parametrize("chart", [LOSS, MEMORY])
def test_a_chart_is_the_same_svg_each_time(chart: Chart) -> None:
    svg = as_svg(chart)

    assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert as_svg(chart) == svg
    assert base64.b64decode(data_uri(svg).partition(",")[2]).decode() == svg


def test_readers_who_do_not_see_the_picture_get_its_values() -> None:
    assert alt(LOSS) == "Loss. loss (nats) over epoch. training: 2.00 at 1, 1.50 at 2; test: 2.20 at 1."
    assert alt(MEMORY) == "Memory. Bars of peak (MiB). 0: 812 MiB."


ODD = ["$x^{$", "$\\foo$", "$$", "a$b", "\x1b[2J", "\x0b", "\ufffe", "\udcff", "\U0001f680", "<b>&", "x" * 10_000]


@pytest.mark.parametrize("name", ODD, ids=lambda name: ascii(name)[:9])
def test_any_name_can_be_drawn(name: str) -> None:
    """A run's folder or a setting may be a stranger's, and matplotlib takes names for formulas, which it fails on."""
    lines = Lines(name, name, name, name, (Line(name, ((1, exactly(2.0)),)),))
    bars = Bars(name, name, name, name, ("",), (Bar(name, (1.0,), name),))

    for chart in (lines, bars):
        assert ET.fromstring(as_svg(chart)).tag.endswith("svg")


def test_a_name_that_begins_with_an_underscore_is_in_the_legend() -> None:
    (axes,) = figure_of(Lines("n", "t", "x", "y", (Line("_a$b", ((1, exactly(2.0)),)),))).axes
    assert [text.strip() for text in axes.get_legend_handles_labels()[1]] == [r"_a\$b"]
