# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.doctor`: the command line."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from pydantic import BaseModel, Field

from launch.core import backend, job_file
from launch.core.backend import all_with
from launch.core.options import Options
from launch.core.training.options import SCRIPT_SECTION, TRAINS, split, training_of
from launch.core.verbs import coded
from trainer.config import SECTIONS
from trainer.errors import SettingsError, check_name
from trainer.settings import flags
from trainer.settings.argparser import Help

if TYPE_CHECKING:
    from launch.doctor.commands import Runtime

PROG = "python -m launch.doctor"
ABOUT = """\
Shows what the AWS account lacks for a job, and the command that fixes it.  Takes the job's own flags, or its file.
Without --fix it only reads, and its requests cost less than a cent.

  python -m launch.doctor --nodes 2 --dataset cifar10
  python -m launch.doctor --nodes 2 --dataset cifar10 --fix    # runs the commands one by one, each after a yes
  python -m launch.doctor --for sagemaker --instance-type ml.g5.12xlarge
  python -m launch.doctor --job job.yaml --json

Each line is ok, warning (the job would run), missing (it would not) or unknown (these credentials may not look, or AWS
did not answer).  Exit code 0: nothing is missing; 4: something is; 2: a setting is wrong.
"""


# Backends with an examination; the first is the default.
EXAMINED = tuple(all_with(lambda backend: bool(backend.examination)))
if TYPE_CHECKING:
    Examined = str
else:
    Examined = Literal[EXAMINED]  # shown by --help; others are refused
# Short forms -> flags.
SHORT = {"--for": "--backend", "--job": "--config", "--json": "--format=json"}


class DoctorOptions(Options):
    """What is examined, and how it is shown."""

    backend: Examined = Field(EXAMINED[0], description="where the job would run; --for is short for it")
    fix: bool = Field(False, description="run the commands that fix what is missing, each after a yes")
    yes: bool = Field(False, description="with --fix: run them all without asking")
    format: Literal["table", "json"] = Field("table", description="output format; --json is short for --format json")


def _spelt_out(argv: list[str]) -> list[str]:
    """The command line with every short form written out: --for ec2 or --for=ec2 becomes --backend=ec2."""
    words = []
    for word in argv:
        name, equals, value = word.partition("=")
        words.append(SHORT.get(name, name) + equals + value)
    return words


def _backend_in(argv: list[str]) -> str:
    """The backend in a spelt-out command line, valid or not; the default if there is none."""
    backend = EXAMINED[0]
    for place, word in enumerate(argv):
        if word == "--backend" and place + 1 < len(argv):
            backend = argv[place + 1]
        elif word.startswith("--backend="):
            backend = word.partition("=")[2]
    return backend


def main(argv: Sequence[str], runtime: "Runtime | None" = None) -> int:
    """Runs the command line and returns its exit code."""

    def act() -> int:
        words = _spelt_out(list(argv))
        check_name("backend", _backend_in(words), EXAMINED)
        chosen = backend.find(_backend_in(words))
        words, arguments = split(words)
        sections = {
            "backend": "launch.doctor",
            next(iter(chosen.options.model_fields)): chosen.module,
            **SCRIPT_SECTION,
        }
        models: list[type[BaseModel]] = [DoctorOptions, chosen.options, *TRAINS]
        given = flags.given(words, models, Help(PROG, ABOUT, {**sections, **SECTIONS}, chosen.defaults))
        settings = job_file.settings(given, models, chosen)
        options, where, script, config = flags.build(settings.values(), models)
        train = training_of(script, config, settings.given, arguments, Path.cwd(), chosen)
        from launch.doctor import commands  # slow to import, and --help does not need it

        subject, asked = commands.subject_of(chosen, train, where), cast(DoctorOptions, options)
        if asked.fix and asked.format == "json":
            raise SettingsError("--fix runs commands, which print text; leave --json out.")
        if asked.fix:
            return commands.fix(subject, runtime or commands.Runtime(), yes=asked.yes)
        return commands.examine(subject, asked.format, runtime or commands.Runtime())

    return coded(act)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
