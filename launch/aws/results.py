"""Fetches the results of a job from its folder in S3."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launch.aws.client import Aws
from launch.aws.names import Folder, is_path
from launch.aws.progress import get_outcome
from launch.core.jobs import Choice, Results
from launch.core.terminal import Say
from trainer.errors import MachineError, TrainerError


def fetch_run(aws: Aws, folder: Folder, target: Path, choice: Choice, rest: str) -> Results:
    """Copy the chosen files of the job's run folder, and its outcome.json, into `target`.

    Each file is replaced once the whole of it is here; those that are here already are skipped.  rest: the command that
    fetches what is left.  Raises AwsError, MachineError.
    """
    listed = {item["Key"].removeprefix(folder.run): item for item in aws.objects(folder.bucket, folder.run)}
    sizes = {name: int(item["Size"]) for name, item in listed.items() if is_path(name)}
    chosen = {name: sizes[name] for name in sorted(choice(sizes))}
    try:
        for name in chosen:
            if not _is_here(target / name, listed[name]):
                aws.download(folder.bucket, folder.run + name, target / name)
                os.utime(target / name, (_written(listed[name]),) * 2)
        if outcome := get_outcome(aws, folder):
            outcome.write(target)
    except OSError as error:
        raise MachineError(f"cannot write to {error.filename or target} ({error.strerror}).") from error
    return Results(target, chosen, dict(sizes.items() - chosen.items()), rest)


def _is_here(path: Path, item: Mapping[str, Any]) -> bool:
    """Whether the file was fetched before, or is newer here: a file that the user has changed is kept."""
    if not path.is_file():
        return False
    known, written = path.stat(), _written(item)
    return known.st_mtime > written or (known.st_mtime == written and known.st_size == int(item["Size"]))


def _written(item: Mapping[str, Any]) -> float:
    return float(item["LastModified"].timestamp())


def fetch_at_end(fetch: Callable[[], Results], say: Say, again: str) -> None:
    """Fetch the results of a job that is done and show where they are.  A failure is a warning: the job is done.

    again: the command that fetches them later.
    """
    try:
        say(str(fetch()))
    except TrainerError as error:
        say(f"warning: the results are not all here: {error}\nto fetch them again:\n  {again}")
    except KeyboardInterrupt:
        say(f"the results are not all here; to fetch them:\n  {again}")
