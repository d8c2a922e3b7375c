"""What each run should cost and take: asked of its own launcher, whose --dry-run=json has no effect.

The launchers say it for people; here it is read back.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from launch.core import shell
from launch.core.shell import Captured
from launch.sweep.planned import Planned
from trainer.contract import Exit
from trainer.errors import SettingsError

AT_A_TIME = 2
# Without an account a launcher plans as well as it can, and at once.
NOBODY = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
          "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip
_USD = re.compile(r"([\d,]+(?:\.\d+)?) USD")
_SPAN = re.compile(r"(?:in|:) ([\d,]+(?:\.\d+)?) (h|min|s)\b")
_SECONDS = {"h": 3600.0, "min": 60.0, "s": 1.0}

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Price:
    """Of one run; None: not known.  most: what the time limit ends it at.  problem: why it could not start now."""

    usd_per_hour: float | None = None
    expected_usd: float | None = None
    expected_s: float | None = None
    most_usd: float | None = None
    most_s: float | None = None
    words: str = ""  # what the launcher says to expect
    problem: str = ""
    problem_code: int = 0


def prices(
    runs: Sequence[Planned], env: Mapping[str, str], *, rehearsed: bool, usd_per_hour: float | None
) -> dict[str, Price]:
    """The price of each run, by its name.  Raises SettingsError for a run that its launcher refuses.

    usd_per_hour: of machines that no launcher has a price of.
    """
    # The settings of a local run are checked; there is nothing else to ask.
    to_ask = [run for run in runs if run.backend != "local"]
    env = (
        {**{name: value for name, value in env.items() if not name.startswith("AWS_")}, **NOBODY} if rehearsed else env
    )
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        told = dict(zip([run.name for run in to_ask], pool.map(lambda run: _ask(run, env), to_ask), strict=True))
    found = {run.name: told.get(run.name, Price()) for run in runs}
    if rehearsed:
        return {name: Price(words="rehearsed") for name in found}
    ours = {run.name: usd_per_hour and usd_per_hour * getattr(run.where, "nodes", 1) for run in runs}
    return {name: replace(price, usd_per_hour=price.usd_per_hour or ours[name]) for name, price in found.items()}


def _ask(run: Planned, env: Mapping[str, str]) -> Price:
    command = [sys.executable, "-m", f"launch.{run.backend}", *run.argv, "--dry-run=json"]
    heard = shell.run_captured(command, env)
    try:
        price = read(json.loads(heard.out), heard.code)
    except (ValueError, AttributeError):
        price = None
    if heard.code == Exit.SETTINGS:
        raise SettingsError(f"run {run.name}: {(price and price.problem) or reason(heard)}")
    if price is None:
        if heard.code:
            return Price(problem=reason(heard), problem_code=heard.code)
        return Price()  # a launcher that says nothing of prices
    return price


def reason(heard: Captured) -> str:
    """The launcher's own sentence."""
    said = [line.removeprefix("error: ") for line in heard.err.splitlines() if line.startswith("error: ")]
    return said[-1] if said else f"the launcher ended with exit code {heard.code}."


def read(plan: Values, code: int = 0) -> Price:
    """The price in a launcher's plan as JSON, where its lines are for people: '2.51 USD in 1.0 h: 663 s per epoch'."""
    lines = {label.strip(): str(text) for label, text in (plan.get("price") or {}).items()}
    hourly = next((text for text in lines.values() if " per hour" in text), "")
    expected, most = lines.get("expected", ""), lines.get("at most", "")
    problems = plan.get("problems") or [""]
    return Price(
        _usd(hourly), _usd(expected), _seconds(expected), _usd(most), _seconds(most),
        expected.partition(": ")[2] if _usd(expected) is not None else expected, problems[0], code,
    )  # fmt: skip


def _usd(text: str) -> float | None:
    found = _USD.search(text)
    return float(found[1].replace(",", "")) if found else None


def _seconds(text: str) -> float | None:
    found = _SPAN.search(text)
    return float(found[1].replace(",", "")) * _SECONDS[found[2]] if found else None


def total(values: Sequence[float | None]) -> tuple[float, bool]:
    """The sum of what is known, and whether that is all of it."""
    return sum(value for value in values if value is not None), all(value is not None for value in values)
