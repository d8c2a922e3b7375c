"""Translate errors of AWS and botocore into one sentence each with a remedy; launch.aws.client makes the calls."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from launch.aws import denials
from launch.core.errors import NotSetUp
from trainer.errors import one_line

ATTEMPTS = 6  # for a request that AWS throttles or fails

DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedException", "403"}
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
INVALID_KEYS = {"AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch",
                "InvalidAccessKeyId", "InvalidSignatureException", "RequestTimeTooSkewed"}  # fmt: skip
# AWS failed, so the request may have taken effect.  Answers to HEAD, and those of proxies before a service, have only
# the status as their code.  Other codes are recognized by their status: see may_have_taken_effect().
UNCLEAR = {"InternalError", "InternalErrorException", "InternalFailure", "InternalServerError",
           "InternalServerException", "ServiceUnavailable", "ServiceUnavailableException", "Unavailable",
           "500", "502", "503", "504"}  # fmt: skip
# Throttled, and without effect; these are the codes that botocore retries.
THROTTLED = {"RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
             "RequestThrottledException", "TooManyRequestsException", "BandwidthLimitExceeded", "SlowDown",
             "429"}  # fmt: skip
BUSY = THROTTLED | UNCLEAR  # after botocore has made ATTEMPTS attempts
# No capacity: a retry in the same zone is useless, another zone may have some.  EC2 says so with the status 500.
NO_CAPACITY = {"InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
               "InsufficientVolumeCapacity", "UnfulfillableCapacity", "InsufficientCapacity"}  # fmt: skip


def may_have_taken_effect(code: str, status: int) -> bool:
    """Whether AWS failed instead of refusing.  The codes differ between services; a status of 500 or more is common."""
    is_refusal = status < 500 or code in {*THROTTLED, *NO_CAPACITY, "NotImplemented"} or code.startswith("Insufficient")
    return code in UNCLEAR or not is_refusal


# AWS's code -> what it means and what to do.  {message} is AWS's own; {region} the caller's.
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
    "VcpuLimitExceeded": "the account's vCPU quota is used up; take fewer, or ask for more with the command "
    "that python -m launch.doctor prints.",
    "MaxSpotInstanceCountExceeded": "the account's spot quota is used up; ask for more with the command that python -m "
    "launch.doctor prints.",
    "InvalidParameterCombination": "{message}; change the options it names.",
    "IdempotentParameterMismatch": "a job of this name was started with other settings; choose another --job-name.",
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": "the account has never used spot instances; ask its "
    "administrator to run: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    "AccountLimitExceededException": "the account has reached its limit of concurrent builds: {message}; wait for "
    "other builds, or ask for more with\n  {more_builds}",
    "OptInRequired": "the account has not enabled {region}: {message}; enable it under Account, AWS Regions in the "
    "console (aws account enable-region --region-name {region}), which takes minutes to hours.",
    "PendingVerification": "AWS is still verifying the account for {region}, which takes minutes, rarely up to four "
    "hours; start the same command again later, or with --wait-for-capacity HOURS.",
}


# Regions that every account has.  Where another is not enabled, most services answer that the keys are invalid.
# https://docs.aws.amazon.com/accounts/latest/reference/manage-acct-regions.html
DEFAULT_REGIONS = {
    "us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "sa-east-1", "eu-central-1", "eu-north-1",
    "eu-west-1", "eu-west-2", "eu-west-3", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1",
    "ap-southeast-1", "ap-southeast-2",
}  # fmt: skip


def quota_increase(service: str, code: str, value: float, region: str) -> str:
    """The command that asks AWS for a higher quota.

    https://docs.aws.amazon.com/cli/latest/reference/service-quotas/request-service-quota-increase.html
    """
    return (
        f"aws service-quotas request-service-quota-increase --service-code {service} --quota-code {code} "
        f"--desired-value {value:g} --region {region}"
    )


# Of the compute type in infra/cloudformation/account.yaml: https://docs.aws.amazon.com/codebuild/latest/userguide/limits.html
BUILDS = "Concurrently running builds for Linux/Small environment"


def increase_by_name(service: str, name: str, value: float, region: str) -> str:
    """quota_increase() for a quota whose code is unknown here: the command looks it up by name.

    Among the defaults, as a new account may not list all of the applied quotas:
    https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_ListServiceQuotas.html
    """
    query = f"Quotas[?QuotaName=='{name}'].QuotaCode"
    listed = f"aws service-quotas list-aws-default-service-quotas --service-code {service} --region {region}"
    return quota_increase(service, f'$({listed} --query "{query}" --output text)', value, region)


def sentence(code: str, message: str, action: str, region: str, policy: str = "launcher") -> str:
    """A sentence and a remedy for AWS's error `code` of `action`, such as ec2:RunInstances."""
    code, message = _precise(code, message), message.rstrip(". ")
    if code in DENIED:
        denial = denials.parse(message, PERMISSIONS.get(action, action))
        return denials.explain(denial, granted_by(denial.action, policy))
    if code in EXPIRED:
        return "the AWS credentials have expired; get new ones (aws sso login), then try again."
    if code in INVALID_KEYS:
        words = f"AWS does not accept these credentials in {region}"
        if region not in DEFAULT_REGIONS:
            return _REMEDIES["OptInRequired"].format(message=words, region=region)
        return f"{words}; check `aws sts get-caller-identity` and this machine's clock."
    if code in BUSY:
        return f"AWS is busy: {action} was refused {ATTEMPTS} times ({code}); try again in a minute."
    if code in _REMEDIES:
        more_builds = increase_by_name("codebuild", BUILDS, 2, region)
        return _REMEDIES[code].format(message=message, region=region, more_builds=more_builds)
    return f"AWS refused {action}: {message or 'no reason given'} ({code})."


def _precise(code: str, message: str) -> str:
    """The code; for an AMI that the account may not use, where AWS returns AuthFailure, that of a missing one."""
    return "InvalidAMIID.NotFound" if code == "AuthFailure" and "images" in message else code


def is_forbidden(code: str, message: str) -> bool:
    """Whether a policy of the organization denies it for the whole account."""
    return code in DENIED and denials.is_by_organization(message)


# What services answer for a role that they do not know yet, or may not assume yet: EC2 (terraform-provider-aws#27516),
# SageMaker (predictive-maintenance-using-machine-learning#3), EventBridge Scheduler (aws-sdk-js-v3#6494), CodeBuild.
_NEW_ROLE = re.compile(r"Invalid IAM Instance Profile|Could not assume role|assume the role|perform: sts:AssumeRole")


def may_be_too_early(code: str, message: str) -> bool:
    """Whether it is denied, but by no policy's explicit decision: permissions, tags and roles take effect late.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html#troubleshoot_general_eventual-consistency
    """
    if code not in DENIED:
        return _NEW_ROLE.search(message) is not None
    denial = denials.parse(message, "")
    return not denial.is_explicit and denial.kind in denials.MAY_BE_TOO_EARLY


# Operations whose permission has another name.
PERMISSIONS = {
    "budgets:CreateBudget": "budgets:ModifyBudget",
    "budgets:DeleteBudget": "budgets:ModifyBudget",
    "budgets:DescribeBudget": "budgets:ViewBudget",
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
    """The file in infra/iam that grants `action`, such as ec2:RunInstances; `policy` if several do; "" if none does."""
    folder = files("infra").joinpath("iam")
    policies = folder.iterdir() if folder.is_dir() else ()
    for file in sorted(policies, key=lambda file: _rank(file.name, policy)):
        if file.name.endswith(".json") and action in set(actions(json.loads(file.read_text()))):
            return f"infra/iam/{file.name}"
    return ""


def _rank(file: str, policy: str) -> tuple[bool, bool, bool, bool, str]:
    """The order of preference among policies that grant an action: first `policy`, then a launcher's."""
    return (
        file != f"{policy}.json",
        file != "launcher.json",
        file != "reader.json",
        not file.startswith(("launcher", "reader")),
        file,
    )


def actions(policy: Mapping[str, Any]) -> Iterator[str]:
    """The actions in a policy's statements."""
    for statement in policy.get("Statement", ()):
        named = statement.get("Action", ())
        yield from [named] if isinstance(named, str) else named


PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
# Part of the name of botocore's class for a source of credentials -> its settings in the environment or a profile.
SOURCES = {
    "WebIdentity": ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "web_identity_token_file", "role_arn"),
    "AssumeRole": ("role_arn", "source_profile", "credential_source", "mfa_serial"),
    "Process": ("credential_process",),
    "SSO": ("sso_session", "sso_start_url", "sso_account_id", "sso_role_name", "sso_region"),
    "Login": ("login_session",),
    "Container": ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                  "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN"),
}  # fmt: skip
SIGN_ON = ("SSO", "Login")
FILES = {"AWS_CONFIG_FILE": "config_file", "AWS_SHARED_CREDENTIALS_FILE": "credentials_file"}  # variable -> botocore's
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
CREDENTIALS = ("botocore.credentials", "botocore.tokens")  # botocore's modules that find them
SHORTEST = 3  # characters of a setting's value that is searched for in an error


@contextmanager
def in_words(session: Any) -> Iterator[None]:
    """Attribute any error inside the block, which makes a session or a client, to the configuration.

    session: botocore's.  Raises NotSetUp.
    """
    from botocore.exceptions import BotoCoreError

    try:
        yield
    except (BotoCoreError, ValueError, OSError, LookupError, EOFError) as error:
        if _is_connection(error):
            raise
        raise not_set_up(error, session) from error


def is_of_credentials(error: BaseException) -> bool:
    """Whether it was raised while finding or renewing credentials, other than by a lost connection."""
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError) or _is_connection(error):
        return False
    return any(module in CREDENTIALS for module, _ in _frames(error))


def _is_connection(error: BaseException) -> bool:
    from botocore.exceptions import ConnectionError, HTTPClientError

    return isinstance(error, (ConnectionError, HTTPClientError))


def is_of_setting(error: BaseException, session: Any) -> bool:
    """Whether a setting prevented the request, such as a proxy without a URL, or a value that the error quotes."""
    from botocore.exceptions import HTTPClientError

    cause = error.kwargs.get("error") if isinstance(error, HTTPClientError) else None
    return isinstance(cause, ValueError) and bool(_mentioned(str(cause), session) or _proxies())


def check_bundle(session: Any) -> None:
    """Raise NotSetUp for unreadable certificates, which botocore would report only on connecting."""
    bundle = session.get_config_variable("ca_bundle")
    if not bundle:
        return
    try:
        ssl.create_default_context(**{"capath" if Path(bundle).is_dir() else "cafile": bundle})
    except (OSError, ValueError) as error:
        words = f"the certificates in {one_line(bundle, 200)} cannot be read ({one_line(error, 200)})"
        raise NotSetUp(f"{words}; check AWS_CA_BUNDLE, or ca_bundle in the profile.") from error


def not_set_up(error: BaseException, session: Any) -> NotSetUp:
    """The error for an AWS configuration that does not work."""
    from botocore import exceptions

    cause = error.kwargs.get("error") if isinstance(error, exceptions.HTTPClientError) else error
    text = one_line(str(cause) or type(error).__name__, 300).rstrip(".: ")
    if isinstance(error, exceptions.NoCredentialsError):
        remedy = "run aws configure or aws sso login, or set AWS_PROFILE."
        return NotSetUp(unreadable(session) or f"no AWS credentials; {remedy}")
    if isinstance(error, exceptions.PartialCredentialsError):
        return NotSetUp(f"the AWS credentials are incomplete: {text}; set that, too, or run aws configure.")
    if isinstance(error, exceptions.ProfileNotFound):
        return NotSetUp(f"{text}; check ~/.aws/config, or set AWS_PROFILE to another profile.")
    return _of_source(error, cause, text, session)


def _of_source(error: BaseException, cause: BaseException | None, text: str, session: Any) -> NotSetUp:
    """The error for a source of credentials, a region or an endpoint, with the setting that it comes from."""
    from botocore import exceptions

    source = _source(error)
    if source in SIGN_ON or isinstance(error, (exceptions.TokenRetrievalError, exceptions.SSOError)):
        return NotSetUp(f"the AWS credentials cannot be loaded: {text}; run aws sso login.")
    settings = _mentioned(text, session) or _set(SOURCES.get(source, ()), session)
    settings = settings or (_proxies() if cause is not error else [])
    check = " and ".join(settings) or "~/.aws/config and the AWS_ variables"
    if isinstance(error, exceptions.InvalidRegionError):
        return NotSetUp(f"{text}; check {check}, or give --region us-east-1." if settings else
                        f"{text}; give --region us-east-1, or set AWS_DEFAULT_REGION.")  # fmt: skip
    what = "the AWS credentials cannot be loaded" if source else "the AWS configuration does not work"
    return NotSetUp(f"{what}: {text}; check {check}.")


def check_keys(credentials: Any) -> None:
    """Raise NotSetUp for keys with a blank or a line break, which cannot sign requests."""
    from botocore.credentials import RefreshableCredentials

    if credentials is None or isinstance(credentials, RefreshableCredentials):  # AWS's own
        return
    for name, key in zip(KEYS, credentials.get_frozen_credentials(), strict=False):
        if re.search(r"[^!-~]", key or ""):
            raise NotSetUp(f"{name} has a blank or a line break in it ({credentials.method}); set it again.")


def unreadable(session: Any) -> str:
    """A sentence if AWS's configuration files exist and cannot be read, as botocore would take them for empty."""
    for variable, name in FILES.items():
        path, is_named = Path(session.get_config_variable(name)).expanduser(), bool(os.environ.get(variable))
        try:
            path.open("rb").close()
        except OSError as error:
            if is_named or not isinstance(error, FileNotFoundError):
                place = f"{variable}={path}" if is_named else path
                return f"{one_line(str(place), 300)} cannot be read ({error.strerror}); fix it, or give another file."
    return ""


def _frames(error: BaseException) -> Iterator[tuple[str, str]]:
    """Module and class of each function in the error's traceback."""
    place = error.__traceback__
    while place is not None:
        frame = place.tb_frame
        yield str(frame.f_globals.get("__name__")), type(frame.f_locals.get("self")).__name__
        place = place.tb_next


def _source(error: BaseException) -> str:
    """The failed one of SOURCES; "" if none."""
    names = [name for module, name in _frames(error) if module in CREDENTIALS]
    return next((source for name in reversed(names) for source in SOURCES if source in name), "")


def _profile(session: Any) -> tuple[str, dict[str, Any]]:
    """The name of the profile in use, and its settings."""
    name = session.get_config_variable("profile") or "default"
    try:
        profiles = session.full_config.get("profiles", {})
    except Exception:  # an invalid configuration file, which is already being reported
        profiles = {}
    return name, profiles.get(name, {})


def _mentioned(text: str, session: Any) -> list[str]:
    """The variables and settings of the profile whose value, or its first word, the error contains."""
    name, settings = _profile(session)
    values = {one: value for one, value in os.environ.items() if one.startswith("AWS_") or one.upper() in PROXIES}
    values |= {f"{one} in profile {name}": value for one, value in settings.items() if isinstance(value, str)}
    return [one for one, value in sorted(values.items()) if _is_in(value.split(), text)]


def _proxies() -> list[str]:
    return sorted(name for name, value in os.environ.items() if name.upper() in PROXIES and value)


def _is_in(words: list[str], text: str) -> bool:
    """Whether the text contains all of a value, or its first word."""
    return any(len(part) >= SHORTEST and part in text for part in (" ".join(words), *words[:1]))


def _set(names: tuple[str, ...], session: Any) -> list[str]:
    """Those that are set, in the environment or in the profile."""
    profile, settings = _profile(session)
    found = [name for name in names if os.environ.get(name)]
    return found + [f"{name} in profile {profile}" for name in names if name in settings]
