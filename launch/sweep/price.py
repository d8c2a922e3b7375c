"""Expected cost and time of each run, from its launcher's plan (--dry-run=json)."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from launch.core import shell
from launch.core.plan import Need, needs_in
from launch.core.runs import Run
from launch.core.shell import Captured, this_python
from launch.sweep.planned import Planned
from trainer.contract import Exit
from trainer.errors import SettingsError

AT_A_TIME = 2
# An environment without credentials, in which a launcher plans at once without look-ups.
NO_ACCOUNT = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
              "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Price:
    """The price of one run; None if a figure is not known."""

    usd_per_hour: float | None = None
    expected_usd: float | None = None
    expected_s: float | None = None
    most_usd: float | None = None  # at the time limit
    epoch_s: float | None = None
    images_per_s: float | None = None
    limited_by: str = ""
    why_unknown: str = ""  # why there is no expectation
    problem: str = ""  # why it cannot start now
    problem_code: int = 0  # the exit code of that problem
    needs: tuple[Need, ...] = ()  # quotas
    spent_usd: float | None = None  # what its job has cost before, by AWS, including times without a sweep


def prices(
    runs: Sequence[Planned],
    env: Mapping[str, str],
    *,
    rehearsed: bool,
    usd_per_hour: float | None,
    jobs: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Price]:
    """The price of each run, by name.  Raises SettingsError for a run that its launcher refuses.

    usd_per_hour: of machines without a price; jobs: names of jobs that may still be running, by run.
    """
    looked_up = [run for run in runs if run.backend.looks_up]
    launcher_env = _without_account(env) if rehearsed else env
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        answers = list(pool.map(lambda run: _look_up(run, launcher_env, jobs.get(run.name, "")), looked_up))
    if rehearsed:
        return {run.name: Price() for run in runs}
    quoted = {run.name: Price() for run in runs}
    quoted |= {run.name: price for run, price in zip(looked_up, answers, strict=True)}
    return {run.name: _with_own_price(run, quoted[run.name], usd_per_hour) for run in runs}


def _without_account(env: Mapping[str, str]) -> dict[str, str]:
    return {**{name: value for name, value in env.items() if not name.startswith("AWS_")}, **NO_ACCOUNT}


def _with_own_price(run: Planned, price: Price, usd_per_hour: float | None) -> Price:
    """Fill in the user's price per machine if the launcher has none."""
    if price.usd_per_hour is not None or usd_per_hour is None:
        return price
    return replace(price, usd_per_hour=usd_per_hour * getattr(run.where, "nodes", 1))


def _look_up(run: Planned, env: Mapping[str, str], job: str) -> Price:
    named = ["--job-name", job] if job else []
    command = [*this_python(), "-m", run.backend.module, *run.words(*named, "--dry-run=json")]
    captured = shell.run_captured(command, env)
    try:
        price = read(json.loads(captured.out))
    except (ValueError, AttributeError):
        price = None
    if captured.code == Exit.SETTINGS:
        raise SettingsError(f"run {run.name}: {(price and price.problem) or error_of(captured)}")
    if price is not None:
        return price
    return Price(problem=error_of(captured), problem_code=captured.code) if captured.code else Price()


def error_of(captured: Captured) -> str:
    """The launcher's error message."""
    prefix = "error: "
    errors = [line.removeprefix(prefix) for line in captured.err.splitlines() if line.startswith(prefix)]
    return errors[-1] if errors else f"the launcher ended with exit code {captured.code}."


def read(plan: Values) -> Price:
    """The price in a launcher's plan: its first quote, and its first problem."""
    quotes, problems = plan.get("quotes") or [{}], plan.get("problems") or [{}]
    quote, problem = quotes[0], problems[0]
    hourly = quote.get("usd_per_hour")
    return Price(
        usd_per_hour=quote.get("on_demand_usd_per_hour") if hourly is None else hourly,
        expected_usd=quote.get("expected_usd"),
        expected_s=quote.get("expected_s"),
        most_usd=quote.get("most_usd"),
        epoch_s=quote.get("epoch_s"),
        images_per_s=quote.get("images_per_s"),
        limited_by=quote.get("limited_by") or "",
        why_unknown=quote.get("why_unknown") or "",
        needs=needs_in(plan),
        problem=problem.get("sentence", ""),
        problem_code=problem.get("exit_code", 0),
        spent_usd=plan.get("spent_usd"),
    )


def spent(run: Run, price: Price | None) -> float | None:
    """The cost of a run so far: from AWS if its launcher could look that up, otherwise as recorded by the sweep.

    The latter is too low for a job that kept running after its sweep was killed.
    """
    return run.usd if price is None or price.spent_usd is None else price.spent_usd


def total(values: Sequence[float | None]) -> tuple[float, bool]:
    """The sum of the known values, and whether all are known."""
    known = [value for value in values if value is not None]
    return sum(known), len(known) == len(values)
