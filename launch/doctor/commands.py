"""Examines an account for a job: identifies the caller, makes the checks and prints what they found."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from pydantic import BaseModel

from launch.core.aws import Aws
from launch.core.backend import Backend
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.examination.case import POLICY, Case, Examination
from launch.core.examination.findings import Finding, unknown
from launch.core.job import Job
from launch.core.terminal import say
from launch.core.training.base import Training
from launch.doctor import checks, identity, show
from launch.doctor.options import DoctorOptions
from trainer.contract import Exit
from trainer.errors import TrainerError

DOWNLOAD_TIMEOUT_S = 10
# Of an image's description, which takes some kB: a stranger's image may name any of its layers as that.
LARGEST_DESCRIPTION = 8 * 2**20


def _connect(region: str | None) -> Aws:
    return Aws(region, policy=POLICY)


def _read(url: str) -> bytes:
    """What is at an address that AWS gave.  Raises AwsError."""
    if not url.startswith("https://"):
        raise AwsError(f"AWS gave an address that is not https: {url[:40]}", "NoAddress", "GET")
    try:
        with urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer:  # nosec B310  # https only
            content: bytes = answer.read(LARGEST_DESCRIPTION + 1)
    except (URLError, OSError) as error:
        raise AwsError(f"the image's description could not be fetched: {error}", "NoAnswer", "GET") from error
    if len(content) > LARGEST_DESCRIPTION:
        raise AwsError("the image's description is larger than 8 MiB, which no image needs", "NotJson", "GET")
    return content


@dataclass(frozen=True)
class Runtime:
    """AWS, time and the user.  read: the content of a URL that AWS has signed."""

    make_aws: Callable[[str | None], Aws] = _connect
    clock: Clock = field(default_factory=Clock)
    say: Callable[[str], None] = say
    read: Callable[[str], bytes] = _read


@dataclass(frozen=True)
class Subject:
    """A job whose account is examined.  resolved: its choices, as its backend's examination resolves them."""

    backend: Backend
    examination: Examination
    job: Job[Any]
    resolved: Any


def examination_of(backend: Backend) -> Examination:
    """The backend's description of what its jobs need of the account."""
    examination: Examination = import_module(backend.examination).EXAMINATION
    return examination


def subject_of(backend: Backend, train: Training, where: BaseModel) -> Subject:
    """Raises SettingsError for a job that no account can run."""
    job, examination = Job(train, where), examination_of(backend)
    return Subject(backend, examination, job, examination.resolve(job))


@dataclass(frozen=True)
class Report:
    """What was found in one region, and how long that took."""

    region: str | None
    findings: list[Finding]
    seconds: float

    @property
    def code(self) -> int:
        return Exit.AWS if any(one.verdict.state == "missing" for one in self.findings) else Exit.DONE


def examine(subject: Subject, options: DoctorOptions, runtime: Runtime) -> int:
    """Prints the findings, region by region; returns the exit code."""
    regions = subject.examination.regions(subject.job.where)
    reports = [_examine_in(region, subject, runtime) for region in regions]
    if options.format == "json":
        runtime.say(show.as_json([_facts(report, subject) for report in reports]))
    else:
        for report in reports:
            runtime.say(show.as_text(report.findings, _title(subject, report)))
    return max(report.code for report in reports)


def _examine_in(region: str | None, subject: Subject, runtime: Runtime) -> Report:
    began = time.monotonic()
    findings = _findings(subject, runtime.make_aws(region), runtime)
    return Report(region, findings, time.monotonic() - began)


def _facts(report: Report, subject: Subject) -> dict[str, object]:
    return {
        "backend": subject.backend.name,
        "region": report.region,
        "seconds": round(report.seconds, 1),
        "summary": show.summary(report.findings),
        "findings": show.as_data(report.findings),
    }


def _title(subject: Subject, report: Report) -> str:
    machines = subject.examination.machines(subject.job.where)
    place = f" in {report.region}" if report.region else ""
    return f"{machines} with {subject.backend.module}{place}: {len(report.findings)} findings in {report.seconds:.1f} s"


def _findings(subject: Subject, aws: Aws, runtime: Runtime) -> list[Finding]:
    now = runtime.clock.utc()
    try:
        who = identity.identify(aws)
    except TrainerError as error:
        why = identity.not_identified(error, identity.skew_s(aws, now))
        return [Finding("credentials", why), Finding("everything else", unknown("not examined without credentials"))]
    case = Case(subject.examination, aws, subject.job, subject.resolved, who, now, runtime.read)
    return list(checks.run(case))
