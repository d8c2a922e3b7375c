"""What AWS's refusals mean, in one sentence each with a remedy.  Pure: launch.aws.client makes the calls."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

ATTEMPTS = 6  # for a request that AWS throttles or fails

DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedException", "403"}
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
INVALID_KEYS = {"AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch",
                "InvalidAccessKeyId", "InvalidSignatureException", "RequestTimeTooSkewed"}  # fmt: skip
# The request may have taken effect: AWS failed.  Answers to HEAD, and those of what stands before a service, have no
# code but the status.  Which other codes say so tells the status: see may_have_taken_effect().
UNCLEAR = {"InternalError", "InternalErrorException", "InternalFailure", "InternalServerError",
           "InternalServerException", "ServiceUnavailable", "ServiceUnavailableException", "Unavailable",
           "500", "502", "503", "504"}  # fmt: skip
# Not done, as there were too many requests: botocore knows them by these names, too.
THROTTLED = {"RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
             "RequestThrottledException", "TooManyRequestsException", "BandwidthLimitExceeded", "SlowDown",
             "429"}  # fmt: skip
BUSY = THROTTLED | UNCLEAR  # botocore has repeated the request ATTEMPTS times by then
# No capacity: a retry in the same zone is useless, another zone may have some.  EC2 says so with the status 500.
NO_CAPACITY = {"InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
               "InsufficientVolumeCapacity", "UnfulfillableCapacity", "InsufficientCapacity"}  # fmt: skip


def may_have_taken_effect(code: str, status: int) -> bool:
    """Whether AWS failed, and did not refuse.  Services have codes of their own for that, and 500 or more in common."""
    is_refusal = status < 500 or code in {*THROTTLED, *NO_CAPACITY, "NotImplemented"} or code.startswith("Insufficient")
    return code in UNCLEAR or not is_refusal


# AWS's code -> what it means and what to do.  {message} is AWS's own; {region} ours.
_REMEDIES = {
    "InvalidSnapshot.NotFound": "{message}; give a snapshot of {region}, or copy it there: aws ec2 copy-snapshot.",
    "InvalidAMIID.NotFound": "{message}; give an AMI of {region} with --ami, or leave it out.",
    "InvalidAMIID.Malformed": "{message}; an AMI looks like ami-0123456789abcdef0.",
    "InvalidSubnetID.NotFound": "{message}; give subnets of {region} with --subnet, or leave it out.",
    "InvalidGroup.NotFound": "{message}; give a security group of the subnet's VPC, or leave --security-group out.",
    "InvalidCapacityReservationId.NotFound": "{message}; give one of {region}, or leave it out.",
    "ParameterNotFound": "AWS has no AMI parameter {message} in {region}; give an AMI with --ami.",
    "RepositoryNotFoundException": "{message} Create it (python -m launch.infra up) and push the image (python -m "
    "launch.image push), or give another --image.",
    "ImageNotFoundException": "{message} Push the image (python -m launch.image push), or give another --image.",
    "NoSuchBucket": "there is no such bucket; create it (aws s3 mb s3://NAME --region {region}), or give another "
    "--bucket.",
    "PermanentRedirect": "the bucket is in another region than {region}; give one of {region} with --bucket, "
    "or the bucket's region with --region.",
    "IllegalLocationConstraintException": "the bucket is in another region than {region}; give another --bucket.",
    "AuthorizationHeaderMalformed": "the bucket is in another region than {region}; give another --bucket.",
    "InsufficientInstanceCapacity": "AWS has no capacity for this type here; try other --zones, another "
    "--instance-type, or later.",
    "VcpuLimitExceeded": "the account's vCPU quota is used up; ask for more under Service Quotas, EC2, or take fewer.",
    "MaxSpotInstanceCountExceeded": "the account's spot quota is used up; ask for more under Service Quotas, EC2.",
    "InvalidParameterCombination": "{message}; change the options it names.",
    "IdempotentParameterMismatch": "a job of this name was started with other settings; choose another --job-name.",
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": "the account has never used spot instances; ask its "
    "administrator to run: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    "AccountLimitExceededException": "the account has reached its limit of concurrent builds: {message}; wait for "
    "other builds, or ask for more under Service Quotas, CodeBuild.",
    "OptInRequired": "the account is not signed up for this; open {region} in the AWS console once.",
}


def sentence(code: str, message: str, action: str, region: str, policy: str = "launcher") -> str:
    """A sentence and a remedy for AWS's error `code` of `action`, such as ec2:RunInstances."""
    code, message = _precise(code, message), message.rstrip(". ")
    # A request may need other permissions, too: RunInstances passes a role and creates tags.
    denied = re.search(r"not authorized to perform: ([\w-]+:\w+)", message)
    action = denied[1] if denied else PERMISSIONS.get(action, action)
    if is_forbidden(code, message):
        return f"the organization forbids {action} in {region} to everybody in the account; choose another region."
    if code in DENIED:
        return (
            f"these credentials may not {action}; ask for the policy in {granted_by(action, policy)}, which allows it."
        )
    if code in EXPIRED:
        return "the AWS credentials have expired; get new ones (aws sso login), and start the same command again."
    if code in INVALID_KEYS:
        return (
            f"AWS does not accept these credentials in {region}; check `aws sts get-caller-identity`, this machine's "
            "clock, and whether the region is enabled for the account."
        )
    if code in BUSY:
        return f"AWS is busy: {action} was refused {ATTEMPTS} times ({code}); try again in a minute."
    if code in _REMEDIES:
        return _REMEDIES[code].format(message=message, region=region)
    return f"AWS refused {action}: {message or 'no reason given'} ({code})."


def _precise(code: str, message: str) -> str:
    """The code; for an AMI that the account may not use, which AWS calls AuthFailure, that of a missing one."""
    return "InvalidAMIID.NotFound" if code == "AuthFailure" and "images" in message else code


def is_forbidden(code: str, message: str) -> bool:
    """Whether a policy of the organization denies it, which nobody in the account can change.
    https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
    """
    return code in DENIED and "explicit deny in a service control policy" in message


# Operations whose permission has another name.
PERMISSIONS = {
    "budgets:DescribeBudgets": "budgets:ViewBudget",
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "s3:HeadBucket": "s3:ListBucket",
    "s3:HeadObject": "s3:GetObject",
    "s3:ListObjectsV2": "s3:ListBucket",
    "service-quotas:GetServiceQuota": "servicequotas:GetServiceQuota",
    "service-quotas:ListServiceQuotas": "servicequotas:ListServiceQuotas",
}


@cache
def granted_by(action: str, policy: str = "launcher") -> str:
    """The file in infra/iam that grants `action`, such as ec2:RunInstances; `policy` if several do."""
    folder = files("infra").joinpath("iam")
    policies = folder.iterdir() if folder.is_dir() else ()
    for file in sorted(policies, key=lambda file: _turn(file.name, policy)):
        if file.name.endswith(".json") and action in set(_actions(json.loads(file.read_text()))):
            return f"infra/iam/{file.name}"
    return "infra/iam/launcher.json"


def _turn(file: str, policy: str) -> tuple[bool, bool, bool, str]:
    """Which of the policies that grant something is named: first the one that was asked for, then a launcher's."""
    return file != f"{policy}.json", file != "launcher.json", not file.startswith(("launcher", "reader")), file


def _actions(policy: Mapping[str, Any]) -> Iterator[str]:
    for statement in policy.get("Statement", ()):
        actions = statement.get("Action", ())
        yield from [actions] if isinstance(actions, str) else actions
