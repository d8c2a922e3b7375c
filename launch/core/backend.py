"""What a backend is, and the one table of them.

To add a backend: a folder launch/NAME with a backend.py that holds BACKEND, and a line in BACKENDS.  Everything that
others must know about a backend is in that description; no other module compares names of backends.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from launch.core import catalog
from launch.core.catalog import Instance
from launch.core.options import split
from trainer.errors import SettingsError, check_name
from trainer.settings.argparser import home_path

# Name -> module, in the order of listings.  Imported on use, as a command should import its own backend only.
# launch.doctor's default is the first with an examination.
BACKENDS = {
    "local": "launch.local.backend",
    "ec2": "launch.ec2.backend",
    "sagemaker": "launch.sagemaker.backend",
    "slurm": "launch.slurm.backend",
}

Values = Mapping[str, Any]


def adopt_gpus(values: Values, own: str, least: int = 0) -> dict[str, Any]:
    """`values` with the GPUs of the `instance_type` in them as the setting `own`, a number per machine, unless given.

    least: for a type without GPUs.  Raises SettingsError for an unknown type.
    """
    adopted = dict(values)
    kinds = split(adopted.pop("instance_type", None) or ())
    if kinds:
        adopted.setdefault(own, str(catalog.find(kinds[0]).gpus or least))
    return adopted


def single_type(values: Values, default: str) -> Instance:
    """The instance type in `values`, or the default one.  Raises SettingsError for several types or an unknown one."""
    names = split(values.get("instance_type", default))
    if len(names) != 1:
        raise SettingsError("instance_type: the runs of a sweep are compared, so each needs one type; give only one.")
    return catalog.find(names[0])


def adopt_folder(values: Values) -> dict[str, Any]:
    """`values` with `data` as --data-dir, if it is a folder of this machine."""
    adopted = dict(values)
    if home_path(str(adopted.get("data"))).is_dir():
        adopted.setdefault("data_dir", adopted.pop("data"))
    return adopted


@dataclass(frozen=True)
class Place:
    """Where one run trains."""

    options: Values  # of the backend
    replicas: int | None  # GPUs or CPU ranks that share an update; None where only the backend knows
    visible: int | None = None  # how many devices CUDA_VISIBLE_DEVICES must hold, for one process with several GPUs


@dataclass(frozen=True)
class Demand:
    """How many GPUs a run asks for."""

    options: Values
    strategy: str
    gpus: int | None  # None: as the options have it
    on_cpu: bool = False  # a process stands for a GPU


@dataclass(frozen=True)
class Backend:
    """What other parts of the toolkit know of a way to run a job."""

    name: str
    about: str  # one line for `python -m launch`
    options: type[BaseModel]  # the model of its settings
    # Which machines a number of GPUs means.  Raises SettingsError for a number they cannot make.
    place: Callable[[Demand], Place]
    machine: Callable[[Values], Instance | None] = lambda options: None  # the instance type that options name, if any
    # The settings of a job file in this backend's own words; what it cannot use stays as it is.
    adopt: Callable[[Values], Values] = lambda values: values
    defaults: Values = field(default_factory=dict)  # of the training, where they differ from the trainer's
    is_billed: bool = False  # each run has a price, and a time limit that bounds it
    # It writes into a local run folder, so no results are fetched; others have a job folder.
    shares_folders: bool = False
    runs_here: bool = False  # its ranks run on this machine, so a script need not be uploaded
    rehearsal: str = ""  # "module:function" that opens a rehearsal of it; empty: it cannot be rehearsed
    outlives_launcher: bool = False  # its jobs go on when a signal ends their launcher; `stop JOB` ends them
    marks_children: bool = True  # its jobs end with their launcher, and are found by their environment
    looks_up: bool = True  # planning a job needs look-ups, such as of prices, and may fail
    # Module with an EXAMINATION, what its jobs need of the AWS account; empty: launch.doctor cannot examine it.
    examination: str = ""
    # "module:function" that lists the active jobs of a region, each with the command that stops it; empty: none.
    active_jobs: str = ""
    # Seconds for which the run in a folder has held its machines so far; None: as long as its launcher ran.
    held_s: Callable[[Path], float | None] = lambda folder: None
    # Whether its launcher returns at once with these options: then a sweep submits all runs before it follows one.
    returns_at_once: Callable[[Any], bool] = lambda where: False
    batch: str = ""  # "module:function" that submits several of its jobs as one, see job.Batch; empty: one by one

    @property
    def module(self) -> str:
        return f"launch.{self.name}"

    @property
    def command(self) -> str:
        return f"python -m {self.module}"


def ways_to(backend: Backend, gpus: int) -> list[dict[str, Any]]:
    """The options that give a job so many GPUs, those with the fewest machines first."""
    usual = backend.machine({})
    if usual is None:
        return [dict(backend.place(Demand({}, "ddp", gpus)).options)]
    types = [one for one in _family(usual) if one.gpus and gpus % one.gpus == 0]
    return [{"nodes": gpus // one.gpus, "instance_type": one.name} for one in types]


def _family(usual: Instance) -> list[Instance]:
    """Of the types like `usual`, the cheapest with each number of GPUs, those with most of them first."""
    family = usual.name.partition(".")[0]
    known = [one for one in catalog.load().values() if one.name.partition(".")[0] == family]
    by_gpus = {one.gpus: one for one in sorted(known, key=lambda one: -one.usd_per_hour)}
    by_gpus[usual.gpus] = usual
    return sorted(by_gpus.values(), key=lambda one: -one.gpus)


def find(name: str) -> Backend:
    """The backend of that name.  Raises SettingsError with the nearest name if there is none."""
    check_name("backend", name, BACKENDS)
    backend: Backend = import_module(BACKENDS[name]).BACKEND
    return backend


def all_with(condition: Callable[[Backend], bool]) -> list[str]:
    """The names of the backends that meet `condition`, in the order of the table."""
    return [name for name in BACKENDS if condition(find(name))]
