"""Who asks, and what IAM refuses them.

A denied call changes nothing: AWS authorizes a request before it looks at anything else.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic_policy-eval-denyallow.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from launch.rehearse.aws.call import Call
from launch.rehearse.aws.gate import Asked, Check
from launch.rehearse.aws.iam.account import AccountView
from launch.rehearse.aws.iam.needs import needs
from launch.rehearse.aws.iam.policies import Need, Policy, allows
from launch.rehearse.aws.refusal import Refusal

# How each service words it; others say AccessDeniedException, with status 400.
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html#CommonErrors
# https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html#ErrorCodeList
WORDS = {"ec2": (403, "UnauthorizedOperation"), "s3": (403, "AccessDenied"), "iam": (403, "AccessDenied"),
         "sts": (403, "AccessDenied"), "cloudformation": (403, "AccessDenied"),
         "scheduler": (403, "AccessDeniedException")}  # fmt: skip
# Never refused: https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html
ALWAYS = {"sts:GetCallerIdentity"}

# What moto answers who asks who they are.
MOTOS_USER_ID = "AKIAIOSFODNN7EXAMPLE"

View = Callable[[str, str], AccountView]


@dataclass
class Caller:
    """A user or a role.

    policies: all it has; user_id: IAM's aws:userid; granted, refused: the needs of its calls so far.
    """

    arn: str
    policies: tuple[Policy, ...]
    user_id: str = MOTOS_USER_ID
    granted: list[Need] = field(default_factory=list)
    refused: list[Need] = field(default_factory=list)

    def may(self, need: Need) -> bool:
        return allows(self.policies, self._asked(need))

    def _asked(self, need: Need) -> Need:
        """The need with what IAM knows of who asks."""
        return replace(need, context={"aws:userid": self.user_id, **need.context})

    def lacks(self, call: Call, view: AccountView) -> Need | None:
        """The first need of a call that is not granted."""
        for need in map(self._asked, needs(call, view)):
            if str(call) not in ALWAYS and not self.may(need):
                self.refused.append(need)
                return need
            self.granted.append(need)
        return None


def authorized(callers: Mapping[str, Caller], view: View) -> Check:
    """The check by IAM.  callers: by access key; who is none of them is an administrator."""

    def check(asked: Asked) -> Refusal | None:
        caller = callers.get(asked.key)
        if caller is None:
            return None
        need = caller.lacks(asked.call, view(asked.account, asked.region))
        return None if need is None else denied(asked.call.service, caller, need)

    return check


def denied(service: str, caller: Caller, need: Need) -> Refusal:
    """https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html"""
    status, code = WORDS.get(service, (400, "AccessDeniedException"))
    why = f"because no identity-based policy allows the {need.action} action"
    words = f"User: {caller.arn} is not authorized to perform: {need.action} on resource: {need.resource} {why}"
    prefix = "You are not authorized to perform this operation. " if service == "ec2" else ""
    return Refusal(status, code, prefix + words)
