"""Perform a sweep's command: plan the runs, show them with their price, and start them."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import IO

from launch.core import backend as backends
from launch.core.clock import Clock
from launch.core.plan import shortage
from launch.core.price import usd
from launch.core.runs import Run
from launch.core.terminal import confirm, harmless, say
from launch.sweep import table
from launch.sweep.cli import SweepRequest
from launch.sweep.folder import Work, check, earlier, job_name, left, opened, others
from launch.sweep.loop import Slot, collectable, machine, slots, submitted, sweep
from launch.sweep.planned import Planned, plan_runs
from launch.sweep.price import Price, prices, spent, total
from launch.sweep.runner import Context
from trainer.contract import Exit
from trainer.errors import FullDisk, MachineError, SettingsError, TrainerError, did_you_mean, is_full


class StatusLine:
    """A line at the bottom of a terminal that is overwritten; silent if the output is not a terminal."""

    def __init__(self, file: IO[str], env: Mapping[str, str]) -> None:
        self._file = file
        self._is_terminal = file.isatty() and env.get("TERM", "") not in ("", "dumb")

    def show(self, text: str) -> None:
        if self._is_terminal:
            width = os.get_terminal_size(self._file.fileno()).columns
            self._file.write(f"\r\x1b[K{harmless(text)[: max(0, width - 1)]}")
            self._file.flush()

    def clear(self) -> None:
        self.show("")


@dataclass(frozen=True)
class Plan:
    """What the sweep would do."""

    request: SweepRequest
    work: Work
    places: Sequence[Slot]  # slots of parallel runs


def as_text(plan: Plan) -> str:
    """The plan as text."""
    request, work = plan.request, plan.work
    file = request.file
    where = f"rehearsed, for {file.backend}" if file.rehearse else f"on {file.backend}"
    lines = [
        f"{file.name}, {where}: {len(work.todo)} of {len(work.runs)} runs to do; results in {request.out}",
        *(f"  {line}" for line in file.about.splitlines()),
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
    """Lines on parallel runs: how many, their highest price per hour together, and whether quotas allow them."""
    count = min(len(plan.places), len(plan.work.todo))
    if count < 2:
        return []
    hourly = sorted((price.usd_per_hour or 0.0 for price in plan.work.prices.values()), reverse=True)
    most = sum(hourly[:count])
    lines = ["", f"  {count} runs at a time{f', up to {usd(most)} per hour together' if most else ''}"]
    short = no_room(plan)
    return [*lines, "", f"problem: {short}"] if short else lines


def no_room(plan: Plan) -> str:
    """Why the account's quotas are too small for the parallel runs; empty if they are not."""
    found = shortage([price.needs for price in plan.work.prices.values()], len(plan.places))
    if not found:
        return ""
    sentence, fitting = found
    return f"{sentence}; give --parallel {fitting}, or ask for more under Service Quotas."


def _by_text(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of the runs by text, without empty texts."""
    names: dict[str, list[str]] = {}
    for name, text in texts.items():
        if text:
            names.setdefault(text, []).append(name)
    return names


def _in(names: Sequence[str], work: Work) -> str:
    return "" if len(names) == len(work.todo) else f" in {', '.join(names)}"


def as_json(plan: Plan) -> str:
    """The plan as JSON."""
    file, work = plan.request.file, plan.work
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
    head = {"name": file.name, "backend": file.backend, "rehearse": file.rehearse, "out": str(plan.request.out)}
    return json.dumps({**head, "runs": runs}, indent=2, default=str)


def act(request: SweepRequest, env: Mapping[str, str]) -> int:
    """Perform the sweep; return the exit code.  Raises TrainerError."""
    plan = _plan(request, env)
    if not request.options.collect and not _is_agreed(plan):
        return Exit.DONE
    try:
        return _carry_out(plan, env)
    except OSError as error:
        kind = FullDisk if is_full(error) else MachineError
        where = f"{request.out} ({error.strerror}, {error.filename2 or error.filename})"
        raise kind(f"cannot write to {where}; fix it, then give the same command.") from error


def _is_agreed(plan: Plan) -> bool:
    """Show the plan, and ask before it costs money; False for a dry run.  Raises TrainerError."""
    request, options = plan.request, plan.request.options
    if options.dry_run == "json":
        say(as_json(plan))
        return False
    say(as_text(plan))
    _check_price(plan)
    if options.dry_run:
        return False
    if plan.work.todo:
        _check_ready(plan)
        if request.costs and not options.yes and options.max_usd is None:
            confirm(_question(plan))
    return True


def _plan(request: SweepRequest, env: Mapping[str, str]) -> Plan:
    options = request.options
    runs = plan_runs(request.file, request.overrides, options.gpus)
    _check_names(options.only, runs)
    identity = check(request.out, request.file)
    before = earlier(runs, request.out, retry_failed=options.retry_failed)
    todo = left(runs, before, retry_failed=options.retry_failed)
    if options.only:
        todo = [run for run in todo if run.name in options.only]
    places = _places(request, todo, env)
    if options.collect:
        _check_collectable(request, runs, identity)
        unpriced = {run.name: Price() for run in todo}
        return Plan(request, Work(runs, todo, unpriced, before, others(runs, request.out)), places)
    jobs = _begun(request, todo, before, identity)
    prices_of = prices(todo, env, rehearsed=request.file.rehearse, usd_per_hour=options.usd_per_hour, jobs=jobs)
    return Plan(request, Work(runs, todo, prices_of, before, others(runs, request.out)), places)


def _check_collectable(request: SweepRequest, runs: Sequence[Planned], identity: str) -> None:
    """Raise SettingsError if no job of the sweep can be in a queue."""
    if request.options.dry_run:
        raise SettingsError("--collect starts nothing; leave out --dry-run.")
    if not _has_queue(runs) or request.file.rehearse:
        raise SettingsError("--collect is for runs with --queue; give the command that submitted them, and --collect.")
    if not identity:
        raise SettingsError(f"no sweep was started in {request.out}; give the --out of the one to collect.")


def _has_queue(runs: Sequence[Planned]) -> bool:
    return any(run.backend.returns_at_once(run.where) for run in runs)


def _begun(request: SweepRequest, todo: Sequence[Planned], before: Mapping[str, Run], identity: str) -> dict[str, str]:
    """{run: job} of jobs that a killed sweep may have left running.

    Launchers get these names, so as not to count the machines of these jobs against the quota twice.
    """
    if not request.costs:
        return {}
    begun = [run.name for run in todo if run.name in before and before[run.name].state in ("running", "interrupted")]
    return {name: job_name(request.file.name, name, identity) for name in begun}


def _places(request: SweepRequest, todo: Sequence[Planned], env: Mapping[str, str]) -> list[Slot]:
    """The slots for parallel runs; a single slot for runs one after the other.  Raises SettingsError."""
    count, backend = request.options.parallel, request.backend
    if count == 1:
        return [Slot(())]
    if request.file.rehearse:
        raise SettingsError(f"--parallel {count} is not possible for a rehearsal, which runs one job; leave it out.")
    if backend.is_billed or backend.outlives_launcher:  # each run has its own machines
        return [Slot(())] * count
    return slots(machine(env), count, todo)


def _check_names(only: Sequence[str], runs: Sequence[Planned]) -> None:
    names = [run.name for run in runs]
    for name in only:
        if name not in names:
            raise SettingsError(f"unknown run {name!r}{did_you_mean(name, names) or '.'} Known: {', '.join(names)}.")


def _check_price(plan: Plan) -> None:
    """Raise SettingsError if the runs to do and the earlier ones may together cost more than --max-usd."""
    request = plan.request
    limit = request.options.max_usd
    if limit is None:
        return
    if not request.costs:
        _check_limit_holds(request, limit)
        return
    most, is_known = total([price.most_usd for price in plan.work.prices.values()])
    if not is_known:
        raise SettingsError(f"the highest possible cost is unknown, so --max-usd {limit:g} cannot hold; leave it out.")
    begun = (*plan.work.before.values(), *plan.work.others)
    gone = sum(spent(run, plan.work.prices.get(run.name)) or 0.0 for run in begun)
    if most + gone > limit:
        earlier_runs = f", {usd(gone)} of it spent" if gone else ""
        raise SettingsError(
            f"the sweep may cost {usd(most + gone)}{earlier_runs}, over --max-usd {limit:g}; lower --max-hours, leave "
            "out runs with --only, or raise --max-usd."
        )


def _check_limit_holds(request: SweepRequest, limit: float) -> None:
    """Raise SettingsError for a limit with prices from --usd-per-hour only, as nothing would end a run."""
    if request.options.usd_per_hour and not request.file.rehearse:
        billed = backends.all_with(lambda backend: backend.is_billed)
        raise SettingsError(f"--max-usd {limit:g} works for {' and '.join(billed)}, where a time limit ends each run; "
                            f"on {request.file.backend} nothing does, so leave it out.")  # fmt: skip


def _check_ready(plan: Plan) -> None:
    """Raise a problem that all runs have; problems of single runs are reported when they start."""
    problems = [price for price in plan.work.prices.values() if price.problem]
    if problems and len(problems) == len(plan.work.todo) and not plan.request.file.rehearse:
        error = TrainerError(problems[0].problem)
        error.code = problems[0].problem_code or Exit.SETTINGS
        raise error
    if short := no_room(plan):
        raise SettingsError(short)


def _question(plan: Plan) -> str:
    prices_of = plan.work.prices.values()
    expected, is_known = total([price.expected_usd for price in prices_of])
    most, _ = total([price.most_usd for price in prices_of])
    about = f"about {usd(expected)}" if is_known else "an amount that is not known for all runs"
    return f"the sweep on {plan.request.file.backend} will cost {about}, at most {usd(most)}"


def _carry_out(plan: Plan, env: Mapping[str, str]) -> int:
    file, out = plan.request.file, plan.request.out
    status = StatusLine(sys.stdout, env)

    def say_above(line: str) -> None:
        status.clear()
        say(line)

    with opened(out, file) as identity:
        say_above("")
        context = Context(
            file.name, identity, out, Path("runs"), env, Clock(), file.rehearse, say_above, show=status.show,
            diverged_at=plan.request.options.diverged_at,
        )  # fmt: skip
        try:
            ended = _swept(plan, context)
        finally:
            status.clear()
    _close(ended, out)
    return _exit_code(ended)


def _swept(plan: Plan, context: Context) -> list[Run]:
    """Perform the runs, in one submission if the backend supports it; return them as they ended."""
    work, places = plan.work, plan.places
    if plan.request.options.collect:
        work, context = collectable(work, context)
    elif len(places) > 1 or (not context.rehearsed and _has_queue(work.todo)):
        work, context = submitted(work, context, len(places))
    return sweep(work, context, places)


def _close(ended: Sequence[Run], out: Path) -> None:
    """Print the table of all runs, and the next command."""
    say(f"\n{table.closing_table(ended)}\n")
    failed = [run for run in ended if run.state == "failed"]
    if failed:
        say(f"{len(failed)} failed; {out / table.CSV} has the reasons, and --retry-failed starts them again")
    say(f"table: {out / table.CSV}\nnext:  python -m launch.report {quote(str(out))}")
    going_on = [run.name for run in ended if run.state == "running"]
    if going_on:
        say(f"not ended yet: {', '.join(going_on)}; the same command collects them later")
    interrupted = [run.name for run in ended if run.state == "interrupted"]
    if interrupted:
        say(f"interrupted: {', '.join(interrupted)}; the same command resumes them")


def _exit_code(ended: Sequence[Run]) -> int:
    """0 if any run is done, as a failed run is a result; otherwise the code of the first that failed or was stopped."""
    failed = [run for run in ended if run.state == "failed"]
    failed += [run for run in ended if run.state == "interrupted"]
    if not failed or any(run.state == "done" for run in ended):
        return Exit.DONE
    return failed[0].exit_code or Exit.BUG
