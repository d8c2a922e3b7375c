"""A sweep's plan: which runs, where, and what they cost; for a reader and for a program.  Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from launch.core.price import usd
from launch.core.quotas import shortage
from launch.sweep import table
from launch.sweep.cli import SweepRequest
from launch.sweep.slots import Slot
from launch.sweep.work import Work


@dataclass(frozen=True)
class Plan:
    """places: of runs at the same time."""

    request: SweepRequest
    work: Work
    places: Sequence[Slot]


def as_text(plan: Plan) -> str:
    """The plan for a reader."""
    request, work = plan.request, plan.work
    spec = request.spec
    where = f"rehearsed, for {spec.backend}" if spec.rehearse else f"on {spec.backend}"
    lines = [
        f"{spec.name}, {where}: {len(work.todo)} of {len(work.runs)} runs to do; results in {request.out}",
        *(f"  {line}" for line in spec.about.splitlines()),
        "",
        table.plan_table(work.runs, work.prices, work.before),
    ]
    for reason, names in _by_text({name: price.why_unknown for name, price in work.prices.items()}).items():
        lines += ["", f"  no forecast{_in(names, work)}: {reason}"]
    if request.costs and work.todo:
        lines += ["", "  at most: each run's time limit ends it; see --max-hours"]
    lines += _at_once(plan)
    for problem, names in _by_text({name: price.problem for name, price in work.prices.items()}).items():
        lines += ["", f"problem{_in(names, work)}: {problem}"]
    return "\n".join(lines)


def _at_once(plan: Plan) -> list[str]:
    """How many runs train at a time, what the dearest of them cost per hour together, and whether there is room."""
    count = min(len(plan.places), len(plan.work.todo))
    if count < 2:
        return []
    hourly = sorted((price.usd_per_hour or 0.0 for price in plan.work.prices.values()), reverse=True)
    most = sum(hourly[:count])
    lines = ["", f"  {count} runs at a time{f', up to {usd(most)} per hour together' if most else ''}"]
    short = no_room(plan)
    return [*lines, "", f"problem: {short}"] if short else lines


def no_room(plan: Plan) -> str:
    """Why the account has no room for so many runs at a time; empty if it has."""
    found = shortage([price.needs for price in plan.work.prices.values()], len(plan.places))
    if not found:
        return ""
    sentence, fitting = found
    return f"{sentence}; give --parallel {fitting}, or ask for more under Service Quotas."


def _by_text(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of the runs with each text, but for empty ones."""
    names: dict[str, list[str]] = {}
    for name, text in texts.items():
        if text:
            names.setdefault(text, []).append(name)
    return names


def _in(names: Sequence[str], work: Work) -> str:
    return "" if len(names) == len(work.todo) else f" in {', '.join(names)}"


def as_json(plan: Plan) -> str:
    """The plan for a program."""
    spec, work = plan.request.spec, plan.work
    runs = [
        {
            "name": run.name,
            "point": run.point,
            "settings": run.settings,
            "options": run.shown_options,
            "replicas": run.replicas,
            "argv": run.words(),
            "state": work.before[run.name].state if run.name in work.before else "planned",
            "price": asdict(work.prices[run.name]) if run.name in work.prices else None,
        }
        for run in work.runs
    ]
    head = {"name": spec.name, "backend": spec.backend, "rehearse": spec.rehearse, "out": str(plan.request.out)}
    return json.dumps({**head, "runs": runs}, indent=2, default=str)
