"""Carries out what was asked: plans the runs, shows them with their price, and starts them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from launch.core import cli
from launch.core.clock import Clock
from launch.core.price import usd
from launch.core.runs import Run
from launch.sweep import table
from launch.sweep.backends import BILLED
from launch.sweep.cli import Asked
from launch.sweep.folder import opened
from launch.sweep.one import Stage
from launch.sweep.planned import Planned, plan_runs
from launch.sweep.price import Price, prices, total
from launch.sweep.sequence import earlier, left, sweep
from trainer.contract import Exit
from trainer.errors import FullDisk, MachineError, SettingsError, TrainerError, is_full
from trainer.settings.registry import did_you_mean


@dataclass(frozen=True)
class Plan:
    """runs: all of them; before: those begun earlier; todo: what is left; prices: of those."""

    asked: Asked
    runs: Sequence[Planned]
    before: Mapping[str, Run]
    todo: Sequence[Planned]
    prices: Mapping[str, Price]


def act(asked: Asked, env: Mapping[str, str]) -> int:
    """Does it; returns the exit code.  Raises TrainerError."""
    made = _plan(asked, env)
    options = asked.options
    if options.dry_run == "json":
        print(as_json(made))
        return Exit.DONE
    cli.say(shown(made))
    _check_price(made)
    if options.dry_run:
        return Exit.DONE
    if made.todo:
        _check_ready(made)
        if asked.costs and not options.yes:
            cli.confirm(_question(made))
    try:
        return _carry_out(made, env)
    except OSError as error:
        kind = FullDisk if is_full(error) else MachineError
        where = f"{asked.out} ({error.strerror}, {error.filename})"
        raise kind(f"cannot write to {where}; after mending it, give the same command.") from error


def _plan(asked: Asked, env: Mapping[str, str]) -> Plan:
    options = asked.options
    runs = plan_runs(asked.spec, asked.overrides, options.gpus)
    for name in options.only:
        if name not in (names := [run.name for run in runs]):
            raise SettingsError(f"unknown run {name!r}{did_you_mean(name, names) or '.'} Known: {', '.join(names)}.")
    before = earlier(runs, asked.out, retry_failed=options.retry_failed)
    todo = left(runs, before, retry_failed=options.retry_failed)
    todo = [run for run in todo if not options.only or run.name in options.only]
    found = prices(todo, env, rehearsed=asked.spec.rehearse, usd_per_hour=options.usd_per_hour)
    return Plan(asked, runs, before, todo, found)


def shown(plan: Plan) -> str:
    """The plan for a reader."""
    spec, out = plan.asked.spec, plan.asked.out
    where = f"rehearsed, for {spec.backend}" if spec.rehearse else f"on {spec.backend}"
    head = f"{spec.name}, {where}: {len(plan.todo)} of {len(plan.runs)} runs to do; results in {out}"
    lines = [head, *([f"  {line}" for line in spec.about.splitlines()]), ""]
    lines.append(table.plan_table(plan.runs, plan.prices, plan.before))
    if plan.asked.costs and plan.todo:
        lines += ["", "  at most: each run's time limit ends it; see --max-hours"]
    for problem in dict.fromkeys(price.problem for price in plan.prices.values() if price.problem):
        having = [name for name, price in plan.prices.items() if price.problem == problem]
        lines += ["", f"problem{'' if len(having) == len(plan.todo) else ' in ' + ', '.join(having)}: {problem}"]
    return "\n".join(lines)


def as_json(plan: Plan) -> str:
    """The plan for a program."""
    told = {
        "name": plan.asked.spec.name, "backend": plan.asked.spec.backend, "rehearse": plan.asked.spec.rehearse,
        "out": str(plan.asked.out),
        "runs": [
            {
                "name": run.name, "point": run.point, "settings": run.settings, "options": run.shown_options,
                "replicas": run.replicas, "argv": run.argv,
                "state": plan.before[run.name].state if run.name in plan.before else "planned",
                "price": asdict(plan.prices[run.name]) if run.name in plan.prices else None,
            }
            for run in plan.runs
        ],
    }  # fmt: skip
    return json.dumps(told, indent=2, default=str)


def _check_price(plan: Plan) -> None:
    """Raises SettingsError where all runs together, with what earlier ones cost, may cost more than is allowed."""
    limit, spent = plan.asked.options.max_usd, sum(run.usd or 0.0 for run in plan.before.values())
    if limit is None:
        return
    if not plan.asked.costs:
        if plan.asked.options.usd_per_hour and not plan.asked.spec.rehearse:
            raise SettingsError(f"--max-usd {limit:g} holds for {' and '.join(BILLED)}, where a time limit ends each "
                                f"run; on {plan.asked.spec.backend} nothing does, so leave it out.")  # fmt: skip
        return
    most, is_all = total([price.most_usd for price in plan.prices.values()])
    if not is_all:
        raise SettingsError(f"what it may cost is not known, so --max-usd {limit:g} cannot hold; leave it out.")
    if most + spent > limit:
        earlier_runs = f", {usd(spent)} of it spent" if spent else ""
        raise SettingsError(
            f"the sweep may cost {usd(most + spent)}{earlier_runs}, over --max-usd {limit:g}; lower --max-hours, leave "
            "out runs with --only, or raise --max-usd."
        )


def _check_ready(plan: Plan) -> None:
    """Raises the problem that keeps every run from starting; one that only some have is their own."""
    problems = [price for price in plan.prices.values() if price.problem]
    if problems and len(problems) == len(plan.todo) and not plan.asked.spec.rehearse:
        error = TrainerError(problems[0].problem)
        error.code = problems[0].problem_code or Exit.SETTINGS
        raise error


def _question(plan: Plan) -> str:
    expected, is_all = total([price.expected_usd for price in plan.prices.values()])
    most, _ = total([price.most_usd for price in plan.prices.values()])
    about = f"about {usd(expected)}" if is_all else "an amount that is not known for all"
    return f"the sweep on {plan.asked.spec.backend} will cost {about}, at most {usd(most)}"


def _carry_out(plan: Plan, env: Mapping[str, str]) -> int:
    spec, out = plan.asked.spec, plan.asked.out
    with opened(out, spec, spec.backend, rehearse=spec.rehearse) as identity:
        stage = Stage(spec.name, identity, out, Path("runs"), env, Clock(), spec.rehearse, cli.say)
        cli.say("")
        ended = sweep(plan.runs, plan.todo, plan.prices, plan.before, stage)
    cli.say(f"\n{table.closing_table(ended)}\n")
    failed = [run for run in ended if run.state == "failed"]
    if failed:
        cli.say(f"{len(failed)} failed, which --retry-failed starts again; their reasons are in {out / table.CSV}")
    cli.say(f"table: {out / table.CSV}\nnext:  python -m launch.report {out}")
    halted = [run for run in ended if run.state == "interrupted"]
    if halted:
        cli.say(f"not at their end: {', '.join(run.name for run in halted)}; the same command goes on with them")
    # A run that fails is a result; that all do is none.
    is_result = any(run.state == "done" for run in ended) or not [*failed, *halted]
    return Exit.DONE if is_result else (failed or halted)[0].exit_code or Exit.BUG
