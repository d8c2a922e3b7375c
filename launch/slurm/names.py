"""What a job is known by: the comment in Slurm's queue, which is the truth, and the files of its folder.  Pure.

infra/slurm/job.sbatch knows the same files.
"""

from pathlib import Path

from launch.core.names import TOOLKIT

BACKEND = "slurm"
COMMENT = f"{TOOLKIT}:"

# Files of a job folder, which is the run's folder, too.
SCRIPT = "job.sbatch"
LOG = "job.log"
STARTS = "starts.jsonl"  # how each start of the job ended, a line each, by the script itself
STOP = "stop"  # Slurm's id of a start that must not start again
SPEC = "job.json"
EDF = "edf.toml"


def comment_of(name: str) -> str:
    """What Slurm keeps with the job."""
    return COMMENT + name


def job_in(comment: str) -> str | None:
    """The name of the toolkit's job that has this comment; None: it is somebody else's."""
    return comment.removeprefix(COMMENT) if comment.startswith(COMMENT) else None


def folder_of(name: str, cwd: Path) -> Path:
    """Where a job's folder is, unless --run-dir says otherwise."""
    return cwd / "runs" / name


def command(verb: str, job: str) -> str:
    """What to type next."""
    return f"python -m launch.slurm {verb} {job}"
