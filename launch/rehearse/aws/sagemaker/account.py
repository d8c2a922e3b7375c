"""An AWS account in moto's backends that is set up for training jobs on SageMaker.

Names are literals, not imported, because users who set up their account by hand rely on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from moto.logs.models import logs_backends
from moto.sagemaker.models import sagemaker_backends

from launch.aws.names import TOOLKIT, known_s3
from launch.rehearse.aws import account
from launch.rehearse.aws.batch.moto_patches import active
from launch.rehearse.aws.sagemaker.jobs import TrainingJob
from launch.rehearse.aws.sagemaker.rules import Rules

ROLE = f"{TOOLKIT}-sagemaker"
LOG_GROUP = "/aws/sagemaker/TrainingJobs"


@dataclass
class SageMakerAccount(account.Account):
    """One region of moto's account.  rules: what AWS has and allows."""

    rules: Rules = field(default_factory=Rules)

    @property
    def jobs(self) -> dict[str, TrainingJob]:
        """The region's training jobs by name, oldest first: moto's own, so that changes to them are seen."""
        jobs: dict[str, Any] = sagemaker_backends[self.id][self.region].training_jobs
        return jobs

    # ---- setting it up

    def fill(self) -> None:
        """Set up the account as in infra/account.md, without data."""
        self.make_role(ROLE)
        self.make_bucket(self.bucket)

    def make_trusted(self, role: str) -> None:
        """Create a role by its name, or accept its ARN, which may be of another account."""
        if role.startswith("arn:"):
            self.rules.roles.add(role)
        else:
            self.make_role(role)

    # ---- what it contains

    def _resources(self) -> Iterator[str]:
        """Training jobs that run, warm pools, and what waits in queues.  A job that has ended costs nothing."""
        yield from (f"service job {job.request['jobName']}" for job in active(self.rules))
        for backend in sagemaker_backends[self.id].values():
            jobs: list[Any] = list(backend.training_jobs.values())
            yield from (f"training job {job.name}" for job in jobs if not job.has_ended)
            yield from (f"warm pool {job.name}" for job in jobs if job.pool == "Available")

    def logged(self, name: str) -> dict[str, list[str]]:
        """The lines in each stream of a training job."""
        return {stream: lines for stream, lines in self.logs().items() if stream.startswith(f"{name}/")}

    def get(self, uri: str) -> bytes:
        """The object at an s3:// URI.  Raises KeyError, or moto's MissingBucket."""
        place = known_s3(uri)
        return bytes(self.objects(place.bucket)[place.key].value)

    def under(self, uri: str) -> list[str]:
        """The URIs of all objects that begin with this one."""
        place = known_s3(uri)
        keys = sorted(self.objects(place.bucket))
        return [f"s3://{place.bucket}/{key}" for key in keys if key.startswith(place.key)]

    # ---- what happens to it

    def log(self, name: str, host: str, lines: Iterable[str], stream: str = "") -> str:
        """Add lines to the job's stream of `host`, such as algo-1, or to `stream`; return the stream's name."""
        with self.rules.lock:  # a job may have several hosts
            logs, now_ms = logs_backends[self.id][self.region], int(self.rules.now().timestamp() * 1000)
            if LOG_GROUP not in logs.groups:  # AWS makes it with the first job
                logs.create_log_group(LOG_GROUP, {})
            streams = logs.groups[LOG_GROUP].streams
            known = [key for key in streams if key.startswith(f"{name}/{host}-")]
            stream = stream or (known[0] if known else f"{name}/{host}-{now_ms}")
            if stream not in streams:
                logs.create_log_stream(LOG_GROUP, stream)
            logs.put_log_events(LOG_GROUP, stream, [{"timestamp": now_ms, "message": line} for line in lines])
        return stream
