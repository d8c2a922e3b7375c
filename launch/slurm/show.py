"""A plan, for a reader and for a program.  Pure."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from launch.slurm.planner import SlurmPlan


def as_text(made: SlurmPlan) -> str:
    """The plan for a reader, with the script."""
    width = max(len(label) for label, _ in made.rows)
    lines = [made.title, "", *(f"  {label:<{width}}  {text}" for label, text in made.rows)]
    lines += ["", f"{shlex.join(made.command)}", "", *(f"  {line}".rstrip() for line in made.script.splitlines())]
    if made.edf:
        lines += ["", "edf.toml:", *(f"  {line}" for line in made.edf.splitlines())]
    if made.running:
        lines += ["", f"already in the queue: job {made.running.id}, {made.running.state}"]
    if made.is_done:
        lines += ["", f"already done: {made.placed.folder}"]
    for word, sentences in (("warning", made.warnings), ("problem", made.problems)):
        lines += ["", *(f"{word}: {sentence}" for sentence in sentences)] if sentences else []
    return "\n".join(lines)


def as_json(made: SlurmPlan) -> str:
    """The plan for a program."""
    content: Mapping[str, Any] = {
        "title": made.title,
        "job": made.placed.name,
        "folder": str(made.placed.folder),
        "facts": dict(made.rows),
        "command": list(made.command),
        "script": made.script,
        "edf": made.edf,
        "running": made.running.id if made.running else None,
        "done": made.is_done,
        "warnings": list(made.warnings),
        "problems": [str(problem) for problem in made.problems],
    }
    return json.dumps(content, indent=2)
