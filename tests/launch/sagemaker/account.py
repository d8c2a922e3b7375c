"""An AWS account as launch.sagemaker finds it: moto in this process, mended (mended.py) and filled.

with SageMakerAccount.opened() as account:
    account.quota["ml.g5.12xlarge for training job usage"] = 0
    launch...(account.aws())
    complete(account.jobs["NAME"], seconds=600, metrics={"test:accuracy": 0.9})
    assert account.left() == []
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from moto import mock_aws
from moto.cloudformation.models import cloudformation_backends
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends
from moto.logs.models import logs_backends
from moto.s3.models import s3_backends
from moto.sagemaker.models import sagemaker_backends

from launch.aws import Aws
from tests.launch.ec2.account import TOOLKIT, _leave_what_stays_alone, _shared_loader
from tests.launch.faults import Request, listen, watched
from tests.launch.sagemaker.mended import SERVICE, Rules, Slow, TrainingJob, mended

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": SERVICE}, "Action": "sts:AssumeRole"}],
}


class SageMakerAccount:
    """capacity, quota, slow: see mended.Rules.  requests: every call since it was opened."""

    id = DEFAULT_ACCOUNT_ID
    region = "us-east-1"
    bucket = f"{TOOLKIT}-{DEFAULT_ACCOUNT_ID}-us-east-1"
    role = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/{TOOLKIT}-sagemaker"

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.capacity, self.quota = rules.capacity, rules.quota
        self.requests: list[Request] = []
        self.make_role(f"{TOOLKIT}-sagemaker")
        self.make_bucket(self.bucket)

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator["SageMakerAccount"]:
        """A new account, until the end of the block.  Only one at a time."""
        listen()
        rules = Rules()
        with ExitStack() as stack:
            stack.enter_context(mock.patch("botocore.session.create_loader", _shared_loader))
            stack.enter_context(mock_aws(config={"core": {"mock_credentials": False}}))
            stack.enter_context(mended(rules))
            account = cls(rules)
            stack.enter_context(watched(lambda call, _protocol: account.requests.append(call)))
            yield account
        _leave_what_stays_alone()

    # ---- what a test asks it

    def aws(self, region: str | None = None) -> Aws:
        """A launcher's way into this account."""
        return Aws(region or self.region)

    def asked(self, operation: str) -> list[dict[str, Any]]:
        """The parameters of every request of `operation`."""
        return [request.params for request in self.requests if request.operation == operation]

    @property
    def operations(self) -> list[str]:
        """The operations asked for, in order."""
        return [request.operation for request in self.requests]

    @property
    def jobs(self) -> dict[str, TrainingJob]:
        """The region's training jobs by name, oldest first: moto's own, so that what is done to them is seen."""
        return sagemaker_backends[self.id][self.region].training_jobs  # type: ignore[return-value]

    def left(self) -> list[str]:
        """What costs money in any region: jobs that have not ended and warm pools.  Looks into moto.

        S3 and logs are meant to stay and are not in it.
        """
        found: list[str] = []
        for backend in sagemaker_backends[self.id].values():
            jobs: list[Any] = list(backend.training_jobs.values())
            found += [f"training job {job.name} ({job.status})" for job in jobs if not job.has_ended]
            found += [f"warm pool of {job.name}" for job in jobs if job.pool == "Available"]
        return sorted(found)

    def s3(self, key: str, bucket: str | None = None) -> Any:
        """The JSON under `key`, or None."""
        found = self._bucket(bucket).keys.get(key)
        return None if found is None else json.loads(found.value)

    def s3_keys(self, bucket: str | None = None) -> list[str]:
        """The keys in a bucket."""
        return sorted(self._bucket(bucket).keys)

    def logged(self, name: str) -> dict[str, list[str]]:
        """The lines in each stream of a job."""
        group = logs_backends[self.id][self.region].groups.get(LOG_GROUP)
        streams = group.streams.items() if group else ()
        return {key: [e.message for e in stream.events] for key, stream in streams if key.startswith(f"{name}/")}

    # ---- what a test does to it

    @property
    def slow(self) -> Slow:
        """How long jobs take to stop."""
        return self.rules.slow

    def log(self, name: str, host: str, lines: Iterable[str], stream: str = "") -> str:
        """Puts lines into the job's stream of `host`, such as algo-1, or into `stream`; returns the stream's name."""
        with self.rules.lock:  # agent.py's jobs have several hosts
            logs, now_ms = logs_backends[self.id][self.region], int(self.rules.now().timestamp() * 1000)
            if LOG_GROUP not in logs.groups:  # AWS makes it for the first job
                logs.create_log_group(LOG_GROUP, {})
            streams = logs.groups[LOG_GROUP].streams
            known = [key for key in streams if key.startswith(f"{name}/{host}-")]
            stream = stream or (known[0] if known else f"{name}/{host}-{now_ms}")
            if stream not in streams:
                logs.create_log_stream(LOG_GROUP, stream)
            logs.put_log_events(LOG_GROUP, stream, [{"timestamp": now_ms, "message": line} for line in lines])
        return stream

    def put(self, key: str, content: bytes | str = b"", bucket: str | None = None) -> str:
        """Writes an object, and returns its URI."""
        body = content.encode() if isinstance(content, str) else content
        s3_backends[self.id]["aws"].put_object(bucket or self.bucket, key, body)
        return f"s3://{bucket or self.bucket}/{key}"

    def get(self, uri: str) -> bytes:
        """The object at an s3:// URI.  Raises KeyError, or moto's MissingBucket."""
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        return bytes(self._bucket(bucket).keys[key].value)

    def under(self, uri: str) -> list[str]:
        """The URIs of all objects that begin with this one."""
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        return [f"s3://{bucket}/{key}" for key in self.s3_keys(bucket) if key.startswith(prefix)]

    def put_json(self, key: str, content: Any, bucket: str | None = None) -> str:
        """Writes an object that is JSON, and returns its URI."""
        return self.put(key, json.dumps(content), bucket)

    def make_bucket(self, name: str, region: str = "us-east-1") -> None:
        """Another bucket."""
        s3_backends[self.id]["aws"].create_bucket(name, region)

    def make_role(self, name: str, trust: Any = TRUST) -> str:
        """A role, and its ARN; SageMaker may take it on unless `trust` says otherwise."""
        role = iam_backends[self.id]["aws"].create_role(name, json.dumps(trust), "/", None, "", [], 3600)
        return str(role.arn)

    def delete_role(self, arn: str | None = None) -> None:
        """The role is gone."""
        iam_backends[self.id]["aws"].delete_role((arn or self.role).rpartition("/")[2])

    def make_stack(self, **outputs: str) -> None:
        """What python -m launch.infra leaves: a stack that names the bucket and the role, or whatever is given."""
        named = {"Bucket": self.bucket, "SageMakerRole": self.role} | outputs
        template = {
            "Resources": {},  # they are there already
            "Outputs": {key: {"Value": value} for key, value in named.items()},
        }
        cloudformation_backends[self.id][self.region].create_stack(TOOLKIT, json.dumps(template), {})

    def _bucket(self, name: str | None) -> Any:
        return s3_backends[self.id]["aws"].get_bucket(name or self.bucket)
