"""From points to runs that can be started: each with settings and options that have been checked.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import BaseModel

from launch.sweep.backends import OURS, options_of, place
from launch.sweep.grid import Point, points
from launch.sweep.spec import Spec
from trainer.config import TrainConfig, check, check_batches
from trainer.errors import SettingsError
from trainer.settings import flags
from trainer.settings.argparser import as_text, flag
from trainer.settings.registry import did_you_mean

Values = Mapping[str, Any]

# Settings that say how many images an update has: of those, the one that is given closest to the run counts.
RIVALS = (("batch_size", "global_batch_size", "batch_ramp"),)
# Options that say on how much a run trains.
SIZES = ("nodes", "instance_type", "nproc_per_node", "gpus_per_node")
# Said on every command line, as backends have defaults of their own for these and a sweep means the same on each.
SAID = {"model": "resnet18", "dataset": "digits", "batch_size": 128, "progress": False}


@dataclass(frozen=True)
class Planned:
    """One run.  given: its settings that are said; options: of the backend, that are said; replicas: GPUs or CPU ranks
    that share an update, if known; visible: how many GPUs its process may see, None: all.
    """

    name: str
    point: Values
    backend: str
    train: TrainConfig
    given: Values
    options: Values
    where: BaseModel
    replicas: int | None
    visible: int | None

    @property
    def argv(self) -> list[str]:
        """The flags that give its settings and options; a value may begin with hyphens."""
        return [f"{flag(name)}={as_text(value)}" for name, value in {**self.options, **self.given}.items()]

    @property
    def settings(self) -> dict[str, Any]:
        """Of the trainer, all of them."""
        return self.train.model_dump(mode="json")

    @property
    def shown_options(self) -> dict[str, Any]:
        """Those of the backend that differ from its defaults, and those that say on how much it runs."""
        told = self.where.model_dump(mode="json", exclude_defaults=True)
        everything = self.where.model_dump(mode="json")
        return {**{name: everything[name] for name in SIZES if name in everything}, **told}


def plan_runs(spec: Spec, overrides: Values, gpus: Sequence[int]) -> list[Planned]:
    """Every run of the sweep, checked.  overrides: values for what the file fixes; gpus: instead of the file's.

    Raises SettingsError that names the run, for names that do not exist and values that cannot work.
    """
    spec = _with_gpus(spec, gpus)
    found = points(spec)
    for name in overrides:
        if any(name in point.values for point in found):
            raise SettingsError(f"{flag(name)} is what {spec.name} compares; change it in its file, or leave it out.")
    fixed = {**_without_rivals(spec.fixed, overrides), **overrides}
    runs = []
    for point in found:
        try:
            runs.append(_planned(spec, point, fixed))
        except SettingsError as error:
            raise SettingsError(f"run {point.name}: {error}") from error
    return runs


def _without_rivals(values: Values, given: Values) -> dict[str, Any]:
    """`values` without those that say in another way what `given` says."""
    ruled_out = {one for rivals in RIVALS if set(rivals) & set(given) for one in rivals}
    return {name: value for name, value in values.items() if name not in ruled_out}


def _with_gpus(spec: Spec, gpus: Sequence[int]) -> Spec:
    """The sweep with these numbers of GPUs, as an axis if they are several."""
    if not gpus:
        return spec
    if len(gpus) == 1 and "gpus" not in spec.grid:
        runs = tuple({**run, **({"gpus": gpus[0]} if "gpus" in run else {})} for run in spec.runs)
        return replace(spec, fixed={**spec.fixed, "gpus": gpus[0]}, runs=runs)
    if not spec.grid:
        raise SettingsError(f"{spec.name} lists its runs one by one; --gpus takes one number for all of them.")
    return replace(spec, grid={**spec.grid, "gpus": list(gpus)})


def _planned(spec: Spec, point: Point, fixed: Values) -> Planned:
    model = options_of(spec.backend)
    own = spec.options.get(spec.backend, {})
    values = {**_without_rivals(fixed, point.values), **point.values}
    gpus = values.pop("gpus", None)
    _refuse_strangers({**own, **values}, spec.backend, model)
    given = {name: value for name, value in values.items() if name in TrainConfig.model_fields}
    said = SAID if given.get("global_batch_size") is None else {k: v for k, v in SAID.items() if k != "batch_size"}
    given = {**said, **given}
    (train,) = flags.build(given, [TrainConfig])
    train = cast(TrainConfig, train)
    check(train)
    named = {**own, **{name: value for name, value in values.items() if name in model.model_fields}}
    placed = place(spec.backend, named, train.strategy, _count(gpus), on_cpu=train.device == "cpu")
    (where,) = flags.build(placed.options, [model])
    if placed.replicas is not None:
        check_batches(train, placed.replicas)
    if train.strategy == "dp" and train.device == "cpu":
        raise SettingsError("strategy dp splits over GPUs; leave the point out on a CPU.")
    return Planned(
        point.name, point.values, spec.backend, train, given, placed.options, where, placed.replicas, placed.visible
    )


def _count(gpus: Any) -> int | None:
    if gpus is None or (isinstance(gpus, int) and not isinstance(gpus, bool) and gpus >= 1):
        return gpus
    raise SettingsError(f"gpus: {gpus} must be a whole number of at least 1.")


def _refuse_strangers(values: Values, backend: str, model: type[BaseModel]) -> None:
    known = ["gpus", *TrainConfig.model_fields, *model.model_fields]
    for name in values:
        if name in OURS:
            raise SettingsError(f"{name!r} is what the sweep decides for each run; leave it out.")
        if name not in known:
            raise SettingsError(f"unknown setting {name!r} for the trainer and launch.{backend}"
                                f"{did_you_mean(name, known) or '.'}")  # fmt: skip
