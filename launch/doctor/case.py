"""The job whose account is examined, and the look-ups that several checks share, each made once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from launch.core.aws import Aws
from launch.core.catalog import Instance
from launch.core.instance.subnets import Subnet, find_subnets
from launch.core.job import Job
from launch.core.names import bucket_of
from launch.core.network import Exit
from launch.doctor.findings import NotExamined
from launch.ec2 import lookup
from launch.ec2.describe import describe
from launch.ec2.facts import Ami, Facts, Snapshot
from launch.ec2.requests import Cluster
from launch.ec2.resolved import Resolved as Ec2Resolved
from launch.sagemaker import checks as sagemaker_checks
from trainer.errors import TrainerError

Found = TypeVar("Found")
NAME = "doctor"  # the job's name in requests that are simulated


@dataclass(frozen=True)
class Identity:
    """Whose credentials these are.  principal: the ARN of the user or role; user_id: IAM's aws:userid."""

    account: str
    principal: str
    user_id: str = ""

    @property
    def is_root(self) -> bool:
        return self.principal.endswith(":root")


@dataclass(frozen=True)
class Case:
    """resolved: of the job's backend; now: UTC; read: the content of a URL that AWS has signed."""

    aws: Aws
    job: Job[Any]
    resolved: Ec2Resolved | sagemaker_checks.Resolved
    identity: Identity
    now: datetime
    read: Callable[[str], bytes]
    _found: dict[str, Any] = field(default_factory=dict)

    @property
    def backend(self) -> str:
        """ec2 or sagemaker."""
        return "ec2" if isinstance(self.resolved, Ec2Resolved) else "sagemaker"

    @property
    def region(self) -> str:
        return self.aws.region

    @property
    def account(self) -> str:
        return self.identity.account

    @property
    def bucket(self) -> str:
        """Where the job's folder would be."""
        bucket: str | None = self.resolved.options.bucket
        return bucket or bucket_of(self.account, self.region)

    @property
    def ec2(self) -> Ec2Resolved:
        """The choices of a job on EC2."""
        assert isinstance(self.resolved, Ec2Resolved)
        return self.resolved

    @property
    def sagemaker(self) -> sagemaker_checks.Resolved:
        """The choices of a job on SageMaker."""
        assert isinstance(self.resolved, sagemaker_checks.Resolved)
        return self.resolved

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The types that the job may run on."""
        return self.resolved.instances

    # ---- shared look-ups

    def once(self, what: str, look: Callable[[], Found]) -> Found:
        """What look() finds, asked once.  Raises its error to the first who asks, and NotExamined to all others."""
        if what not in self._found:
            try:
                self._found[what] = look()
            except TrainerError:
                self._found[what] = NotExamined(f"not examined: it needs the {what}")
                raise
        found: Found | NotExamined = self._found[what]
        if isinstance(found, NotExamined):
            raise found
        return found

    @property
    def subnets(self) -> tuple[Subnet, ...]:
        options = self.ec2.options
        return self.once("subnets", lambda: find_subnets(self.aws, options.subnet, options.zones))

    @property
    def ami(self) -> Ami:
        return self.once("AMI", lambda: lookup.find_ami(self.aws, self.ec2.options.ami))

    @property
    def image(self) -> str:
        """The URI of EC2's container, with its digest where it is in the account's own registry."""
        return self.once(
            "image", lambda: lookup.find_image(self.aws, self.ec2.options.image, self.account, self.region)
        )

    @property
    def snapshot(self) -> Snapshot | None:
        dataset = self.job.train.dataset
        return self.once("snapshot", lambda: lookup.find_snapshot(self.aws, self.ec2, None, dataset))

    @property
    def exits(self) -> Mapping[str, Exit]:
        """How nodes leave each subnet, by its id."""
        return self.once("routes", lambda: lookup.find_exits(self.aws, self.subnets))

    @property
    def facts(self) -> Facts:
        """What a launch would know, as far as these look-ups go.  Raises TrainerError where one of them fails."""
        return Facts(
            region=self.region,
            account=self.account,
            owner=self.identity.user_id,
            subnets=self.subnets,
            exits=self.exits,
            ami=self.ami,
            image=self.image,
            snapshot=self.snapshot,
            scheduler_role=f"arn:aws:iam::{self.account}:role/{self.ec2.options.scheduler_role}",
            now=self.now,
        )

    def cluster(self, facts: Facts) -> Cluster:
        """What EC2's requests are made of."""
        return describe(self.job, self.ec2, NAME, facts)[0]
