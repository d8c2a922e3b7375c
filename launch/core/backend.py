"""What a backend is, and the one table of them.

To add a backend: a folder launch/NAME with a backend.py that holds BACKEND, and a line in BACKENDS.  Everything that
differs between backends and that others must know is in that description; nobody else asks for a backend's name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from launch.core.catalog import Instance
from trainer.settings.registry import check_name

# Name -> module.  Imported on use, as a command should import its own backend only.  In the order in which they are
# listed; of those that an account can be examined for, the first is the one that launch.doctor takes unasked.
BACKENDS = {
    "local": "launch.local.backend",
    "ec2": "launch.ec2.backend",
    "sagemaker": "launch.sagemaker.backend",
    "slurm": "launch.slurm.backend",
}

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """Where one run trains.

    options: of the backend; replicas: GPUs or CPU ranks that share an update, None where only the backend knows;
    visible: CUDA_VISIBLE_DEVICES must hold so many, for one process with several GPUs.
    """

    options: Values
    replicas: int | None
    visible: int | None = None


@dataclass(frozen=True)
class Demand:
    """How many GPUs a run asks for.  gpus None: the options say it.  on_cpu: a process stands for a GPU."""

    options: Values
    strategy: str
    gpus: int | None
    on_cpu: bool = False


@dataclass(frozen=True)
class Backend:
    """What other parts of the toolkit know of a way to run a job.

    about: one line for `python -m launch`; options: the model of its settings; defaults: of the training, where they
    differ from the trainer's.
    is_billed: each run has a price and a time limit that bounds it.
    shares_folders: it writes into a run folder of ours, so no results are fetched; others have a job folder.
    runs_here: its ranks run on this machine, where they are started: a script need not be sent.
    place: which machines a number of GPUs means.  Raises SettingsError for a number they cannot make.
    machine: the instance type that options name; None where they name none.
    rehearsal: "module:function" that opens a rehearsal of it; empty: it cannot be rehearsed.
    needs_wait_flag: its launcher returns at once unless it is given --wait.
    outlives_launcher: a job of its goes on where a signal ends its launcher; its `stop JOB` ends it.
    marks_children: its jobs end with whoever launched them, and are found by their environment.
    looks_up: its launcher looks things up to plan a job, such as prices, and may refuse it then.
    examination: module with an EXAMINATION, what its jobs need of the AWS account; empty: launch.doctor knows nothing.
    holding: "module:function" that names the jobs that hold something in a region, each with the command that stops it;
    empty: none does.
    held_s: seconds for which the run in a folder has held its machines so far; None: as long as its launcher ran.
    batch: "module:function" that submits several of its jobs as one, see job.Batch; empty: each by itself.
    """

    name: str
    about: str
    options: type[BaseModel]
    place: Callable[[Demand], Place]
    machine: Callable[[Values], Instance | None] = lambda options: None
    defaults: Values = field(default_factory=dict)
    is_billed: bool = False
    shares_folders: bool = False
    runs_here: bool = False
    rehearsal: str = ""
    needs_wait_flag: bool = False
    outlives_launcher: bool = False
    marks_children: bool = True
    looks_up: bool = True
    examination: str = ""
    holding: str = ""
    held_s: Callable[[Path], float | None] = lambda folder: None
    batch: str = ""

    @property
    def module(self) -> str:
        return f"launch.{self.name}"

    @property
    def command(self) -> str:
        return f"python -m {self.module}"


def find(name: str) -> Backend:
    """The backend of that name.  Raises SettingsError with the nearest name if there is none."""
    check_name("backend", name, BACKENDS)
    backend: Backend = import_module(BACKENDS[name]).BACKEND
    return backend


def all_with(wanted: Callable[[Backend], bool]) -> list[str]:
    """The names of the backends that `wanted` accepts, in the order of the table."""
    return [name for name in BACKENDS if wanted(find(name))]
