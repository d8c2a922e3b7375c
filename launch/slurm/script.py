"""The script that sbatch gets: its #SBATCH lines, and infra/slurm/job.sbatch filled in.  Pure."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.core import templates
from launch.slurm import container
from launch.slurm.names import LOG, comment_of
from launch.slurm.options import SlurmOptions
from trainer.config import TrainConfig
from trainer.settings.flags import to_argv

# How long after its first task's end srun lets the others go on: a rank that never started is waited for no longer.
WAIT_S = 180
# srun's tasks are torchrun's nodes.
PER_NODE = 'PET_NODE_RANK=$SLURM_NODEID PET_MASTER_ADDR=$MASTER_ADDR PET_MASTER_PORT=$MASTER_PORT exec "$@"'


@dataclass(frozen=True)
class Placed:
    """A job with everything resolved.  folder: absolute, as all paths of train are in a container; python: what runs
    the trainer; processes: per node.
    """

    name: str
    train: TrainConfig
    options: SlurmOptions
    folder: Path
    cwd: Path
    python: str
    processes: int

    @property
    def is_torchrun(self) -> bool:
        return self.options.launcher == "torchrun"

    @property
    def tasks_per_node(self) -> int:
        return 1 if self.is_torchrun else self.processes

    @property
    def cpus_of_task(self) -> int | None:
        """--cpus-per-task is per process; a task of torchrun's has all of a node's."""
        each = self.options.cpus_per_task
        return each and each * self.processes // self.tasks_per_node

    @property
    def needed(self) -> list[Path]:
        """Folders that a container must have."""
        reads = self.train.dataset not in ("synthetic", "digits")
        return [self.folder, self.cwd, *([self.train.data_dir] if reads else [])]


def render(placed: Placed) -> str:
    """The whole script."""
    body = templates.fill(
        "slurm/job.sbatch",
        {
            "FOLDER": str(placed.folder),
            "MAX_RESTARTS": str(placed.options.max_restarts),
            "SETUP": placed.options.setup,
            "STEP": step(placed),
        },
    )
    shebang, rest = body.split("\n", 1)
    return "\n".join([shebang, *(f"#SBATCH {_quoted(flag)}" for flag in directives(placed)), rest])


def directives(placed: Placed) -> list[str]:
    """sbatch's flags."""
    o, folder = placed.options, str(placed.folder).replace("%", "%%")
    given = {
        "gpus-per-node": o.gpus_per_node and ":".join([*([o.gpu_type] if o.gpu_type else []), str(o.gpus_per_node)]),
        "cpus-per-task": placed.cpus_of_task,
        "mem": o.mem,
        "time": o.time,
        "partition": o.partition,
        "account": o.account,
        "qos": o.qos,
        "constraint": o.constraint,
        "nodelist": ",".join(o.nodelist),
        "exclude": ",".join(o.exclude),
        "reservation": o.reservation,
        "mail-user": o.mail,
        "mail-type": "END,FAIL,REQUEUE" if o.mail else None,
    }
    return [
        f"--job-name={placed.name}",
        f"--comment={comment_of(placed.name)}",
        f"--nodes={o.nodes}",
        f"--ntasks-per-node={placed.tasks_per_node}",
        *(f"--{name}={value}" for name, value in given.items() if value),
        *(["--exclusive"] if o.exclusive else []),
        f"--chdir={placed.cwd}",
        f"--output={folder}/{LOG}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{o.save_before_s}",
        # Two launches of one name at the same moment must not write into one folder.
        "--dependency=singleton",
        *shlex.split(o.sbatch),
    ]


def step(placed: Placed) -> list[str]:
    """srun with its flags, and what each of its tasks runs."""
    cpus = placed.cpus_of_task
    return [
        "srun",
        # Ranks end by themselves, with a word of why; killed, they could not.
        "--kill-on-bad-exit=0",
        f"--wait={WAIT_S}",
        # Since Slurm 22.05 srun does not take it from sbatch.
        *([f"--cpus-per-task={cpus}"] if cpus else []),
        *container.srun_flags(placed.options, placed.folder, placed.cwd, placed.needed),
        *(_torchrun(placed) if placed.is_torchrun else []),
        *([] if placed.is_torchrun else [placed.python]),
        *("-m", "trainer", *to_argv(placed.train)),
    ]


def _torchrun(placed: Placed) -> Sequence[str]:
    return [
        *("bash", "-c", PER_NODE, "torchrun", placed.python, "-m", "trainer.torchrun"),
        *("--nnodes", str(placed.options.nodes), "--nproc-per-node", str(placed.processes)),
    ]


def _quoted(flag: str) -> str:
    return shlex.quote(flag) if any(c in flag for c in " \t#'\"\\") else flag
