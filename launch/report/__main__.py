# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.report`: the command line."""

import sys
from datetime import datetime
from itertools import takewhile

from launch.core.terminal import say
from launch.core.verbs import coded
from launch.report.options import ReportOptions
from trainer.settings import flags
from trainer.settings.argparser import home_path

PROG = "python -m launch.report"
ABOUT = """\
Reports on runs: speedup, efficiency, where the time goes, accuracy, memory and cost, as a page, pictures and a table.
Give the folders of runs or sweeps first; every run in them or below is included.

  python -m launch.report runs/ --out report
  python -m launch.report runs/sweep-a runs/sweep-b --title "g5 against p4d" --format png,pdf
"""


def main(argv: list[str]) -> int:
    """Run the command line and return its exit code."""
    places = list(takewhile(lambda word: not word.startswith("-"), argv))

    def act() -> int:
        (options,) = flags.parse(
            argv[len(places) :], [ReportOptions], prog=f"{PROG} RUNS...", about=ABOUT, sections={"out": "launch.report"}
        )
        from launch.report.commands import report  # --help does not need it

        assert isinstance(options, ReportOptions)
        return report([home_path(place) for place in places], options, datetime.now().astimezone(), say)

    return coded(act)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
