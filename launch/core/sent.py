"""What is sent of a user's own code, as facts of a plan.  Pure."""

from launch.core.plan import Fact
from launch.core.training.base import Training

# What a script lacks that says nothing: see trainer/SCRIPTS.md.
RESTARTS = "begins anew at a restart, unless it goes on from what it kept in $DDP_RUN_DIR (trainer.kit does)"


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
        Fact("restarts", "anew", RESTARTS, "a restart"),
    ]
