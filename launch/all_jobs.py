"""Verbs without a backend, such as `ddp status` and `ddp logs JOB`: all jobs, and the backend that has one."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module

from launch import api
from launch.core.jobs import Summary
from launch.core.terminal import complain, say, table
from launch.core.verbs import SHORT, job_first
from trainer.contract import Exit
from trainer.errors import SettingsError, TrainerError

CLIENTS = (api.ec2, api.sagemaker, api.slurm)  # of the backends that have verbs
COLUMNS = ("job", "on", "status", "machines", "started", "USD/hour", "USD")


def run(verb: str, argv: Sequence[str]) -> int:
    """Run the verb on the backend that has the job, the first word; without a job, show those of all backends.

    Raises SettingsError for an unknown job.
    """
    words = job_first(argv)
    if words and words[0] not in SHORT and not words[0].startswith("-"):
        module = _client_of(words[0]).module
        code: int = import_module(f"{module}.__main__").main([verb, *words])
        return code
    if verb != "status" or set(argv) - {"--json"}:
        raise SettingsError(f"name a job: {verb} JOB.  Without one there is `status`, with --json or without.")
    return _show(as_json="--json" in argv)


def _client_of(job: str) -> api.Client:
    """The backend that has the job.  Raises the error of a backend that could not be asked, or SettingsError."""
    reasons, errors = [], list[TrainerError]()
    for client in CLIENTS:
        try:
            client.status(job)
        except TrainerError as error:
            reasons.append(f"{client.module}: {error}")
            errors.append(error)
        else:
            return client
    unasked = next((error for error in errors if type(error) is not SettingsError), None)
    what = f"no backend has a job {job!r}:" if unasked is None else f"whether a backend has a job {job!r} is not known:"
    raise (SettingsError if unasked is None else type(unasked))("\n  ".join([what, *reasons]))


def _show(*, as_json: bool) -> int:
    """A row for each job, newest first.  A backend that cannot be asked is a warning; if none can, an error code."""
    found, left_out = _all_jobs()
    found.sort(key=lambda row: str(row[1].started or ""), reverse=True)
    if as_json:
        rows = [{"backend": module, **asdict(job)} for module, job in found]
        say(json.dumps({"jobs": rows, "is_complete": not left_out}, default=str))
    elif found:
        say(table(COLUMNS, [_row(module, job) for module, job in found], right=COLUMNS[-2:]))
    elif len(left_out) < len(CLIENTS):
        say("no jobs")
    return Exit.AWS if len(left_out) == len(CLIENTS) else Exit.DONE


def _all_jobs() -> tuple[list[tuple[str, Summary]], list[TrainerError]]:
    """The jobs of all backends, each with the backend's module; and why others could not be asked."""
    found: list[tuple[str, Summary]] = []
    left_out = list[TrainerError]()
    for client in CLIENTS:
        try:
            found += [(client.module, job) for job in client.jobs()]
        except TrainerError as error:
            complain(f"warning: {client.module} was left out: {error}")
            left_out.append(error)
    return found, left_out


def _row(module: str, job: Summary) -> tuple[str, ...]:
    started = f"{job.started:%Y-%m-%d %H:%M}" if job.started else ""
    prices = ("" if usd is None else f"{usd:.2f}" for usd in (job.usd_per_hour, job.usd))
    return job.job, module.removeprefix("launch."), job.status, str(job.nodes), started, *prices
