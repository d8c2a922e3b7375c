"""Verbs without a backend, such as `ddp status` and `ddp logs JOB`: all jobs, and the backend that has one."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module

from launch import api
from launch.core.jobs import Summary
from launch.core.terminal import complain, say, table
from trainer.contract import Exit
from trainer.errors import SettingsError, TrainerError

CLIENTS = (api.ec2, api.sagemaker, api.slurm)  # of the backends that have verbs
COLUMNS = ("job", "on", "status", "machines", "started", "USD/hour", "USD")


def run(verb: str, argv: Sequence[str]) -> int:
    """Run the verb on the backend that has the job, the first word; without a job, show those of all backends.

    Raises SettingsError for an unknown job.
    """
    if argv and not argv[0].startswith("-"):
        module = _client_of(argv[0]).module
        code: int = import_module(f"{module}.__main__").main([verb, *argv])
        return code
    if verb != "status" or set(argv) - {"--json"}:
        raise SettingsError(f"name a job: {verb} JOB.  Without one there is `status`, with --json or without.")
    return _show(as_json="--json" in argv)


def _client_of(job: str) -> api.Client:
    """The backend that has the job.  Raises SettingsError with what each of them says."""
    reasons = []
    for client in CLIENTS:
        try:
            client.status(job)
        except TrainerError as error:
            reasons.append(f"{client.module}: {error}")
        else:
            return client
    raise SettingsError("\n  ".join([f"no backend has a job {job!r}:", *reasons]))


def _show(*, as_json: bool) -> int:
    """A row for each job, newest first.  A backend that cannot be asked is a warning."""
    found: list[tuple[str, Summary]] = []
    for client in CLIENTS:
        try:
            found += [(client.module, job) for job in client.jobs()]
        except TrainerError as error:
            complain(f"warning: {client.module} was left out: {error}")
    found.sort(key=lambda row: str(row[1].started or ""), reverse=True)
    if as_json:
        say(json.dumps({"jobs": [{"backend": module, **asdict(job)} for module, job in found]}, default=str))
    elif found:
        say(table(COLUMNS, [_row(module, job) for module, job in found], right=COLUMNS[-2:]))
    else:
        say("no jobs")
    return Exit.DONE


def _row(module: str, job: Summary) -> tuple[str, ...]:
    started = f"{job.started:%Y-%m-%d %H:%M}" if job.started else ""
    prices = ("" if usd is None else f"{usd:.2f}" for usd in (job.usd_per_hour, job.usd))
    return job.job, module.removeprefix("launch."), job.status, str(job.nodes), started, *prices
