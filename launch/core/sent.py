"""What is sent of a user's own code, as facts of a plan.  Pure."""

import re

from launch.core.plan import Fact
from launch.core.training.base import Training

# What a script lacks that says nothing: see trainer/SCRIPTS.md.
RESTARTS = "begins anew at a restart, unless it goes on from what it kept in $DDP_RUN_DIR (trainer.kit does)"
KEPT = "what it writes to $DDP_RUN_DIR, and nothing else"


def facts(train: Training) -> list[Fact]:
    """The plan's facts about a script; empty without one."""
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
        Fact("restarts", "anew", RESTARTS, "a restart"),
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
