"""The page that compares runs: the figures of launch.report, of the runs that are ticked."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from launch.console.web import page, world_of
from launch.core import runs
from launch.core.metrics import shown
from launch.core.pages import pictures
from launch.report import page as report
from launch.report.commands import found
from launch.report.options import ReportOptions
from trainer.errors import SettingsError

LISTED_S = 10.0  # for which the list of runs is kept


@dataclass(frozen=True)
class Row:
    """A run that can be ticked."""

    place: str  # its folder, below that of all runs
    run: runs.Run

    @property
    def trains(self) -> str:
        """What it trains, and on what, as far as it is recorded."""
        found = [self.run.settings.get(name) for name in ("script", "model", "dataset", "strategy")]
        return ", ".join(str(value) for value in found if value)


def compare(request: Request) -> Response:
    """All runs with records, and the figures of the ticked ones."""
    world = world_of(request)
    rows = world.cache.get("runs to compare", lambda: listed(world.runs), LISTED_S)
    ticked = request.query_params.getlist("run")
    places = {row.place for row in rows}
    if gone := [place for place in ticked if place not in places]:
        raise SettingsError(f"there is no run {gone[0]} in {world.runs}; tick those that the page lists.")
    folders = [world.runs / place for place in ticked]
    return page(
        request,
        "compare.html.j2",
        rows=rows,
        ticked=ticked,
        folder=str(world.runs),
        command=shlex.join(["python", "-m", "launch.report", *map(str, folders), "--out", "report"]),
        shown=shown,
        **(_figures(folders) if folders else {"finding": ""}),
    )


def _figures(folders: Sequence[Path]) -> dict[str, object]:
    """The values of report/content.html.j2."""
    results = found(folders, ReportOptions.model_validate({}))
    charts, missing = report.drawable(results)
    return report.content(results, pictures(charts), missing)


def listed(folder: Path) -> list[Row]:
    """The runs in and below `folder` that have records, the newest first; none if there is no such folder."""
    try:
        known, _ = runs.readable([folder])
    except SettingsError:  # no folder, or no run in it, yet
        return []
    rows = [Row(str(run.folder.relative_to(folder)), run) for run in known if run.epochs]
    return sorted(rows, key=lambda row: row.run.started, reverse=True)


ROUTES = [Route("/compare", compare)]
