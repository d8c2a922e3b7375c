"""An AWS account in moto's backends that is set up for launches on EC2.

Names are literals, not imported, because users who set up their account by hand rely on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.ec2.models import ec2_backends
from moto.iam.exceptions import EntityAlreadyExists
from moto.iam.models import iam_backends
from moto.scheduler.models import scheduler_backends
from moto.ssm.models import Parameter, ssm_backends

from launch.aws.names import DATA_TAG, TOOLKIT
from launch.rehearse.aws import account
from launch.rehearse.aws.batch.moto_patches import active
from launch.rehearse.aws.ec2.instances import end
from launch.rehearse.aws.ec2.rules import Rules

PROFILE, SCHEDULER_ROLE = f"{TOOLKIT}-node", f"{TOOLKIT}-scheduler"
PUBLISHER = f"{TOOLKIT}-publisher"  # the instance profile of launch.data publish --by instance
AMI_PARAMETER = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
AMAZON_LINUX = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
AMAZON_LINUX_NAME = "al2023-ami-2023.9.20261101.0-kernel-6.1-x86_64"
AMI_NAME = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20261101"


@dataclass
class Ec2Account(account.Account):
    """One region of moto's account, with EC2."""

    rules: Rules = field(default_factory=Rules)

    @property
    def ec2(self) -> Any:
        """moto's own EC2 of the region."""
        return ec2_backends[self.id][self.region]

    # ---- setting it up

    def fill(self) -> None:
        """Set up the account as in infra/account.md, without data."""
        self.fill_region()
        self.make_roles()

    def fill_region(self) -> None:
        """Set up the resources that exist in each region."""
        self.add_internet_route()
        self.make_ami()
        self.make_image(TOOLKIT)
        self.make_bucket(self.bucket)

    def add_internet_route(self) -> None:
        """Add an internet gateway and a route to it to the default VPC, as AWS does."""
        vpc, gateway = self.ec2.get_default_vpc().id, self.ec2.create_internet_gateway()
        self.ec2.attach_internet_gateway(gateway.id, vpc)
        (table,) = self.ec2.describe_route_tables(filters={"vpc-id": [vpc]})
        self.ec2.create_route(table.id, "0.0.0.0/0", gateway_id=gateway.id)

    def remove_internet_route(self) -> None:
        """Remove the route to the internet."""
        (table,) = self.ec2.describe_route_tables(filters={"vpc-id": [self.ec2.get_default_vpc().id]})
        self.ec2.delete_route(table.id, "0.0.0.0/0")

    def make_snapshot(self, dataset: str, gib: int, hours_old: float = 0, state: str = "completed") -> str:
        """Create a snapshot that holds a data set; return its ID."""
        volume = self.ec2.create_volume(size=gib, zone_name=f"{self.region}a", volume_type="gp3")
        snapshot = self.ec2.create_snapshot(volume.id, f"{dataset}, prepared")
        self.ec2.delete_volume(volume.id)
        snapshot.start_time, snapshot.status = snapshot.start_time - timedelta(hours=hours_old), state
        snapshot.add_tags({DATA_TAG: dataset})
        return str(snapshot.id)

    def make_ami(self) -> str:
        """Create the AMI that AWS's parameter names; return its ID."""
        return self._make_ami(AMI_NAME, "/dev/sda1", AMI_PARAMETER)

    def make_amazon_linux(self) -> str:
        """Create Amazon Linux's AMI, and the parameter that names it; return its ID."""
        return self._make_ami(AMAZON_LINUX_NAME, "/dev/xvda", AMAZON_LINUX)

    def _make_ami(self, name: str, root: str, parameter_name: str) -> str:
        ami = self.ec2.register_image(name=name)
        ami.root_device_name, ami.owner_alias = root, "amazon"
        # PutParameter refuses names under /aws.
        parameter = Parameter(  # type: ignore[abstract]
            account_id=self.id, name=parameter_name, value=ami.id, parameter_type="String", description=None,
            allowed_pattern=None, keyid=None, last_modified_date=datetime.now(UTC), version=1, data_type="text",
        )  # fmt: skip
        ssm_backends[self.id][self.region]._parameters[parameter_name].append(parameter)
        return str(ami.id)

    def make_roles(self) -> None:
        """Create the roles of nodes and of time limits."""
        self.make_profile(PROFILE)
        self.make_profile(PUBLISHER)
        self.make_role(SCHEDULER_ROLE)

    def make_profile(self, name: str) -> None:
        """Create a role and the instance profile that gives it to nodes."""
        self.make_role(name)
        iam = iam_backends[self.id]["aws"]
        with suppress(EntityAlreadyExists):
            iam.create_instance_profile(name, "/", [])
            iam.add_role_to_instance_profile(name, name)

    # ---- what it contains

    def _resources(self) -> Iterator[str]:
        for backend in ec2_backends[self.id].values():
            yield from _resources_of(backend)
        yield from (f"placement group {name}" for name in list(self.rules.placement_groups))
        yield from (f"job in a queue {job.request['jobName']}" for job in active(self.rules))
        for schedules in scheduler_backends[self.id].values():
            for group in list(schedules.schedule_groups.values()):
                yield from (f"schedule {name}" for name in list(group.schedules))

    # ---- what happens to it

    def kill(self, instance_id: str, reason: str) -> None:
        """End a node, for `reason` in EC2's words."""
        end(self.rules, self.ec2.get_instance(instance_id), reason)


def _resources_of(backend: Any) -> Iterator[str]:
    """The resources in one region's EC2."""
    yield from (f"instance {node.id}" for node in backend.all_instances() if node.state != "terminated")
    yield from (f"volume {name}" for name in list(backend.volumes))
    yield from (f"network interface {name}" for name in list(backend.enis))
    yield from (f"address {address.allocation_id}" for address in list(backend.addresses))
    yield from (f"snapshot {name}" for name in list(backend.snapshots))
    for groups in list(backend.groups.values()):
        yield from (f"security group {group.id}" for group in list(groups.values()) if group.name != "default")
