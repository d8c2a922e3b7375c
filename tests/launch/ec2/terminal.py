"""A user at the command line of launch.ec2's verbs, beside jobs that were started before; time passes as they sleep."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from launch.aws.names import Folder, group_name, tags
from launch.core.clock import Clock
from launch.core.job_verbs import job_verbs
from launch.ec2.__main__ import main
from launch.ec2.backend import Runtime
from launch.ec2.options import VerbOptions
from launch.ec2.verbs import Ec2Jobs
from tests.launch.ec2.account import Account
from trainer.errors import TrainerError


@dataclass
class Terminal:
    """said: what the verbs printed; events: what happens at each sleep, one after the other."""

    account: Account
    events: Iterator[Callable[[], None]] = field(default_factory=lambda: iter(()))
    said: list[str] = field(default_factory=list)
    later_s: float = 0.0

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: time.time() + self.later_s, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.later_s += seconds
        assert self.later_s < 7 * 86_400, "nothing ever happens:\n" + "\n".join(self.said[-20:])
        next(self.events, lambda: None)()

    def type(self, *words: str) -> int:
        """python -m launch.ec2 WORDS; returns the exit code.  `said` is of this command only."""
        self.said.clear()
        return main(words, self.runtime)

    @property
    def runtime(self) -> Runtime:
        said, results = self.said.append, self.account.results
        return Runtime(
            self.account.aws, self.clock, said, lambda: False, {}, approve=lambda what: None, results=results
        )

    def refused(self, *words: str) -> TrainerError:
        """The error that the command line `words` ends with."""
        self.said.clear()
        verb = job_verbs("python -m launch.ec2", lambda _: Ec2Jobs(self.runtime), VerbOptions)[words[0]]
        values = dict(zip(words[1::2], words[2::2], strict=True))
        try:
            verb.act(verb.options.model_validate(values))
        except TrainerError as error:
            return error
        raise AssertionError(f"nothing was refused: {self.said}")

    @property
    def text(self) -> str:
        return "\n".join(self.said)

    def start(
        self,
        job: str,
        nodes: int = 1,
        *,
        hours_ago: float = 0.0,
        hours_left: float = 12.0,
        region: str = "us-east-1",
        write: bool = True,
        bucket: str | None = None,
    ) -> list[str]:
        """A job in the middle of its life, as another terminal left it; returns its nodes' ids by rank."""
        now = datetime.now(UTC)
        started, deadline = now - timedelta(hours=hours_ago), now + timedelta(hours=hours_left)
        bucket = bucket or self.account.bucket
        tagged, ec2 = tags(job, bucket, started, deadline), self.account.aws(region)
        made = ec2.call("ec2", "CreateSecurityGroup", {
            "GroupName": group_name(job), "Description": job,
            "TagSpecifications": [{"ResourceType": "security-group", "Tags": tagged}],
        })  # fmt: skip
        ids = self._run(ec2, nodes, made["GroupId"], tagged) if nodes else []
        if write:
            times = {"started": int(started.timestamp()), "deadline": int(deadline.timestamp())}
            where = {"nodes": nodes, "instance_type": ["g5.2xlarge"], "root_gb": 150}
            spec = {"job": job, "region": region, "where": where, "train": ["--epochs", "8"], **times}
            self.account.put_json(Folder(bucket, job).spec, spec, bucket)
            rows = [{"rank": rank, "instance": name} for rank, name in enumerate(ids)]
            self.account.put_json(Folder(bucket, job).cluster, {"job": job, **times, "nodes": rows}, bucket)
        return ids

    def _run(self, aws: Any, count: int, group: str, tagged: list[dict[str, str]]) -> list[str]:
        image = self.account.ami
        if aws.region != "us-east-1":
            image = aws.call("ec2", "RegisterImage", {"Name": "some", "RootDeviceName": "/dev/sda1"})["ImageId"]
        subnet = aws.call("ec2", "DescribeSubnets")["Subnets"][0]["SubnetId"]
        disk = {"VolumeSize": 150, "VolumeType": "gp3", "DeleteOnTermination": True}
        answer = aws.call("ec2", "RunInstances", {
            "ImageId": image, "InstanceType": "g5.2xlarge", "MinCount": count, "MaxCount": count,
            "NetworkInterfaces": [
                {"DeviceIndex": 0, "SubnetId": subnet, "Groups": [group], "DeleteOnTermination": True}
            ],
            "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": disk}],
            "TagSpecifications": [
                {"ResourceType": what, "Tags": tagged} for what in ("instance", "volume", "network-interface")
            ],
        })  # fmt: skip
        return [instance["InstanceId"] for instance in answer["Instances"]]
