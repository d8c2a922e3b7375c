"""An AWS account as a launch finds it: moto in this process, mended (mended.py) and filled.

with Account.opened() as account:
    account.capacity["us-east-1a"] = 0
    launch...(account.aws())
    account.kill(account.nodes[0].id)
    assert account.left() == []
"""

import functools
import gc
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

import botocore.loaders
from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.ecr.models import ecr_backends
from moto.iam.models import iam_backends
from moto.s3.models import s3_backends
from moto.scheduler.models import scheduler_backends
from moto.ssm.models import Parameter, ssm_backends

from launch.aws import Aws
from launch.rehearse.ec2 import Rules, Slow, end, mended
from tests.launch.faults import Request, listen, watched

# Written out and not imported: these are promises to whoever set up the account by hand.
TOOLKIT = "aws-ddp-toolkit"
PROFILE, SCHEDULER_ROLE = f"{TOOLKIT}-node", f"{TOOLKIT}-scheduler"
AMI_PARAMETER = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
SPOT_INTERRUPTION = "Server.SpotInstanceTermination: Spot instance termination"

_loader = functools.cache(botocore.loaders.create_loader)


def _shared_loader(path: str | None = None) -> Any:
    """botocore's reader of its models, which keeps what it has read: that takes longer than a launch under moto."""
    loader = _loader(path)
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)  # every boto3 session adds its own
    return loader


@functools.cache
def _leave_what_stays_alone() -> None:
    """Once: botocore's models and moto's tables are a million objects that garbage collection would look through."""
    gc.collect()
    gc.freeze()


class Account:
    """capacity, quota, spot_usd, slow: see mended.Rules.  requests: every call since it was opened."""

    id = DEFAULT_ACCOUNT_ID
    region = "us-east-1"
    bucket = f"{TOOLKIT}-{DEFAULT_ACCOUNT_ID}-us-east-1"

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.capacity, self.quota, self.spot_usd = rules.capacity, rules.quota, rules.spot_usd
        self.requests: list[Request] = []
        self.snapshot = self.make_snapshot("imagenet", 150, hours_old=24)
        self.ami = self._make_ami()
        self.image_digest = self._make_image()
        self._make_roles()
        self.make_bucket(self.bucket)
        self._at_first = set(self._everything())

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator["Account"]:
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
        return sorted(set(self._everything()) - self._at_first)

    def _everything(self) -> list[str]:
        found: list[str] = []
        for backend in ec2_backends[self.id].values():
            found += [f"instance {i.id} ({i.state})" for i in backend.all_instances() if i.state != "terminated"]
            found += [f"volume {v.id}" for v in backend.volumes.values()]
            found += [f"network interface {i.id}" for i in backend.enis.values()]
            found += [f"address {a.allocation_id}" for a in backend.addresses]
            found += [f"snapshot {s.id}" for s in backend.snapshots.values()]
            groups = [group for vpc in backend.groups.values() for group in vpc.values() if group.name != "default"]
            found += [f"security group {group.id}" for group in groups]
        found += [f"placement group {name}" for name in self.rules.placement_groups]
        for backend in scheduler_backends[self.id].values():
            names = [name for group in backend.schedule_groups.values() for name in group.schedules]
            found += [f"schedule {name}" for name in names]
        return found

    def s3(self, key: str, bucket: str | None = None) -> Any:
        """The JSON under `key`, or None."""
        found = s3_backends[self.id]["aws"].buckets[bucket or self.bucket].keys.get(key)
        return None if found is None else json.loads(found.value)

    def s3_keys(self, bucket: str | None = None) -> list[str]:
        """The keys in a bucket."""
        return sorted(s3_backends[self.id]["aws"].buckets[bucket or self.bucket].keys)

    # ---- what a test does to it

    @property
    def ec2(self) -> Any:
        """moto's own EC2 of the region, for what nothing here is for."""
        return ec2_backends[self.id][self.region]

    @property
    def slow(self) -> Slow:
        """How long nodes take to come and go."""
        return self.rules.slow

    def kill(self, instance_id: str, reason: str = SPOT_INTERRUPTION) -> None:
        """Ends a node from outside, as EC2 does with a spot node."""
        end(self.rules, self.ec2.get_instance(instance_id), reason)

    def forget(self, instance_id: str) -> None:
        """EC2 shows a terminated node for about an hour, and then knows nothing of it."""
        for reservation in self.ec2.reservations.values():
            reservation.instances = [i for i in reservation.instances if i.id != instance_id]

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

    def make_bucket(self, name: str, region: str = "us-east-1") -> None:
        """Another bucket."""
        s3_backends[self.id]["aws"].create_bucket(name, region)

    def make_snapshot(self, dataset: str, gib: int, hours_old: float = 0, state: str = "completed") -> str:
        """A snapshot that holds a data set."""
        volume = self.ec2.create_volume(size=gib, zone_name=f"{self.region}a", volume_type="gp3")
        snapshot = self.ec2.create_snapshot(volume.id, f"{dataset}, prepared")
        snapshot.start_time, snapshot.status = snapshot.start_time - timedelta(hours=hours_old), state
        snapshot.add_tags({f"{TOOLKIT}:dataset": dataset})
        return str(snapshot.id)

    # ---- how it is filled

    def _make_ami(self) -> str:
        ec2 = self.ec2
        ami = ec2.register_image(name="Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20261101")
        ami.root_device_name = "/dev/sda1"
        # PutParameter refuses names under /aws.
        parameter = Parameter(
            account_id=self.id, name=AMI_PARAMETER, value=ami.id, parameter_type="String", description=None,
            allowed_pattern=None, keyid=None, last_modified_date=datetime.now(UTC), version=1, data_type="text",
        )  # fmt: skip
        ssm_backends[self.id][self.region]._parameters[AMI_PARAMETER].append(parameter)
        return str(ami.id)

    def _make_image(self) -> str:
        ecr, media = ecr_backends[self.id][self.region], "application/vnd.docker.distribution.manifest.v2+json"
        ecr.create_repository(TOOLKIT, None, None, None, None, None)
        manifest = {"schemaVersion": 2, "mediaType": media, "layers": [], "config": {"digest": "sha256:1"}}
        image = ecr.put_image(TOOLKIT, json.dumps(manifest), "latest", media)
        return str(image.get_image_digest())

    def _make_roles(self) -> None:
        iam, trust = iam_backends[self.id]["aws"], {"Version": "2012-10-17", "Statement": []}
        for name in (PROFILE, SCHEDULER_ROLE):
            iam.create_role(name, json.dumps(trust), "/", None, "", [], 3600)
        iam.create_instance_profile(PROFILE, "/", [])
        iam.add_role_to_instance_profile(PROFILE, PROFILE)
