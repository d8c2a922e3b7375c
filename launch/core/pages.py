"""Pages of receipts, reports and the console: the templates and the style of infra/, and charts as pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from launch.core.drawing.charts import Bars, Chart, alt
from launch.core.drawing.picture import as_svg, data_uri
from launch.core.drawing.timeline import seconds

BASE = "pages/base.css"


def environment(**filters: Callable[..., Any]) -> Environment:
    """The templates of infra/ by their paths there.  Text is escaped, and an unknown name is an error."""
    made = Environment(
        loader=PackageLoader("infra", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"seconds": seconds, **filters}
    return made


def asset(name: str) -> str:
    """A style or script of infra/, such as BASE."""
    return files("infra").joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Picture:
    """A chart for an <img>."""

    name: str
    title: str
    src: str  # a data URI
    alt: str
    is_wide: bool
    note: str


def pictures(charts: Iterable[Chart]) -> list[Picture]:
    return [picture(chart) for chart in charts]


@lru_cache(maxsize=64)  # a page that is polled draws a chart only after its data have changed
def picture(chart: Chart) -> Picture:
    """Draw the chart."""
    return picture_of(chart, as_svg(chart))


def picture_of(chart: Chart, svg: str) -> Picture:
    """The picture of a chart that has been drawn."""
    return Picture(chart.name, chart.title, data_uri(svg), alt(chart), isinstance(chart, Bars), chart.note)
