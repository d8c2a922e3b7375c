"""What is sent of a user's own code, as facts of a plan.  Pure."""

import re
from collections.abc import Sequence

from launch.core.earlier import Earlier, restarts
from launch.core.plan import Fact
from launch.core.training.base import Training

KEPT = "what it writes to $DDP_RUN_DIR, and nothing else"


def facts(train: Training, earlier: Sequence[Earlier] = ()) -> list[Fact]:
    """The plan's facts about a script; empty without one.  earlier: jobs of it, the newest first."""
    source = train.source
    if source is None:
        return []
    value = {
        "files": len(source.files),
        "bytes": source.bytes,
        "sent_bytes": len(source.archive.content),
        "sha256": source.digest,
        "requirements": source.requirements or None,
    }
    text = (
        f"{len(source.files)} files of {source.top}, {len(source.archive.content):,} bytes, SHA-256 {source.digest:.16}"
    )
    packages = f"those of {source.requirements} that the image lacks, installed at the start"
    return [
        Fact("script_source", value, text, "script"),
        Fact("packages", source.requirements or None, packages if source.requirements else "those of the image"),
        Fact("kept", "$DDP_RUN_DIR", KEPT, "kept of it"),
        Fact("restarts", *restarts(earlier), "a restart"),
    ]


_DIGEST = re.compile(r"--digest[ ,]([0-9a-f]{64})")


def edited(then: str, now: str) -> str:
    """Says so where two texts with a script's command differ only in its source; empty where they do not.

    For the user who edits a file and gives the same command again: that is another job.
    """
    old, new = _DIGEST.search(then), _DIGEST.search(now)
    if not (old and new) or old[1] == new[1] or _DIGEST.sub("", then, 1) != _DIGEST.sub("", now, 1):
        return ""
    return f"the files of its source were changed since (SHA-256 {old[1]:.12} then, {new[1]:.12} now)"
