"""The checks that every request passes before its service: throttling, IAM, access to S3, and DryRun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from launch.rehearse.aws.gate import Asked, Check, guarded
from launch.rehearse.aws.iam.callers import Caller, authorized
from launch.rehearse.aws.iam.policies import Policy, policy
from launch.rehearse.aws.iam.view import view_of
from launch.rehearse.aws.pricing import priced
from launch.rehearse.aws.refusal import Refusal
from launch.rehearse.aws.s3 import heads_have_no_body, hidden, one_write_at_a_time
from launch.rehearse.aws.throttling import Throttling

# "If you have the required permissions, the error response is DryRunOperation. Otherwise, it is
# UnauthorizedOperation."  https://docs.aws.amazon.com/AWSEC2/latest/APIReference/CommonParameters.html
WOULD_SUCCEED = Refusal(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")


@dataclass
class Access:
    """callers: who has which policies, by access key; who is none of them may do all.

    tokens: of callers, for server.served; groups: placement groups, by name; others: further checks.
    """

    callers: dict[str, Caller] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    throttling: Throttling = field(default_factory=Throttling)
    groups: Mapping[str, Any] = field(default_factory=dict)
    others: list[Check] = field(default_factory=list)

    def add(self, key: str, arn: str, name: str, *more: Policy) -> Caller:
        """Whoever signs with `key` has the policies in infra/iam for `name`, and `more`."""
        self.callers[key] = Caller(arn, (policy(name), *more))
        return self.callers[key]

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Inside the block, moto asks before it answers."""
        checks = (self._throttled, authorized(self.callers, self._view), hidden(self.callers), _dry_run, *self.others)
        with guarded(checks), heads_have_no_body(), one_write_at_a_time(), priced():
            yield

    def _throttled(self, asked: Asked) -> Refusal | None:
        return self.throttling.check(asked)

    def _view(self, account: str, region: str) -> Any:
        return view_of(account, region, self.groups)


def _dry_run(asked: Asked) -> Refusal | None:
    is_dry = asked.call.service == "ec2" and asked.call.params.get("DryRun")
    return WOULD_SUCCEED if is_dry else None
