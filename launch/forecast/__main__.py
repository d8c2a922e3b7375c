# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.forecast`: the command line."""

import sys
from collections.abc import Sequence
from typing import cast

from pydantic import BaseModel

from launch.core.terminal import say
from launch.core.training.options import SCRIPT_SECTION, split, unsuggested
from launch.core.verbs import coded
from launch.forecast.options import ForecastOptions, PublishedOptions, ScriptOptions, check_script
from trainer.config import SECTIONS, TrainConfig
from trainer.contract import Exit
from trainer.errors import SettingsError, did_you_mean
from trainer.settings import flags

PROG = "python -m launch.forecast"
PUBLISHED = "published"

ABOUT = """\
Forecasts the time and cost of a training before anything runs: seconds per epoch, images/s, the bottleneck, USD.

  python -m launch.forecast --instance-type g5.2xlarge,g5.12xlarge,p4d.24xlarge --nodes 1,2,4 --model resnet18 \\
      --dataset imagenet --epochs 90 --batch-size 256
  python -m launch.forecast --model resnet18 --dataset cifar10 --from-run runs/cifar10-resnet18-20261121-212409
  python -m launch.forecast --script train.py --from-run runs/sweep-scaling --nodes 1,2,4    # from its own runs
  python -m launch.forecast published    # the forecast against published results

Starts nothing and makes no request.  launch/forecast/README.md has the formulas and the sources of all numbers.
"""

ABOUT_PUBLISHED = """\
Compares the forecast with published results, each with its error.

  python -m launch.forecast published
"""


def main(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    words = ["--format=json" if word == "--json" else word for word in argv]

    def act() -> int:
        say(_published(words[1:]) if words[:1] == [PUBLISHED] else _forecast(words))
        return Exit.DONE

    return coded(act)


def _forecast(words: Sequence[str]) -> str:
    if words and not words[0].startswith("-"):
        raise SettingsError(f"unknown verb {words[0]!r}{did_you_mean(words[0], [PUBLISHED]) or '.'}")
    words, arguments = split(words)
    models: list[type[BaseModel]] = [ForecastOptions, ScriptOptions, TrainConfig]
    sections = {"instance_type": "launch.forecast", **SCRIPT_SECTION, **SECTIONS}
    values = flags.read(words, models, prog=PROG, about=ABOUT, sections=sections, unsuggested=unsuggested(words))
    options, script, train = flags.build(values, models)
    options, script = cast(ForecastOptions, options), cast(ScriptOptions, script)
    check_script(script, values, arguments)
    from launch.core.terminal import terminal_width  # --help does not need these
    from launch.forecast import compare, offers
    from launch.forecast import script as scripts
    from launch.forecast.from_runs import measurements, samples_of

    if script.is_given:
        comparison = scripts.compare(options, samples_of(script, arguments, options.from_run))
    else:
        comparison = compare.compare(cast(TrainConfig, train), options, measurements(options.from_run))
    return offers.as_json(comparison) if options.format == "json" else offers.as_text(comparison, terminal_width())


def _published(words: Sequence[str]) -> str:
    (options,) = flags.parse(words, [PublishedOptions], prog=f"{PROG} {PUBLISHED}", about=ABOUT_PUBLISHED, sections={})
    from launch.forecast.published import as_json, as_text, cases

    is_json = cast(PublishedOptions, options).format == "json"
    return as_json(cases()) if is_json else as_text(cases())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
