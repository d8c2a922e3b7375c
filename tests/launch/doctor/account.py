"""An account in which nothing is missing, for tests that then break it; and the doctor as a user calls it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from unittest import mock

from moto.ebs.models import EBSSnapshot, ebs_backends
from moto.iam.models import iam_backends
from moto.ssm.models import ssm_backends

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.doctor import checks
from launch.doctor.__main__ import main
from launch.doctor.commands import Runtime
from launch.infra.template import filled, read
from launch.rehearse.aws.ec2.moto_patches import LAYERS
from launch.rehearse.aws.iam.policies import policy
from tests.launch.ec2.account import Account

USER = "moto"  # whom moto takes every caller for
JOB = ("--nodes", "2", "--dataset", "imagenet", "--model", "resnet18", "--epochs", "1", "--batch-size", "64")
EXT4 = bytes(1080) + b"\x53\xef" + bytes(1000)
CONFIG = {"os": "linux", "architecture": "amd64", "config": {"Env": ["CUDA_VERSION=13.0.1"]}}


@dataclass
class Patient:
    """account: what is examined; job: for which; config: what the image says of itself; later_s: our clock is ahead."""

    account: Account
    config: dict[str, Any] = field(default_factory=lambda: CONFIG)
    later_s: float = 0.0
    said: list[str] = field(default_factory=list)
    make_aws: Callable[[str | None], Aws] | None = None
    job: tuple[str, ...] = JOB
    wants: Callable[[str], bool] = lambda what: True
    run: Callable[[Sequence[str]], int] = lambda words: 1

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator["Patient"]:
        with Account.opened() as account:
            patient = cls(account)
            patient.heal()
            yield patient

    # ---- the doctor

    def examine(self, *words: str, code: int = 0) -> dict[str, dict[str, str]]:
        """Findings by their check, of `python -m launch.doctor WORDS`; of several of one check the worst."""
        assert self.type(*words, "--json") == code, self.said
        findings = json.loads(self.said[-1])["findings"]
        findings.sort(key=lambda row: ("ok", "unknown", "warning", "missing").index(row["state"]))
        return {row["check"]: row for row in findings}

    def type(self, *words: str) -> int:
        self.said.clear()
        now = datetime.now(UTC).timestamp
        clock = Clock(lambda: now() + self.later_s, lambda _: None)
        runtime = Runtime(self.make_aws or self._aws, clock, self.said.append, self._read, self.wants, self.run)
        return main([*self.job, *words], runtime)

    def _aws(self, region: str | None) -> Aws:
        return Aws(region or self.account.region, policy="doctor")

    def _read(self, url: str) -> bytes:
        assert url.startswith(LAYERS)
        return json.dumps(self.config).encode()

    # ---- what makes it well

    def heal(self) -> None:
        """Everything that launch.infra makes and moto's account lacks, and data in the snapshot."""
        aws, account = Aws(self.account.region), self.account.id
        iam = iam_backends[account]["aws"]
        for name, trust in (("node", "node-trust"), ("scheduler", "scheduler-trust")):
            role = f"aws-ddp-toolkit-{name}"
            iam.update_assume_role_policy(role, json.dumps(policy(trust)).replace("@ACCOUNT@", account))
            iam.tag_role(role, [{"Key": "aws-ddp-toolkit:stack", "Value": "us-east-1"}])
            iam.put_role_policy(role, name, json.dumps(policy(name)).replace("@ACCOUNT@", account))
        iam.create_user("us-east-1", USER)
        self.may("launcher")
        logs = {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "/aws-ddp-toolkit/images"}}
        template = json.dumps({"Resources": {"Logs": logs}})
        aws.call("cloudformation", "CreateStack", {"StackName": "aws-ddp-toolkit", "TemplateBody": template})
        aws.call("scheduler", "CreateScheduleGroup", {"Name": "aws-ddp-toolkit"})
        aws.call("scheduler", "CreateSchedule", SWEEPER)
        self.put_sweeper(read(filled(account, "us-east-1"))["Resources"]["Sweeper"]["Properties"]["Content"])
        amount = {"Amount": "500", "Unit": "USD"}
        budget = {"BudgetName": "b", "BudgetType": "COST", "TimeUnit": "MONTHLY", "BudgetLimit": amount}
        aws.call("budgets", "CreateBudget", {"AccountId": account, "Budget": budget})
        self.put_block(EXT4)

    def may(self, *names: str) -> None:
        """What the caller's policies are from now on, of infra/iam."""
        user = iam_backends[self.account.id]["aws"].users[USER]
        user.policies.clear()
        user.policies.update({name: json.dumps(policy(name)) for name in names})

    def may_only(self, name: str) -> None:
        """What one file of infra/iam allows, and nothing else."""
        content = files("infra").joinpath(f"iam/{name}.json").read_text()
        user = iam_backends[self.account.id]["aws"].users[USER]
        user.policies.clear()
        user.policies[name] = content

    def put_sweeper(self, content: Mapping[str, Any]) -> None:
        """The document that time limits start."""
        made = {"Name": "ddp-toolkit-sweeper", "DocumentType": "Automation", "DocumentFormat": "JSON"}
        ssm_backends[self.account.id][self.account.region]._documents.pop(made["Name"], None)
        text = json.dumps(content, default=str)
        Aws(self.account.region).call("ssm", "CreateDocument", {**made, "Content": text})

    def put_block(self, content: bytes) -> None:
        """The first block of the data set's snapshot."""
        ebs, name = ebs_backends[self.account.id][self.account.region], self.account.snapshot
        ebs.snapshots[name] = EBSSnapshot(account_id=self.account.id, snapshot=self.account.ec2.snapshots[name])
        ebs.put_snapshot_block(name, 0, content, None, None, len(content))


SWEEPER = {
    "Name": "aws-ddp-toolkit-sweeper",
    "ScheduleExpression": "rate(60 minutes)",
    "FlexibleTimeWindow": {"Mode": "OFF"},
    "Target": {"Arn": "arn:aws:scheduler:::aws-sdk:ssm:startAutomationExecution",
               "RoleArn": "arn:aws:iam::123456789012:role/aws-ddp-toolkit-scheduler"},
}  # fmt: skip


def only(check: str) -> Any:
    """Inside the block the doctor makes that check alone, as the others are slow and well."""
    all_of = checks.all_checks
    return mock.patch.object(
        checks, "all_checks", lambda examination: [one for one in all_of(examination) if one.name == check]
    )
