"""Turn points into runs with checked settings and options.  Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from launch.core import backend as backends
from launch.core.backend import Backend, Demand, Place
from launch.core.job_file import user_defaults
from launch.core.secrets import check_no_secret
from launch.core.training.base import Training
from launch.core.training.classifier import classifier_of
from launch.core.training.options import END, OUR_SETTINGS, SHARED, ScriptOptions, find_script
from launch.core.training.script import Script
from launch.sweep.grid import PREFIX, Point, SweepFile, is_argument, points
from trainer.errors import SettingsError, did_you_mean, one_line
from trainer.settings import flags
from trainer.settings.argparser import as_text, flag, home_path

# --lr and -l as written, lr= for programs that accept lr=0.1, and lr for --lr.
ARGUMENT = r"(--?)?[A-Za-z_][\w.-]*=?"

Values = Mapping[str, Any]
# Given on every command line, as backends have different defaults, and a sweep should be the same on each.
ALWAYS_GIVEN = {"model": "resnet18", "dataset": "digits", "batch_size": 128, "progress": False}
# Set by the sweep for each run.
RESERVED = ("job_name", "run_dir", "checkpoint_dir", "resume", "wait", "detach", "fetch")
# Alternative settings of the images per update, and of what trains: the one given closest to the run counts.
RIVALS = (("batch_size", "global_batch_size", "batch_ramp"), ("script", "module"))
# Options that determine how many machines and GPUs a run uses.
SIZES = ("nodes", "instance_type", "nproc_per_node", "gpus_per_node")
PER_NODE = ("nproc_per_node", "gpus_per_node")


def named(values: Values) -> dict[str, Any]:
    """The script's arguments among `values`, by their own names.  Raises SettingsError for invalid names."""
    found = {name.removeprefix(PREFIX): value for name, value in values.items() if is_argument(name)}
    for name in found:
        if not re.fullmatch(ARGUMENT, name):
            raise SettingsError(
                f"{one_line(PREFIX + name)} names no argument; write args.lr for --lr, args.-l for -l, or args.lr= for "
                "lr=."
            )
    return found


def command_line(fixed: Sequence[str], values: Values) -> tuple[str, ...]:
    """The script's command line.  fixed: words for every run; values: of named().

    Raises SettingsError for an argument in both, and for a value that a command line cannot hold.
    """
    words = list(fixed)
    for name, value in values.items():
        flag = _flag(name)
        if any(_gives(word, flag) for word in fixed):
            raise SettingsError(
                f"{PREFIX}{name} and args: {' '.join(fixed)} both give the script {flag.rstrip('=')}; leave one of "
                "them out."
            )
        words += _words(name, flag, value)
    return tuple(words)


def _flag(name: str) -> str:
    """lr -> --lr; names with leading hyphens or a trailing = are unchanged."""
    return name if name.startswith("-") or name.endswith("=") else f"--{name}"


def _gives(word: str, flag: str) -> bool:
    """Whether a word of the fixed arguments is that flag; - and _ are different, as for argparse."""
    return word.startswith(flag) if flag.endswith("=") else word.partition("=")[0] == flag


def _words(name: str, flag: str, value: Any) -> list[str]:
    """The words of an argument: only the flag for true, none for false and null, several for a list."""
    if isinstance(value, dict):
        raise SettingsError(f"{PREFIX}{name}: {value} is no argument; give a text, a number, true, false or a list.")
    if flag.endswith("="):
        return [f"{flag}{_text(value)}"]
    if value is None or isinstance(value, bool):
        return [flag] if value else []
    if isinstance(value, (list, tuple)):
        return [flag, *map(_text, value)]
    return [flag, _text(value)] if re.fullmatch(r"-\w", flag) else [f"{flag}={_text(value)}"]


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return ",".join(map(_text, value)) if isinstance(value, (list, tuple)) else str(value)


@dataclass(frozen=True)
class Trained:
    """A run's training."""

    train: Training
    given: Values  # settings on the launcher's command line
    arguments: tuple[str, ...] = ()  # the arguments after --


@dataclass(frozen=True)
class Trainings:
    """Creates the trainings of runs, reading a script's source only once.  cwd: the launchers' working directory."""

    cwd: Path
    _found: dict[tuple[ScriptOptions, bool, Any], Script] = field(default_factory=dict)

    def of(self, values: Values, *, is_sent: bool) -> Trained:
        """The training of a run with these values.  is_sent: the source is uploaded to other machines.

        Raises SettingsError for contradictory values, and for a script that cannot be run.
        """
        own = {
            name: value for name, value in values.items() if name in ScriptOptions.model_fields and value is not None
        }  # fmt: skip
        (built,) = flags.build(own, [ScriptOptions])
        options, arguments = cast(ScriptOptions, built), named(values)
        if not options.is_given:
            _check_without_script(own, arguments)
            return _trainers(values)
        _check_with_script(options, values)
        words = command_line(options.args, arguments)
        shared = {name: values[name] for name in SHARED if values.get(name) is not None}
        script = self._script(options.model_copy(update={"args": ()}), shared, is_sent=is_sent)
        given = {name: value for name, value in own.items() if name != "args"}
        return Trained(replace(script, arguments=(*script.arguments, *words)), {**given, **shared}, words)

    def _script(self, options: ScriptOptions, shared: Values, *, is_sent: bool) -> Script:
        key = (options, is_sent, tuple(sorted((name, str(path)) for name, path in shared.items())))
        if key not in self._found:
            folders = {name: self.cwd / home_path(path) for name, path in shared.items()}
            self._found[key] = find_script(options, (), folders, self.cwd, is_sent=is_sent)
        return self._found[key]


def _trainers(values: Values) -> Trained:
    given = {name: value for name, value in values.items() if name in OUR_SETTINGS}
    always = dict(ALWAYS_GIVEN)
    if given.get("global_batch_size") is not None:
        del always["batch_size"]
    given = {**always, **given}
    return Trained(classifier_of(given), given)


def _check_without_script(own: Values, arguments: Values) -> None:
    if given := [*own, *(f"args.{name}" for name in arguments)]:
        raise SettingsError(f"{given[0]} is for a script of your own; give `script: FILE` as well.")


def _check_with_script(options: ScriptOptions, values: Values) -> None:
    if options.script is not None and options.module is not None:
        raise SettingsError("script and module both say what to run; give one of them.")
    for name in values:
        if name in OUR_SETTINGS and name not in SHARED and not is_argument(name):
            raise SettingsError(
                f"{name} is a setting of our trainer, which the script replaces; if the script has one of that name, "
                f"write args.{name}."
            )


@dataclass(frozen=True)
class Planned:
    """One run."""

    name: str
    point: Values
    backend: Backend
    train: Training
    given: Values  # the training's settings on its command line
    arguments: tuple[str, ...]  # of a script
    options: Values  # the backend's, on its command line
    where: BaseModel
    replicas: int | None  # GPUs or CPU ranks that share an update, if known
    visible: int | None  # how many GPUs its process may see; None: all

    @property
    def argv(self) -> list[str]:
        """The flags of its settings and options, in the form --name=value, as values may begin with hyphens."""
        return [f"{flag(name)}={as_text(value)}" for name, value in {**self.options, **self.given}.items()]

    def words(self, *more: str) -> list[str]:
        """The launcher's arguments: its flags, `more` flags, then the script's arguments."""
        return [*self.argv, *more, *((END, *self.arguments) if self.arguments else ())]

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the training."""
        return self.train.record

    @property
    def shown_options(self) -> dict[str, Any]:
        """The backend's options that differ from defaults, and those for the number of machines and GPUs."""
        options = self.where.model_dump(mode="json")
        sizes = {name: options[name] for name in SIZES if name in options}
        return {**sizes, **self.where.model_dump(mode="json", exclude_defaults=True)}


def plan_runs(file: SweepFile, overrides: Values, gpus: Sequence[int]) -> list[Planned]:
    """Every run of the sweep, checked.  overrides, gpus: replace the file's fixed values and numbers of GPUs.

    Raises SettingsError with the run's name for unknown names and invalid values.
    """
    file = _with_gpus(file, gpus)
    all_points = points(file)
    for name in overrides:
        if any(name in point.values for point in all_points):
            raise SettingsError(f"{flag(name)} is what {file.name} compares; change it in its file, or leave it out.")
    fixed = {**_without_rivals(file.fixed, overrides), **overrides}
    runs, trainings = [], Trainings(Path.cwd())
    for point in all_points:
        try:
            runs.append(_planned(file, point, fixed, trainings))
        except SettingsError as error:
            raise SettingsError(f"run {point.name}: {error}") from error
    for run in runs:
        check_no_secret({**run.train.settings, **dict(run.where)})  # without the run's name, which contains values
    return runs


def _without_rivals(values: Values, given: Values) -> dict[str, Any]:
    """`values` without alternatives of settings in `given`."""
    ruled_out: set[str] = set()
    for rivals in RIVALS:
        if set(rivals) & set(given):
            ruled_out |= set(rivals)
    return {name: value for name, value in values.items() if name not in ruled_out}


def _with_gpus(file: SweepFile, gpus: Sequence[int]) -> SweepFile:
    """Set the numbers of GPUs, as an axis if they are several."""
    if not gpus:
        return file
    if len(gpus) == 1 and "gpus" not in file.grid:
        runs = tuple({**run, "gpus": gpus[0]} if "gpus" in run else run for run in file.runs)
        return replace(file, fixed={**file.fixed, "gpus": gpus[0]}, runs=runs)
    if not file.grid:
        raise SettingsError(f"{file.name} lists its runs one by one; --gpus takes one number for all of them.")
    return replace(file, grid={**file.grid, "gpus": list(gpus)})


def _planned(file: SweepFile, point: Point, fixed: Values, trainings: Trainings) -> Planned:
    backend = backends.find(file.backend)
    values = {**_without_rivals(fixed, point.values), **point.values}
    gpus = _count(values.pop("gpus", None))
    options = user_defaults([backend.options], backend) | dict(file.options.get(backend.name, {}))
    _refuse_unknown({**options, **values}, backend)
    options |= {name: value for name, value in values.items() if name in backend.options.model_fields}
    trained = trainings.of(values, is_sent=not backend.runs_here)
    train = trained.train
    _check_count(train, gpus)
    place = place_run(backend, Demand(options, train.strategy, gpus, on_cpu=train.device == "cpu"))
    (where,) = flags.build(place.options, [backend.options])
    replicas = None if train.starts_own else place.replicas
    if replicas is not None:
        train.check_replicas(replicas)
    return Planned(
        point.name, point.values, backend, train, trained.given, trained.arguments, place.options, where, replicas,
        place.visible,
    )  # fmt: skip


def _check_count(train: Training, gpus: int | None) -> None:
    if train.strategy == "dp" and train.device == "cpu":
        raise SettingsError("strategy dp splits over GPUs; leave the point out on a CPU.")
    if train.starts_own and gpus is not None:
        raise SettingsError(
            f"gpus: {gpus} is a number of processes, and with `processes: one` the script starts its own; compare "
            "nodes or instance types in its place."
        )


def place_run(backend: Backend, demand: Demand) -> Place:
    """Resolve the demand into machines of `backend`.  Raises SettingsError if it is contradictory or impossible."""
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
    known = ["gpus", *OUR_SETTINGS, *backend.options.model_fields, *ScriptOptions.model_fields]
    for name in values:
        if is_argument(name):
            continue
        if name in RESERVED:
            raise SettingsError(f"{name!r} is set by the sweep for each run; leave it out.")
        if name not in known:
            raise SettingsError(f"unknown setting {name!r} for the trainer and {backend.module}"
                                f"{did_you_mean(name, known) or '.'}")  # fmt: skip
