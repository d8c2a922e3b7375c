# PYTHON_ARGCOMPLETE_OK
"""`python -m launch`: lists the commands; `python -m launch NAME ...` is `python -m launch.NAME ...`."""

import runpy
import sys
from collections.abc import Sequence

from launch.core import backend
from launch.core.terminal import say
from launch.core.verbs import coded
from trainer.contract import Exit
from trainer.errors import SettingsError, did_you_mean
from trainer.settings.argparser import version

TOOLS = {
    "sweep": "run many trainings from one file; shows the price first",
    "report": "compare runs on one page: speedup, efficiency, time, cost",
    "forecast": "compare instance types before anything runs",
    "data": "publish a data set to S3 and as a snapshot, copy it, delete it",
    "image": "build the container and push it to ECR",
    "infra": "set up the AWS account, once",
    "doctor": "check what the AWS account lacks for a job, and how to fix it",
}


def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns its exit code."""
    return coded(lambda: _act(argv))


def _act(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        say(overview())
        return Exit.DONE if argv else Exit.SETTINGS
    if argv[0] == "--version":
        say(version())
        return Exit.DONE
    return _run(argv[0], argv[1:])


def overview() -> str:
    """Every command with one line on what it does."""
    backends = {name: backend.find(name).about for name in backend.BACKENDS}
    return "\n".join(
        [
            "usage: python -m launch.NAME [--name value ...]",
            "",
            "run a training:",
            *_lines(backends),
            "",
            "tools:",
            *_lines(TOOLS),
            "",
            "python -m launch.NAME --help lists its flags; README.md has examples.",
        ]
    )


def _lines(about: dict[str, str]) -> list[str]:
    return [f"  python -m launch.{name:<10} {line}" for name, line in about.items()]


def _run(name: str, argv: Sequence[str]) -> int:
    known = [*backend.BACKENDS, *TOOLS]
    if name not in known:
        near = did_you_mean(name, known)
        raise SettingsError(f"unknown command {name!r}{near or '.'} Known: {', '.join(known)}.")
    sys.argv[1:] = argv
    runpy.run_module(f"launch.{name}", run_name="__main__", alter_sys=True)
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
