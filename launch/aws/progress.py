"""Read a training's progress from metrics.jsonl in its job folder, and its outcome; put the newest in words.

A script may write the file, too: records that are not the trainer's are skipped.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from launch.aws.client import SMALL_BYTES, Aws
from launch.aws.names import Folder
from launch.core import metrics
from launch.core.estimate.forecast import hours
from launch.core.terminal import Say
from trainer import outcome as outcomes
from trainer.contract import METRICS, PACE, RESUME_PATTERN
from trainer.errors import TrainerError
from trainer.outcome import Outcome
from trainer.script.pace import Pace, parse

Record = Mapping[str, Any]

ALWAYS = ("epoch", "images_per_s", "epoch_s")
SOMETIMES = (("loss", "train_loss", ".4f"), ("accuracy", "train_top1", ".1%"), ("eval accuracy", "eval_top1", ".1%"))
LARGEST = 1e15
# How much of metrics.jsonl is read for its newest record, and for all of them, some 100,000.
NEWEST_BYTES, ALL_BYTES = 4 * SMALL_BYTES, 16 * SMALL_BYTES


def records(aws: Aws, folder: Folder, most: int = NEWEST_BYTES) -> list[Record]:
    """The records in the last `most` bytes of the run's metrics.jsonl; empty if there is none yet.

    Raises AwsError.
    """
    found = list[Record]()
    text = aws.read(folder.bucket, folder.run + METRICS, most, end=True) or b""
    for line in text.decode(errors="replace").splitlines():
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):  # cut off
            continue
        if isinstance(content, dict):
            found.append(content)
    return found


def _is_epoch(content: Record) -> bool:
    """Whether it has the fields that in_words() shows."""
    always = all(_is_number(content.get(key)) for key in ALWAYS)
    return always and all(content.get(key) is None or _is_number(content[key]) for _, key, _ in SOMETIMES)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < LARGEST  # False for NaN


def newest(aws: Aws, folder: Folder) -> Record | None:
    """The newest of records() that in_words() can show."""
    return newest_of(records(aws, folder))


def newest_of(found: Sequence[Record]) -> Record | None:
    """The trainer's newest complete record; for a user's own script the newest value of each metric."""
    epoch = next(filter(_is_epoch, reversed(found)), None)
    if epoch is not None or any(_is_trainers(record) for record in found):
        return epoch
    return metrics.newest(found) or None


def pace(aws: Aws, folder: Folder, record: Record | None) -> Pace | None:
    """A script's progress and pace, if its metrics include it; None for the built-in trainer.  Raises AwsError.

    record: the newest.
    """
    return None if record is None or _is_trainers(record) else parse(aws.read(folder.bucket, folder.run + PACE))


def pace_in_words(pace: Pace, now: float | None) -> str:
    """'42% done, about 1.3 h left at its pace'.  now: by time.time(); None for a job that has ended."""
    done = f"{pace.done:.0%} done"
    left_s = None if now is None or pace.rest_s is None else pace.rest_s - max(0.0, now - pace.at)
    return done if left_s is None or left_s <= 0 else f"{done}, about {hours(left_s / 3600)} left at its pace"


def _is_trainers(content: Record) -> bool:
    return all(key in content for key in ALWAYS)


def in_words(record: Record, epochs: str) -> str:
    """A record in words.  epochs: of the whole training, for the built-in trainer."""
    if not _is_epoch(record):
        return metrics.in_words(record)
    parts = [f"epoch {record['epoch']}/{epochs}"]
    parts += [f"{label} {record[key]:{how}}" for label, key, how in SOMETIMES if record.get(key) is not None]
    return ", ".join([*parts, f"{record['images_per_s']:,.0f} images/s, {record['epoch_s']:.1f} s"])


def resumed_by_name(reason: str, job: str) -> str:
    """Replace the trainer's advice on resuming in `reason` by the launcher's flag: it finds the run by job name."""
    return RESUME_PATTERN.sub(f"give the same command with --job-name {job}", reason)


def put_outcome(aws: Aws, folder: Folder, outcome: Outcome, say: Say) -> None:
    """Write outcome.json into the job's folder.  A failure is a warning only, as the job's exit code stays."""
    content = outcome.as_json()
    try:
        aws.call("s3", "PutObject", {"Bucket": folder.bucket, "Key": folder.outcome, "Body": content})
    except TrainerError as error:
        say(f"warning: s3://{folder.bucket}/{folder.outcome} was not written: {error}")


def get_outcome(aws: Aws, folder: Folder) -> Outcome | None:
    """Read the outcome in the job's folder; None if it is missing or damaged.  Raises AwsError."""
    content = aws.read(folder.bucket, folder.outcome)
    return None if content is None else outcomes.parse(content)
