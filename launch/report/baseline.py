"""The run that the others are compared with, where the user named one.  Pure."""

from collections.abc import Sequence
from pathlib import Path

from launch.core.run import Run
from launch.report.largebatch import Comparison
from launch.report.points import Point
from launch.report.series import Series
from trainer.errors import SettingsError
from trainer.settings.registry import did_you_mean


def baseline_of(results: Sequence[Point], name: str, runs: Sequence[Run]) -> Point:
    """The point of the run with that name, or with that folder.  Raises SettingsError for none, and for several."""
    meant = [point for point in results if any(_is_named(run, name) for run in point.runs)]
    if len(meant) > 1:
        folders = [str(run.folder) for point in meant for run in point.runs if _is_named(run, name)]
        raise SettingsError(f"--baseline {name} is the name of several runs; give the folder of one: "
                            f"{', '.join(folders)}.")  # fmt: skip
    if meant:
        return meant[0]
    raise _unknown(name, [run.name for run in runs])


def _unknown(name: str, names: Sequence[str]) -> SettingsError:
    if name in names:
        return SettingsError(f"--baseline {name} has no measured epoch; name a run that has, or leave it out.")
    return SettingsError(f"--baseline {name}: no run has that name{did_you_mean(name, names) or '.'}")


def _is_named(run: Run, name: str) -> bool:
    return run.name == name or run.folder.resolve() == Path(name).resolve()


def check_used(name: str | None, base: Point | None, series: Sequence[Series], compared: Comparison | None) -> None:
    """Raises SettingsError for a baseline that nothing can be compared with."""
    used = any(one.base is base for one in series) or (compared and base in compared.trials[0].points)
    if base and series and not used:
        raise SettingsError(
            f"--baseline {name} trained {base.per_gpu:,} images per GPU, {base.per_update:,} per update, and no series "
            "has that model, data set and batch; name a run of a series, or leave it out."
        )
