"""From points to runs that can be started, each with settings and options that have been checked.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import BaseModel

from launch.core import backend as backends
from launch.core.backend import Backend, Demand, Place
from launch.sweep.grid import Point, points
from launch.sweep.spec import Spec
from trainer.batches import check_batches
from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.settings import flags
from trainer.settings.argparser import as_text, flag
from trainer.settings.checks import check
from trainer.settings.registry import did_you_mean

Values = Mapping[str, Any]

# Set by the sweep for each run.
OURS = ("job_name", "run_dir", "checkpoint_dir", "resume", "wait", "detach", "fetch")
# Settings of the images per update: the one that is given closest to the run counts.
RIVALS = (("batch_size", "global_batch_size", "batch_ramp"),)
# Options that determine on how much a run trains.
SIZES = ("nodes", "instance_type", "nproc_per_node", "gpus_per_node")
PER_NODE = ("nproc_per_node", "gpus_per_node")
# On every command line: backends have defaults of their own for these, and a sweep means the same on each.
ALWAYS_GIVEN = {"model": "resnet18", "dataset": "digits", "batch_size": 128, "progress": False}


@dataclass(frozen=True)
class Planned:
    """One run.  given: the trainer's settings on its command line; options: the backend's on its command line.

    replicas: GPUs or CPU ranks that share an update, if known; visible: GPUs that its process may see, None: all.
    """

    name: str
    point: Values
    backend: Backend
    train: TrainConfig
    given: Values
    options: Values
    where: BaseModel
    replicas: int | None
    visible: int | None

    @property
    def argv(self) -> list[str]:
        """The flags of its settings and options; a value may begin with hyphens."""
        return [f"{flag(name)}={as_text(value)}" for name, value in {**self.options, **self.given}.items()]

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the trainer."""
        return self.train.model_dump(mode="json")

    @property
    def shown_options(self) -> dict[str, Any]:
        """The backend's options that differ from its defaults, and those that determine on how much it trains."""
        options = self.where.model_dump(mode="json")
        sizes = {name: options[name] for name in SIZES if name in options}
        return {**sizes, **self.where.model_dump(mode="json", exclude_defaults=True)}


def plan_runs(spec: Spec, overrides: Values, gpus: Sequence[int]) -> list[Planned]:
    """Every run of the sweep, checked.  overrides: values for what the file fixes; gpus: instead of the file's.

    Raises SettingsError that names the run, for names that do not exist and values that cannot work.
    """
    spec = _with_gpus(spec, gpus)
    all_points = points(spec)
    for name in overrides:
        if any(name in point.values for point in all_points):
            raise SettingsError(f"{flag(name)} is what {spec.name} compares; change it in its file, or leave it out.")
    fixed = {**_without_rivals(spec.fixed, overrides), **overrides}
    runs = []
    for point in all_points:
        try:
            runs.append(_planned(spec, point, fixed))
        except SettingsError as error:
            raise SettingsError(f"run {point.name}: {error}") from error
    return runs


def _without_rivals(values: Values, given: Values) -> dict[str, Any]:
    """`values` without those that `given` sets in another way."""
    ruled_out: set[str] = set()
    for rivals in RIVALS:
        if set(rivals) & set(given):
            ruled_out |= set(rivals)
    return {name: value for name, value in values.items() if name not in ruled_out}


def _with_gpus(spec: Spec, gpus: Sequence[int]) -> Spec:
    """The sweep with these numbers of GPUs, as an axis if they are several."""
    if not gpus:
        return spec
    if len(gpus) == 1 and "gpus" not in spec.grid:
        runs = tuple({**run, "gpus": gpus[0]} if "gpus" in run else run for run in spec.runs)
        return replace(spec, fixed={**spec.fixed, "gpus": gpus[0]}, runs=runs)
    if not spec.grid:
        raise SettingsError(f"{spec.name} lists its runs one by one; --gpus takes one number for all of them.")
    return replace(spec, grid={**spec.grid, "gpus": list(gpus)})


def _planned(spec: Spec, point: Point, fixed: Values) -> Planned:
    backend = backends.find(spec.backend)
    values = {**_without_rivals(fixed, point.values), **point.values}
    gpus = _count(values.pop("gpus", None))
    options = dict(spec.options.get(backend.name, {}))
    _refuse_unknown({**options, **values}, backend)
    options |= {name: value for name, value in values.items() if name in backend.options.model_fields}
    given = _given(values)
    train = _checked(given)
    place = place_run(backend, Demand(options, train.strategy, gpus, on_cpu=train.device == "cpu"))
    (where,) = flags.build(place.options, [backend.options])
    if place.replicas is not None:
        check_batches(train, place.replicas)
    return Planned(point.name, point.values, backend, train, given, place.options, where, place.replicas, place.visible)


def _given(values: Values) -> dict[str, Any]:
    """The trainer's settings among `values`, with those that are always given."""
    given = {name: value for name, value in values.items() if name in TrainConfig.model_fields}
    always = dict(ALWAYS_GIVEN)
    if given.get("global_batch_size") is not None:
        del always["batch_size"]
    return {**always, **given}


def _checked(given: Values) -> TrainConfig:
    (built,) = flags.build(given, [TrainConfig])
    train = cast(TrainConfig, built)
    check(train)
    if train.strategy == "dp" and train.device == "cpu":
        raise SettingsError("strategy dp splits over GPUs; leave the point out on a CPU.")
    return train


def place_run(backend: Backend, demand: Demand) -> Place:
    """Which machines the demand means on `backend`.  Raises SettingsError where it contradicts itself or cannot be."""
    gpus = demand.gpus
    if gpus is not None:
        for name in PER_NODE:
            if name in demand.options:
                raise SettingsError(f"gpus and {name} both set the number of GPUs; give one of them.")
    if demand.strategy == "single" and (gpus or 1) > 1:
        raise SettingsError(f"strategy single trains on one GPU, not on {gpus}; take ddp, or leave the point out.")
    return backend.place(demand)


def _count(gpus: Any) -> int | None:
    if gpus is None or (isinstance(gpus, int) and not isinstance(gpus, bool) and gpus >= 1):
        return gpus
    raise SettingsError(f"gpus: {gpus} must be a whole number of at least 1.")


def _refuse_unknown(values: Values, backend: Backend) -> None:
    known = ["gpus", *TrainConfig.model_fields, *backend.options.model_fields]
    for name in values:
        if name in OURS:
            raise SettingsError(f"{name!r} is set by the sweep for each run; leave it out.")
        if name not in known:
            raise SettingsError(f"unknown setting {name!r} for the trainer and {backend.module}"
                                f"{did_you_mean(name, known) or '.'}")  # fmt: skip
