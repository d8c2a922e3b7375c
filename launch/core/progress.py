"""The progress of a training: the lines of metrics.jsonl in its job's folder, and the newest in words.  Reads only."""

import json
from collections.abc import Mapping
from typing import Any

from launch.core.aws import Aws
from launch.core.names import Folder
from trainer.contract import METRICS

Record = Mapping[str, Any]


def records(aws: Aws, folder: Folder) -> list[Record]:
    """The complete lines of the run's metrics.jsonl; empty if there is none yet.  Raises AwsError."""
    found = []
    for line in (aws.read(folder.bucket, folder.run + METRICS) or b"").decode(errors="replace").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:  # cut off
            continue
    return found


def newest(aws: Aws, folder: Folder) -> Record | None:
    """The last of records()."""
    found = records(aws, folder)
    return found[-1] if found else None


def in_words(record: Record, epochs: str) -> str:
    """A record for a reader, without values that are not numbers.  epochs: of the whole training."""
    formats = (("loss", "train_loss", ".4f"), ("accuracy", "train_top1", ".1%"), ("test accuracy", "eval_top1", ".1%"))
    parts = [f"epoch {record['epoch']}/{epochs}"]
    parts += [f"{label} {record[key]:{how}}" for label, key, how in formats if record.get(key) is not None]
    return ", ".join([*parts, f"{record['images_per_s']:,.0f} images/s, {record['epoch_s']:.1f} s"])
