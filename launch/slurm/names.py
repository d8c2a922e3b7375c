"""Identifies a job by its comment in Slurm's queue, which takes precedence, and the files in its folder.  Pure.

infra/slurm/job.sbatch uses the same file names.
"""

from pathlib import Path

from launch.aws.names import TOOLKIT

COMMENT = f"{TOOLKIT}:"

# Files in a job's folder, which is also the run folder.
SCRIPT = "job.sbatch"
LOG = "job.log"
STARTS = "starts.jsonl"  # how each start of the job ended, one line each, written by the script
STOP = "stop"  # the Slurm id of a start that must not be requeued
SPEC = "job.json"
EDF = "edf.toml"
ARCHIVE = "source.tar.gz"  # a script's source; it is unpacked, and its packages are installed, in the folder WORK
WORK = "source"
ARRAY_LOG = "array.log"  # output of an array's tasks before they become jobs


def comment_of(name: str) -> str:
    """The comment that Slurm keeps with the job."""
    return COMMENT + name


def job_in(comment: str) -> str | None:
    """The name of the toolkit's job with this comment; None for other jobs."""
    return comment.removeprefix(COMMENT) if comment.startswith(COMMENT) else None


def folder_of(name: str, cwd: Path) -> Path:
    """A job's default folder, without --run-dir."""
    return cwd / "runs" / name


def command(verb: str, job: str) -> str:
    """The command line of a verb."""
    return f"python -m launch.slurm {verb} {job}"


def next_commands(job: str, *, is_over: bool) -> list[str]:
    """The next commands for a job, shown with its status."""
    if is_over:
        return [command("logs", job)]
    return [f"{command('logs', job)} --follow", command("attach", job), command("stop", job)]
