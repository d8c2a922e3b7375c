"""An AWS account as launch.sagemaker finds it: that of a rehearsal, for launchers in this process.

with SageMakerAccount.opened() as account:
    account.quota["ml.g5.12xlarge for training job usage"] = 0
    launch...(account.aws())
    complete(account.jobs["NAME"], seconds=600, metrics={"test:accuracy": 0.9})
    assert account.left() == []
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from moto.cloudformation.models import cloudformation_backends
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends
from moto.sagemaker.models import sagemaker_backends

from launch.rehearse.aws.sagemaker import account as rehearsed
from launch.rehearse.aws.sagemaker.account import LOG_GROUP
from launch.rehearse.aws.sagemaker.moto_patches import patched
from launch.rehearse.aws.sagemaker.rules import Rules
from tests.launch.account import TOOLKIT, Asked, opened
from tests.launch.faults import Request

__all__ = ["LOG_GROUP", "SageMakerAccount"]


class SageMakerAccount(Asked, rehearsed.SageMakerAccount):
    """capacity, quota: see rules.Rules.  requests: every call since it was opened."""

    role = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/{TOOLKIT}-sagemaker"

    def __init__(self, rules: Rules) -> None:
        super().__init__(self.region, rules=rules)
        self.capacity, self.quota = rules.capacity, rules.quota
        self.requests: list[Request] = []
        self.fill()

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator["SageMakerAccount"]:
        """A new account, until the end of the block.  Only one at a time."""
        rules = Rules()
        with opened(lambda: cls(rules), patched(rules)) as account:
            yield account

    # ---- what a test asks it

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

    def s3_keys(self, bucket: str | None = None) -> list[str]:
        """The keys in a bucket."""
        return sorted(self.objects(bucket))

    # ---- what a test does to it

    def write(self, key: str, content: bytes | str = b"", bucket: str | None = None) -> str:
        """Writes an object, and returns its URI."""
        self.put(bucket or self.bucket, key, content.encode() if isinstance(content, str) else content)
        return f"s3://{bucket or self.bucket}/{key}"

    def put_json(self, key: str, content: Any, bucket: str | None = None) -> str:
        """Writes an object that is JSON, and returns its URI."""
        return self.write(key, json.dumps(content), bucket)

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
