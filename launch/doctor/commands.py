"""Examine an account for a job: identify the caller, perform the checks and print their findings."""

import json
import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from pydantic import BaseModel

from launch.aws.client import Aws
from launch.aws.examination.case import POLICY, Case, Examination, Finding, State, unknown
from launch.core.backend import Backend
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.job import Job
from launch.core.shell import run_here, this_python
from launch.core.terminal import say, table, wants
from launch.core.training.base import Training
from launch.doctor import checks
from trainer.contract import Exit
from trainer.errors import TrainerError

DOWNLOAD_TIMEOUT_S = 10
# What --fix may run: the toolkit's own set-up and image, the policies of its users and roles, and requests of quotas.
_RUNNABLE = re.compile(
    r"python -m launch\.(?:infra up|image push)(?: --[\w-]+ \S+)*"
    r"|aws service-quotas request-service-quota-increase(?: --[\w-]+ \S+)+"
    r"|aws iam attach-(?:user|group|role)-policy(?: --[\w-]+ \S+)+"
)
_PLACEHOLDER = re.compile(r"(?:^|[ =/])[A-Z]{3,}(?:$|[ /@])")  # such as FOLDER, for the user to fill in


def _connect(region: str | None) -> Aws:
    return Aws(region, policy=POLICY)


def _read(url: str) -> bytes:
    """Download from a URL signed by AWS.  Raises AwsError."""
    try:
        with urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer:  # noqa: S310  # AWS's own address
            content: bytes = answer.read()
    except (URLError, OSError) as error:
        raise AwsError(f"the image's description could not be fetched: {error}", "NoAnswer", "GET") from error
    return content


@dataclass(frozen=True)
class Runtime:
    """AWS, time and the user."""

    make_aws: Callable[[str | None], Aws] = _connect
    clock: Clock = field(default_factory=Clock)
    say: Callable[[str], None] = say
    read: Callable[[str], bytes] = _read  # the content of a URL that AWS has signed
    wants: Callable[[str], bool] = wants  # asks the user
    run: Callable[[Sequence[str]], int] = run_here  # a command, with this terminal; returns its exit code


@dataclass(frozen=True)
class Subject:
    """A job whose account is examined."""

    backend: Backend
    examination: Examination
    job: Job[Any]
    resolved: Any  # its choices, as the examination resolves them


def examination_of(backend: Backend) -> Examination:
    """The backend's description of what its jobs need of the account."""
    examination: Examination = import_module(backend.examination).EXAMINATION
    return examination


def subject_of(backend: Backend, train: Training, where: BaseModel) -> Subject:
    """Resolve a job.  Raises SettingsError for one that no account can run."""
    job, examination = Job(train, where), examination_of(backend)
    return Subject(backend, examination, job, examination.resolve(job))


@dataclass(frozen=True)
class Report:
    """The findings in one region, and the time they took."""

    region: str | None
    findings: list[Finding]
    seconds: float

    @property
    def code(self) -> int:
        return Exit.AWS if any(one.verdict.state == "missing" for one in self.findings) else Exit.DONE


def examine(subject: Subject, format_: str, runtime: Runtime) -> int:
    """Print the findings of each region as a table or as JSON; return the exit code."""
    regions = subject.examination.regions(subject.job.where)
    reports = [_examine_in(region, subject, runtime) for region in regions]
    if format_ == "json":
        runtime.say(_as_json([_facts(report, subject) for report in reports]))
    else:
        for report in reports:
            runtime.say(_as_text(report.findings, _title(subject, report)))
    return max(report.code for report in reports)


def fix(subject: Subject, runtime: Runtime, *, yes: bool) -> int:
    """Run the commands that fix what is missing, each after a yes, and examine again; return the exit code.

    Only commands that concern the toolkit's own resources, its users' policies, and quotas are run; others are printed.
    After each command everything is examined anew, as one command may fix several findings.
    """
    examine(subject, "table", runtime)
    for region in subject.examination.regions(subject.job.where):
        seen = list[str]()
        while found := _next_command(_examine_in(region, subject, runtime), region, seen):
            check, command = found
            seen.append(command)
            runtime.say(f"\n{check}: $ {command}")
            if yes or runtime.wants("run it"):
                _run_command(command, runtime)
    return examine(subject, "table", runtime)


def _next_command(report: Report, region: str | None, seen: Collection[str]) -> tuple[str, str] | None:
    """The first finding that something is missing with a command that was not seen yet; None if there is none."""
    for one in report.findings:
        for command in _commands_in(one.verdict.remedy, region) if one.verdict.state == "missing" else ():
            if command not in seen:
                return one.check, command
    return None


def _commands_in(remedy: str, region: str | None) -> Iterator[str]:
    """The commands of a remedy, or of the first of alternatives, that may be run for the user."""
    for command in remedy.partition(", or ")[0].split(" && "):
        if _RUNNABLE.fullmatch(command) and not _PLACEHOLDER.search(command):
            needs_region = region and command.startswith("python -m launch.") and "--region" not in command
            yield f"{command} --region {region}" if needs_region else command


def _run_command(command: str, runtime: Runtime) -> None:
    program, *words = shlex.split(command)
    if program == "aws" and shutil.which("aws") is None:
        runtime.say("  this needs AWS's command line: https://aws.amazon.com/cli/")
    elif code := runtime.run([*(this_python() if program == "python" else [program]), *words]):
        runtime.say(f"  it ended with exit code {code}")


def _examine_in(region: str | None, subject: Subject, runtime: Runtime) -> Report:
    began = time.monotonic()
    findings = _findings(subject, runtime.make_aws(region), runtime)
    return Report(region, findings, time.monotonic() - began)


def _facts(report: Report, subject: Subject) -> dict[str, object]:
    return {
        "backend": subject.backend.name,
        "region": report.region,
        "seconds": round(report.seconds, 1),
        "summary": _summary(report.findings),
        "findings": _as_data(report.findings),
    }


def _title(subject: Subject, report: Report) -> str:
    machines = subject.examination.machines(subject.job.where)
    place = f" in {report.region}" if report.region else ""
    return f"{machines} with {subject.backend.module}{place}: {len(report.findings)} findings in {report.seconds:.1f} s"


def _findings(subject: Subject, aws: Aws, runtime: Runtime) -> list[Finding]:
    now = runtime.clock.utc()
    try:
        who = checks.identify(aws)
    except TrainerError as error:
        why = checks.not_identified(error, checks.skew_s(aws, now))
        return [Finding("credentials", why), Finding("everything else", unknown("not examined without credentials"))]
    case = Case(subject.examination, aws, subject.job, subject.resolved, who, now, runtime.read)
    return list(checks.run(case))


# ---- findings as a table, or as JSON

STATES: tuple[State, ...] = ("missing", "warning", "unknown", "ok")


def _as_text(findings: Sequence[Finding], title: str) -> str:
    """A row per finding, followed by the remedies of those that are not ok."""
    rows = [(finding.check, finding.verdict.state, finding.verdict.text) for finding in findings]
    return "\n".join(
        [title, "", table(("check", "state", "what was found"), rows), *_remedies(findings), "", _summary(findings)]
    )


def _remedies(findings: Sequence[Finding]) -> list[str]:
    rows = [
        (finding.check, finding.verdict.remedy)
        for state in STATES
        for finding in findings
        if finding.verdict.state == state and finding.verdict.remedy
    ]
    unique = list(dict.fromkeys(rows))
    return ["", "to fix it:", table(("check", "do this"), unique)] if unique else []


def _summary(findings: Sequence[Finding]) -> str:
    """1 missing, 2 warnings, 3 unknown, 20 ok."""
    counts = Counter(finding.verdict.state for finding in findings)
    plural = "s" if counts["warning"] != 1 else ""
    return ", ".join(f"{counts[state]} {state}{plural if state == 'warning' else ''}" for state in STATES)


def _as_data(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """The findings for a program."""
    return [
        {"check": finding.check, "state": finding.verdict.state, "text": finding.verdict.text,
         "remedy": finding.verdict.remedy}
        for finding in findings
    ]  # fmt: skip


def _as_json(reports: Sequence[Mapping[str, object]]) -> str:
    """One report, or a list of one per region."""
    return json.dumps(reports[0] if len(reports) == 1 else reports, indent=2)
