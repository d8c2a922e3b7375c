# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.config`: where the user's own defaults are, and what they set."""

import sys
from collections.abc import Sequence
from typing import Any

from launch.core import user_file
from launch.core.backend import BACKENDS, find
from launch.core.job_file import Models, user_defaults
from launch.core.terminal import say
from launch.core.training.options import TRAINS
from launch.core.verbs import coded
from trainer.contract import Exit
from trainer.settings.argparser import as_text, complete, plain_parser
from trainer.settings.hidden import HIDDEN, is_secret

ABOUT = """\
Shows the file with your own defaults for every job, and what it sets on each backend.  Job files and flags count more.
"""
EXAMPLE = """\
there is no such file; it may set what a job file sets, such as:

  region: eu-central-1
  tensorboard: true
  sagemaker:
    role: training"""


def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns its exit code."""
    parser = plain_parser("python -m launch.config", ABOUT)
    complete(parser)
    parser.parse_args(list(argv))

    def act() -> int:
        say(str(user_file.path()))
        say(_settings() if user_file.path().is_file() else EXAMPLE)
        return Exit.DONE

    return coded(act)


def _settings() -> str:
    """A line for each setting, with the backends that use it.  Raises SettingsError for one that none knows."""
    lines = dict[str, list[str]]()
    for name in BACKENDS:
        models: Models = [find(name).options, *TRAINS]
        for setting, value in user_defaults(models, find(name)).items():
            lines.setdefault(f"{setting}: {_shown(value)}", []).append(name)
    return "\n".join(f"  {line}  ({', '.join(names)})" for line, names in lines.items())


def _shown(value: Any) -> str:
    """A setting's value, without what looks like a secret, as the value of a variable."""
    return ",".join(map(_harmless, as_text(value).split(",")))


def _harmless(word: str) -> str:
    name, _, text = word.partition("=")
    return f"{name}={HIDDEN}" if is_secret(name, text) else word


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
