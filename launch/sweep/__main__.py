"""`python -m launch.sweep`: this machine's environment, handed to what decides."""

import os
import sys
from collections.abc import Mapping, Sequence

from launch.core import cli
from launch.sweep.cli import read


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Does what the command line asks; returns the exit code."""

    def act() -> int:
        asked = read(argv)
        from launch.sweep import command  # --help needs none of it

        return command.act(asked, env)

    return cli.coded(act)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
