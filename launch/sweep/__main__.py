# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.sweep`: the entry point."""

import os
import sys
from collections.abc import Mapping, Sequence

from launch.core.verbs import coded
from launch.sweep.cli import read


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run the command line and return its exit code."""

    def act() -> int:
        request = read(argv)
        from launch.sweep import command  # --help does not need it

        return command.act(request, env)

    return coded(act)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
