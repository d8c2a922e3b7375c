"""A real account, with the caller's own credentials."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from launch.aws.client import Aws
from launch.core.errors import AwsError

# The oldest process with a local rank: the worker, which torchrun started, and not those that load its data.  The
# container shares the node's process ids.
FIND = "grep -lsz '^LOCAL_RANK=0$' /proc/[0-9]*/environ | sort -t/ -k3n | head -n 1 | cut -d/ -f3"
KILL = f'worker=$({FIND}); [ -n "$worker" ] || {{ echo "no worker runs here"; exit 1; }}; kill -9 "$worker"'
SENT_S, ASK_EVERY_S = 120.0, 2.0  # until a node has carried a command out
OVER = ("Success", "Failed", "Cancelled", "TimedOut")
KEY_APPEARS_S = 15  # until all of AWS knows a new key
READ_ONLY = "arn:aws:iam::aws:policy/ReadOnlyAccess"
EVERYTHING = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}'


@dataclass
class RealPlace:
    """See suite.Place."""

    region: str
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    short_h: float = 0.17  # ten minutes, of which booting takes about half
    epochs: int = 1500
    patience_s: float = 1900.0

    @property
    def name(self) -> str:
        return self.region

    def kill_worker(self, aws: Aws, instance: str) -> str:
        """By Run Command, which Session Manager's agent carries out; waits until it has."""
        try:
            sent = aws.call("ssm", "SendCommand", {
                "InstanceIds": [instance], "DocumentName": "AWS-RunShellScript", "Parameters": {"commands": [KILL]},
            })["Command"]["CommandId"]  # fmt: skip
        except AwsError as error:
            return str(error)
        give_up, answer = time.monotonic() + SENT_S, {"Status": "not known to AWS"}
        while answer["Status"] not in OVER and time.monotonic() < give_up:
            time.sleep(ASK_EVERY_S)
            with suppress(AwsError):  # InvocationDoesNotExist, for a moment
                answer = aws.call("ssm", "GetCommandInvocation", {"CommandId": sent, "InstanceId": instance})
        said = f"{answer.get('StandardOutputContent', '')} {answer.get('StandardErrorContent', '')}".strip()
        return "" if answer["Status"] == "Success" else f"{answer['Status']}: {said}"

    @contextmanager
    def without_rights(self, aws: Aws, name: str, *, bounded: bool = False) -> Iterator[dict[str, str]]:
        """A user without policies, and a key of its own, which are removed again."""
        with new_user(aws, name, bounded=bounded) as key:
            time.sleep(KEY_APPEARS_S)
            yield key


@contextmanager
def new_user(aws: Aws, name: str, *, bounded: bool) -> Iterator[dict[str, str]]:
    """The environment of a new IAM user: without any right, or with all and a boundary that leaves reading.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/access_policies_boundaries.html
    """
    aws.call("iam", "CreateUser", {"UserName": name, **({"PermissionsBoundary": READ_ONLY} if bounded else {})})
    try:
        if bounded:
            aws.call("iam", "PutUserPolicy", {"UserName": name, "PolicyName": "all", "PolicyDocument": EVERYTHING})
        key = aws.call("iam", "CreateAccessKey", {"UserName": name})["AccessKey"]
        try:
            names = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
            yield names
        finally:
            aws.call("iam", "DeleteAccessKey", {"UserName": name, "AccessKeyId": key["AccessKeyId"]})
    finally:
        with suppress(AwsError):
            aws.call("iam", "DeleteUserPolicy", {"UserName": name, "PolicyName": "all"})
        with suppress(AwsError):
            aws.call("iam", "DeleteUser", {"UserName": name})
