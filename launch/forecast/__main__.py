"""`python -m launch.forecast`: the command line, handed to what compares."""

import sys
from typing import TYPE_CHECKING, Any

from launch.core import cli
from launch.core.cli import Backend, Verb
from launch.forecast.options import ForecastOptions, PublishedOptions

if TYPE_CHECKING:
    from launch.core.job import Job
    from launch.forecast.compare import Comparison

PROG = "python -m launch.forecast"

ABOUT = """\
Says what a training will take and cost, before anything runs: seconds per epoch, images/s, what limits it, USD.

  python -m launch.forecast --instance-type g5.2xlarge,g5.12xlarge,p4d.24xlarge --nodes 1,2,4 --model resnet18 \\
      --dataset imagenet --epochs 90 --batch-size 256
  python -m launch.forecast --model resnet18 --dataset cifar10 --from-run runs/cifar10-resnet18-20261121-212409

Runs nothing and asks AWS nothing.  launch/forecast/README.md has the formulas and where each number is from.
"""

PUBLISHED = """\
the forecast against results that others have published, each with its error

  python -m launch.forecast published
"""


def _compare(job: "Job[ForecastOptions]") -> "Comparison":
    from launch.forecast.compare import compare  # --help needs none of it
    from launch.forecast.measured import read

    return compare(job.train, job.where, read(job.where.from_run))


def _text(comparison: "Comparison") -> str:
    from launch.forecast import show

    return show.as_text(comparison)


def _json(comparison: "Comparison") -> str:
    from launch.forecast import show

    return show.as_json(comparison)


def _print(comparison: "Comparison") -> int:
    cli.say(_json(comparison) if comparison.options.format == "json" else _text(comparison))
    return 0


def _published(options: Any) -> int:
    from launch.forecast import show
    from launch.forecast.published import cases

    cli.say(show.cases_as_json(cases()) if options.format == "json" else show.cases_as_text(cases()))
    return 0


FORECAST: "Backend[ForecastOptions, Comparison]" = Backend(
    prog=PROG,
    about=ABOUT,
    options=ForecastOptions,
    plan=_compare,
    show=_text,
    show_json=_json,
    perform=_print,
    verbs={"published": Verb(PUBLISHED, PublishedOptions, _published)},
)


def main(argv: list[str]) -> int:
    """Runs the command line and returns its exit code."""
    return cli.main(FORECAST, ["--format=json" if word == "--json" else word for word in argv])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
