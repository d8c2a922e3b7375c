# PYTHON_ARGCOMPLETE_OK
"""`ddp NAME ...` and `python -m launch NAME ...` are `python -m launch.NAME ...`; without a name: the commands.

As a console script, ddp never has the current folder on Python's path, so a user's own trainer.py or launch/ is not
in its way.
"""

import runpy
import sys
from collections.abc import Mapping, Sequence

from launch.core import backend
from launch.core.terminal import say, use_short_commands
from launch.core.verbs import coded
from trainer.contract import Exit
from trainer.errors import SettingsError, did_you_mean
from trainer.settings import argparser
from trainer.settings.argparser import version
from trainer.terminal import begin

TOOLS = {
    "sweep": "run many trainings from one file; shows the price first",
    "report": "compare runs on one page: speedup, efficiency, time, cost",
    "forecast": "compare instance types before anything runs",
    "data": "publish a data set to S3 and as a snapshot, copy it, delete it",
    "image": "build the container and push it to ECR",
    "infra": "set up the AWS account, once",
    "console": "show every job on one local page: cost, time left, logs, leaks",
    "config": "show your own defaults for every job, and where they are",
    "doctor": "check what the AWS account lacks for a job, and fix it",
}
# Verbs that find the job's backend by themselves -> one line on what they do.
VERBS = {
    "status": "show the jobs of all backends, or one",
    "logs": "print the log of a job",
    "fetch": "fetch the results of a job",
    "stop": "stop a job, and remove what costs money",
    "attach": "follow a job to its end",
}
# Commands of the trainer -> their module, and one line on what they do.
TRAINER = {
    "train": ("trainer", "train in this process, on one GPU or the CPU"),
    "prepare": ("trainer.prepare", "make shards of a folder of images"),
    "tune": ("trainer.tune", "find the batch size and the number of workers"),
    "predict": ("trainer.predict", "classify images with a trained model"),
    "export": ("trainer.export", "write a trained model as ONNX or torch.export"),
}


def ddp() -> None:
    """The console script."""
    begin()
    use_short_commands()
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns its exit code."""
    return coded(lambda: _act(argv))


def _act(argv: Sequence[str]) -> int:
    if argparser.is_asked():
        return _complete()
    if not argv or argv[0] in ("-h", "--help"):
        say(overview())
        return Exit.DONE if argv else Exit.SETTINGS
    if argv[0] == "--version":
        say(version())
        return Exit.DONE
    return _run(argv[0], argv[1:])


def _complete() -> int:
    """Answer a shell that completes the name of a command, or the words after it."""
    if argparser.is_at_first_word():
        argparser.offer([*backend.BACKENDS, *TRAINER, *VERBS, *TOOLS])
    name = argparser.typed_words()[0]
    argparser.skip_word()
    return Exit.DONE if name in VERBS else _run(name, [])


def overview() -> str:
    """Every command with one line on what it does."""
    backends = {name: backend.find(name).about for name in backend.BACKENDS}
    return "\n".join(
        [
            "usage: python -m launch NAME [--name value ...]",
            "",
            "run a training:",
            *_lines(backends),
            *_lines({name: about for name, (_, about) in TRAINER.items()}),
            "",
            "jobs:",
            *_lines(VERBS),
            "",
            "tools:",
            *_lines(TOOLS),
            "",
            "python -m launch NAME --help lists its flags; README.md has examples.",
        ]
    )


def _lines(about: Mapping[str, str]) -> list[str]:
    return [f"  {name:<10} {line}" for name, line in about.items()]


def _run(name: str, argv: Sequence[str]) -> int:
    if name in VERBS:
        from launch.all_jobs import run  # --help does not need it

        return run(name, argv)
    known = [*backend.BACKENDS, *TRAINER, *VERBS, *TOOLS]
    if name not in known:
        near = did_you_mean(name, known)
        raise SettingsError(f"unknown command {name!r}{near or '.'} Known: {', '.join(known)}.")
    sys.argv[1:] = argv
    module = TRAINER[name][0] if name in TRAINER else f"launch.{name}"
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
