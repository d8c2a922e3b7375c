"""Examines an account for a job: identifies the caller, makes the checks and prints what they found."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from pydantic import BaseModel

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.job import Job
from launch.core.terminal import say
from launch.core.training.base import Training
from launch.doctor import checks, identity, show
from launch.doctor.case import Case
from launch.doctor.findings import Finding, unknown
from launch.doctor.options import DoctorOptions
from launch.ec2 import checks as ec2
from launch.ec2.resolved import Resolved as Ec2Resolved
from launch.sagemaker import checks as sagemaker
from trainer.contract import Exit
from trainer.errors import TrainerError

RESOLVE: dict[str, Callable[[Job[Any]], Ec2Resolved | sagemaker.Resolved]] = {
    "ec2": ec2.resolve,
    "sagemaker": sagemaker.resolve,
}
DOWNLOAD_TIMEOUT_S = 10


def _connect(region: str | None) -> Aws:
    return Aws(region, policy="doctor")


def _read(url: str) -> bytes:
    """What is at an address that AWS gave.  Raises AwsError."""
    if not url.startswith("https://"):
        raise AwsError(f"AWS gave an address that is no https: {url[:40]}", "NoAddress", "GET")
    try:
        with urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer:  # nosec B310  # https only
            content: bytes = answer.read()
    except (URLError, OSError) as error:
        raise AwsError(f"the image's description could not be fetched: {error}", "NoAnswer", "GET") from error
    return content


@dataclass(frozen=True)
class Runtime:
    """AWS, time and the user.  read: the content of a URL that AWS has signed."""

    make_aws: Callable[[str | None], Aws] = _connect
    clock: Clock = field(default_factory=Clock)
    say: Callable[[str], None] = say
    read: Callable[[str], bytes] = _read


def job_of(backend: str, train: Training, where: BaseModel) -> Job[Any]:
    """The job.  Raises SettingsError for one that no account can run."""
    job = Job(train, where)
    RESOLVE[backend](job)
    return job


@dataclass(frozen=True)
class Report:
    """What was found in one region, and how long that took."""

    region: str | None
    findings: list[Finding]
    seconds: float

    @property
    def code(self) -> int:
        return Exit.AWS if any(one.verdict.state == "missing" for one in self.findings) else Exit.DONE


def examine(job: Job[Any], options: DoctorOptions, runtime: Runtime) -> int:
    """Prints the findings, region by region; returns the exit code."""
    reports = [_examine_in(region, job, options.backend, runtime) for region in _regions(job)]
    if options.format == "json":
        runtime.say(show.as_json([_facts(report, options.backend) for report in reports]))
    else:
        for report in reports:
            runtime.say(show.as_text(report.findings, _title(job, options.backend, report)))
    return max(report.code for report in reports)


def _regions(job: Job[Any]) -> list[str | None]:
    """Those that the job may run in; None for the configured one."""
    given = job.where.region
    return [given] if given is None or isinstance(given, str) else list(dict.fromkeys(given)) or [None]


def _examine_in(region: str | None, job: Job[Any], backend: str, runtime: Runtime) -> Report:
    began = time.monotonic()
    findings = _findings(job, backend, runtime.make_aws(region), runtime)
    return Report(region, findings, time.monotonic() - began)


def _facts(report: Report, backend: str) -> dict[str, object]:
    return {
        "backend": backend,
        "region": report.region,
        "seconds": round(report.seconds, 1),
        "summary": show.summary(report.findings),
        "findings": show.as_data(report.findings),
    }


def _title(job: Job[Any], backend: str, report: Report) -> str:
    kinds = job.where.instance_type
    machines = f"{job.where.nodes} x {kinds if isinstance(kinds, str) else ' or '.join(kinds)}"
    place = f" in {report.region}" if report.region else ""
    return f"{machines} with launch.{backend}{place}: {len(report.findings)} findings in {report.seconds:.1f} s"


def _findings(job: Job[Any], backend: str, aws: Aws, runtime: Runtime) -> list[Finding]:
    now = runtime.clock.utc()
    try:
        who = identity.identify(aws)
    except TrainerError as error:
        why = identity.not_identified(error, identity.skew_s(aws, now))
        return [Finding("credentials", why), Finding("everything else", unknown("not examined without credentials"))]
    return list(checks.run(Case(aws, job, RESOLVE[backend](job), who, now, runtime.read)))
