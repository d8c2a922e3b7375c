"""Renders the script for sbatch: its #SBATCH lines, and infra/slurm/job.sbatch filled in.  Pure."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.core import templates
from launch.core.shell import interpreter
from launch.core.training.base import Training
from launch.slurm import container
from launch.slurm.names import LOG, comment_of
from launch.slurm.options import SlurmOptions
from trainer.contract import NODE_GPUS
from trainer.errors import SettingsError

# After the first task has ended, srun lets the others run for this long; they normally end by themselves.
WAIT_S = 180
# With torchrun, each srun task is one of its nodes.
PER_NODE = 'PET_NODE_RANK=$SLURM_NODEID PET_MASTER_ADDR=$MASTER_ADDR PET_MASTER_PORT=$MASTER_PORT exec "$@"'


@dataclass(frozen=True)
class ResolvedJob:
    """A job with all defaults resolved."""

    name: str
    train: Training
    options: SlurmOptions
    folder: Path  # absolute, as all paths of train in a container
    cwd: Path
    python: str  # runs the trainer
    processes: int  # per node

    @property
    def is_torchrun(self) -> bool:
        return self.options.launcher == "torchrun"

    @property
    def tasks_per_node(self) -> int:
        return 1 if self.is_torchrun else self.processes

    @property
    def cpus_of_task(self) -> int | None:
        """CPUs of an srun task.  --cpus-per-task is per process; with torchrun a task has all processes of a node."""
        if self.options.cpus_per_task is None:
            return None
        return self.options.cpus_per_task * self.processes // self.tasks_per_node

    @property
    def needed_folders(self) -> list[Path]:
        """Folders that a container must mount."""
        found = self.train.folders
        if "init_from" in found:
            found["init_from"] = found["init_from"].parent
        return [self.folder, self.cwd, *found.values()]


def render(job: ResolvedJob) -> str:
    """The whole script."""
    body = templates.fill(
        "slurm/job.sbatch",
        {
            "NAME": job.name,
            "FOLDER": str(job.folder),
            "CHECKPOINTS": str(job.train.checkpoint_dir or job.folder),
            "MAX_RESTARTS": str(job.options.max_restarts),
            "SETUP": job.options.setup,
            "STEP": step(job),
        },
    )
    return with_directives(body, directives(job))


def with_directives(script: str, flags: Sequence[str]) -> str:
    """The script with these sbatch flags after its first line."""
    shebang, rest = script.split("\n", 1)
    return "\n".join([shebang, *(f"#SBATCH {_quoted(flag)}" for flag in flags), rest])


def directives(job: ResolvedJob) -> list[str]:
    """sbatch's flags."""
    options, folder = job.options, str(job.folder).replace("%", "%%")
    flags = [
        f"--job-name={job.name}",
        f"--comment={comment_of(job.name)}",
        f"--nodes={options.nodes}",
        f"--ntasks-per-node={job.tasks_per_node}",
        *(f"--{name}={value}" for name, value in _given(job).items() if value),
    ]
    if options.exclusive:
        flags.append("--exclusive")
    return [
        *flags,
        f"--chdir={job.cwd}",
        f"--output={folder}/{LOG}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{options.save_before_s}",
        # Simultaneous launches under one name must not write into the same folder.
        "--dependency=singleton",
        *shlex.split(options.sbatch),
    ]


def _given(job: ResolvedJob) -> dict[str, Any]:
    """The values of flags that are omitted if not given."""
    options, gpus = job.options, job.options.gpus_per_node
    typed = f"{options.gpu_type}:{gpus}" if gpus and options.gpu_type else gpus
    return {
        "gpus-per-node": None if options.gres else typed,
        "gres": f"gpu:{typed}" if options.gres and typed else None,
        "cpus-per-task": job.cpus_of_task,
        "mem": options.mem,
        "time": options.time,
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "nodelist": ",".join(options.nodelist),
        "exclude": ",".join(options.exclude),
        "reservation": options.reservation,
        "mail-user": options.mail,
        "mail-type": "END,FAIL,REQUEUE" if options.mail else None,
    }


def step(job: ResolvedJob) -> list[str]:
    """The srun command with its flags and the command of each task."""
    words = [
        "srun",
        # Ranks end by themselves and print the reason, which they could not do if killed.
        "--kill-on-bad-exit=0",
        f"--wait={WAIT_S}",
        f"--export={','.join(_exported(job))}",
    ]
    if job.cpus_of_task:
        # Since Slurm 22.05 srun does not take it from sbatch.
        words.append(f"--cpus-per-task={job.cpus_of_task}")
    words += container.srun_flags(job.options, job.folder, job.cwd, job.needed_folders)
    words += _torchrun(job) if job.is_torchrun else interpreter(job.python, job.cwd)
    return [*words, *job.train.words]


def _exported(job: ResolvedJob) -> list[str]:
    """srun's flag to export the script's whole environment, even at sites that set --export=NONE for sbatch.

    Without it the ranks would find neither each other nor bash.
    """
    if job.train.health_check and job.options.gpus_per_node:
        # The right network of the cluster is not known here.
        return ["ALL", f"{NODE_GPUS}={job.options.gpus_per_node}"]
    return ["ALL"]


def _torchrun(job: ResolvedJob) -> list[str]:
    return [
        *("bash", "-c", PER_NODE, "torchrun", *interpreter(job.python, job.cwd), "-m", "trainer.torchrun"),
        *("--nnodes", str(job.options.nodes), "--nproc-per-node", str(job.processes)),
    ]


def _quoted(flag: str) -> str:
    """An sbatch flag quoted for its line.  Raises SettingsError for a line break: the rest would be run."""
    if not flag.isprintable():
        name, _, text = flag.partition("=")
        raise SettingsError(f"{text!a}, of sbatch's {name}, has characters that do not print; rename it.")
    return shlex.quote(flag) if any(c in flag for c in " \t#'\"\\") else flag
