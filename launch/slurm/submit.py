"""Carries a plan out: writes the job folder and submits the script, once per name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from launch.core.clock import Clock
from launch.core.errors import Ended
from launch.core.perform import Say
from launch.slurm.follow import Follower, Tail
from launch.slurm.listing import job_id
from launch.slurm.lookup import Slurm, environment, read_folder
from launch.slurm.names import BACKEND, EDF, LOG, SCRIPT, SPEC, command
from launch.slurm.planner import SlurmPlan
from launch.slurm.script import directives
from trainer.contract import Exit
from trainer.errors import SettingsError


@dataclass(frozen=True)
class World:
    """What a submission acts on, and how it talks.  env: of the user, which the job gets."""

    env: Mapping[str, str]
    clock: Clock
    say: Say


def launch(made: SlurmPlan, world: World) -> int:
    """Submits the job unless it is in the queue or done already; returns the exit code.  Raises TrainerError."""
    name, folder, say = made.placed.name, made.placed.folder, world.say
    slurm = Slurm(environment(world.env, directives(made.placed)))
    if made.is_done and not made.running:
        say(f"job {name} is done; results: {folder}.  For another run give another --job-name.")
        return Exit.DONE
    log = folder / LOG
    start = log.stat().st_size if log.exists() else 0  # what earlier submissions said
    if made.running:
        say(f"job {name} is in the queue already, as {made.running.id}")
    else:
        for warning in made.warnings:
            say(f"warning: {warning}")
        say(f"job {name} is submitted as {_submit(made, slurm)}; it writes to {folder}")
    if made.placed.options.wait:
        return end_with(Follower(slurm, world.clock, say), made, Tail(log, start))
    for verb, what in (
        ("status", "how it is"),
        ("logs --follow", "what it says"),
        ("attach", "follow it to its end, and end with its exit code"),
        ("stop", "end it; it saves"),
    ):
        say(f"  {command(verb, name):<60} {what}")
    return Exit.DONE


def end_with(follower: Follower, made: SlurmPlan, tail: Tail) -> int:
    """Follows the job; Ctrl-C ends only that."""
    name = made.placed.name
    try:
        over = follower.follow(name, made.placed.folder, tail)
    except KeyboardInterrupt:
        follower.say(f"the job goes on; end it with {command('stop', name)}")
        raise
    if over.code != Exit.DONE:
        raise Ended(over.sentence, over.code)
    follower.say(f"job {name}: {over.sentence}")
    return Exit.DONE


def _submit(made: SlurmPlan, slurm: Slurm) -> str:
    """Writes the folder, submits the script, and returns Slurm's id."""
    folder = made.placed.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SCRIPT).write_text(made.script)
        if made.edf is not None:
            (folder / EDF).write_text(made.edf)
        earlier = read_folder(folder).ids
    except OSError as error:
        raise SettingsError(
            f"{folder} cannot be written ({error.strerror}); start from a folder on a file system that the nodes share "
            "and you may write to, or give --run-dir."
        ) from error
    submitted = job_id(slurm.tell(*made.command, options=made.placed.options))
    spec = {"job": made.placed.name, "backend": BACKEND, "ids": [*earlier, submitted]}
    temporary = folder / f"{SPEC}.tmp"
    temporary.write_text(json.dumps(spec, indent=1) + "\n")
    temporary.replace(folder / SPEC)
    return submitted
