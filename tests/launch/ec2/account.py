"""An AWS account as a launch finds it: that of a rehearsal, for launchers in this process.

with Account.opened() as account:
    account.capacity["us-east-1a"] = 0
    launch...(account.aws())
    account.kill(account.nodes[0].id)
    assert account.left() == []
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from moto.s3.models import s3_backends

from launch.rehearse.aws.ec2 import account as rehearsed
from launch.rehearse.aws.ec2.account import AMI_PARAMETER, PROFILE, SCHEDULER_ROLE
from launch.rehearse.aws.ec2.moto_patches import patched
from launch.rehearse.aws.ec2.rules import Rules, Slow
from tests.launch.account import TOOLKIT, Asked, opened
from tests.launch.faults import Request, pauses, without_pauses

__all__ = ["AMI_PARAMETER", "PROFILE", "SCHEDULER_ROLE", "SPOT_INTERRUPTION", "TOOLKIT", "Account"]

SPOT_INTERRUPTION = "Server.SpotInstanceTermination: Spot instance termination"


class Account(Asked, rehearsed.Ec2Account):
    """capacity, quota, spot_usd, slow: see rules.Rules.  requests: every call since it was opened.

    results: the folder into which its launchers fetch.
    """

    results: Path

    def __init__(self, rules: Rules) -> None:
        super().__init__(self.region, rules=rules)
        self.capacity, self.quota, self.spot_usd = rules.capacity, rules.quota, rules.spot_usd
        self.requests: list[Request] = []
        self.add_internet_route()
        self.snapshot = self.make_snapshot("imagenet", 150, hours_old=24)
        self.ami = self.make_ami()
        self.image_digest = self.make_image(TOOLKIT)
        self.make_roles()
        self.make_bucket(self.bucket)
        self._at_first = self.resources()

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator["Account"]:
        """A new account, until the end of the block.  Only one at a time."""
        rules = Rules()
        rules.access.throttling.now = pauses.now
        with opened(lambda: cls(rules), patched(rules)) as account, without_pauses(), TemporaryDirectory() as results:
            account.results = Path(results)
            yield account

    # ---- what a test asks it

    @property
    def nodes(self) -> list[Any]:
        """moto's instances in the region that are not terminated: .id, .state, .instance_type, .placement.zone, ..."""
        return [instance for instance in self.ec2.all_instances() if instance.state != "terminated"]

    @property
    def subnets(self) -> dict[str, str]:
        """The default VPC's subnets, by zone."""
        return {zone: subnet.id for zone, subnet in sorted(self.ec2.get_default_subnets().items())}

    def left(self) -> list[str]:
        """What costs money or carries the toolkit's tag, in any region, beyond what was there at first.

        Looks into moto; S3 and logs are meant to stay and are not in it.
        """
        return sorted(self.resources() - self._at_first)

    def s3_keys(self, bucket: str | None = None) -> list[str]:
        """The keys in a bucket."""
        return sorted(self.objects(bucket))

    # ---- what a test does to it

    @property
    def slow(self) -> Slow:
        """How long nodes take to come and go."""
        return self.rules.slow

    def kill(self, instance_id: str, reason: str = SPOT_INTERRUPTION) -> None:
        """Ends a node from outside, as EC2 does with a spot node."""
        super().kill(instance_id, reason)

    def forget(self, instance_id: str) -> None:
        """EC2 shows a terminated node for about an hour, and then knows nothing of it."""
        for reservation in self.ec2.reservations.values():
            reservation.instances = [i for i in reservation.instances if i.id != instance_id]

    def use_dns(self, *servers: str) -> str:
        """Gives the default VPC these DNS servers; returns its id."""
        vpc = self.ec2.get_default_vpc()
        self.ec2.associate_dhcp_options(self.ec2.create_dhcp_options(domain_name_servers=list(servers)), vpc)
        return str(vpc.id)

    def reserve(self, zone: str, instance_type: str, count: int, state: str = "active") -> str:
        """A capacity reservation or block with `count` machines free."""
        name = f"cr-{len(self.rules.reservations):017x}"
        self.rules.reservations[name] = SimpleNamespace(
            capacity_reservation_id=name,
            availability_zone=zone,
            instance_type=instance_type,
            available_instance_count=count,
            total_instance_count=count,
            state=state,
        )
        return name

    def put_json(self, key: str, content: Any, bucket: str | None = None) -> None:
        """Writes into a bucket, as a node would."""
        s3_backends[self.id]["aws"].put_object(bucket or self.bucket, key, json.dumps(content).encode())
