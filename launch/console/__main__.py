# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.console`: the command line."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from launch.console.options import ConsoleOptions
from launch.core.errors import NotSetUp
from launch.core.verbs import coded
from trainer.settings import flags

PROG = "python -m launch.console"
ABOUT = """\
Opens a page on this machine with all jobs of all backends: what runs, where, what it costs, and what leaks.

  python -m launch.console
  python -m launch.console --region us-east-1,eu-west-1
  python -m launch.console --no-open --port 8100    # on another machine, with ssh -L 8100:127.0.0.1:8100

Ctrl-C ends the page, and no job.  Only this machine can open it, by the address that is printed.
"""
NEEDED = ("starlette", "uvicorn", "jinja2")


def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns its exit code."""

    def act() -> int:
        (options,) = flags.parse(
            list(argv), [ConsoleOptions], prog=PROG, about=ABOUT, sections={"region": "launch.console"}
        )
        if missing := [name for name in NEEDED if find_spec(name) is None]:
            raise NotSetUp(
                f"the console needs {', '.join(missing)}; run pip install -c constraints.txt -e '.[console]' in the "
                "checkout"
            )
        from launch.console.server import run  # --help does not need it

        assert isinstance(options, ConsoleOptions)
        return run(options)

    return coded(act)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
