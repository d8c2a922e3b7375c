"""The only door to AWS: calls by AWS's own names, paging, and errors that become sentences with a remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from launch.errors import AwsError, NoAnswer, NotSetUp
from trainer.errors import TrainerError

if TYPE_CHECKING:
    import botocore.client
    from botocore.exceptions import BotoCoreError, ClientError

Answer = dict[str, Any]

# A lost answer must be noticed while the user still watches, and RunInstances for many nodes takes a while.
CONNECT_TIMEOUT_S, READ_TIMEOUT_S, ATTEMPTS = 5, 60, 6

_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedException", "403"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_INVALID_KEYS = {"AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch",
                 "InvalidAccessKeyId"}  # fmt: skip
_BUSY = {"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException", "SlowDown",
         "ServiceUnavailable", "InternalError", "InternalServerError", "InternalFailure", "Unavailable"}  # fmt: skip

# AWS's code -> what it means and what to do.  {message} is AWS's own; {region} ours.
_REMEDIES = {
    "InvalidSnapshot.NotFound": "{message}; give a snapshot of {region}, or copy it there: aws ec2 copy-snapshot.",
    "InvalidAMIID.NotFound": "{message}; give an AMI of {region} with --ami, or leave it out.",
    "InvalidAMIID.Malformed": "{message}; an AMI looks like ami-0123456789abcdef0.",
    "InvalidSubnetID.NotFound": "{message}; give subnets of {region} with --subnet, or leave it out.",
    "InvalidGroup.NotFound": "{message}; give a security group of the subnet's VPC, or leave --security-group out.",
    "ParameterNotFound": "AWS has no AMI parameter {message} in {region}; give an AMI with --ami.",
    "RepositoryNotFoundException": "{message} Make it and push the image, or give another --image.",
    "ImageNotFoundException": "{message} Push the image, or give another --image.",
    "NoSuchBucket": "there is no such bucket; make it (aws s3 mb s3://NAME --region {region}), or give another "
    "--bucket.",
    "PermanentRedirect": "the bucket is in another region than {region}; give one of {region} with --bucket, "
    "or the bucket's region with --region.",
    "IllegalLocationConstraintException": "the bucket is in another region than {region}; give another --bucket.",
    "AuthorizationHeaderMalformed": "the bucket is in another region than {region}; give another --bucket.",
    "InsufficientInstanceCapacity": "AWS has no free machines of this type here; try other --zones, another "
    "--instance-type, or later.",
    "VcpuLimitExceeded": "the account's vCPU quota is used up; ask for more under Service Quotas, EC2, or take fewer.",
    "MaxSpotInstanceCountExceeded": "the account's spot quota is used up; ask for more under Service Quotas, EC2.",
    "InvalidParameterCombination": "{message}; change the options it names.",
    "IdempotentParameterMismatch": "a job of this name was started with other settings; choose another --job-name.",
    "OptInRequired": "the account is not signed up for this; open {region} in the AWS console once.",
}


class Aws:
    """Calls to one region of one account.  endpoint and credentials come as usual, from the environment or ~/.aws.

    Raises NotSetUp at the first call without credentials.
    """

    def __init__(self, region: str | None = None, profile: str | None = None) -> None:
        self._region, self._profile = region, profile
        self._clients: dict[str, botocore.client.BaseClient] = {}
        self._session: Any = None

    @property
    def session(self) -> Any:
        """The boto3 session, made when first needed: importing it takes a fifth of a second."""
        if self._session is None:
            import boto3
            import botocore.exceptions
            import botocore.session

            core = botocore.session.Session(profile=self._profile)
            # On a laptop nobody answers at EC2's metadata address; botocore would wait seconds for it.
            core.set_config_variable("metadata_service_timeout", 0.3)
            try:
                self._session = boto3.Session(botocore_session=core, region_name=self._region)
            except botocore.exceptions.ProfileNotFound as error:
                raise NotSetUp(f"{error}; look into ~/.aws/config, or set AWS_PROFILE to another.") from error
        return self._session

    @property
    def region(self) -> str:
        """The region of all calls.  Raises NotSetUp if none is configured."""
        region: str | None = self.session.region_name
        if not region:
            raise NotSetUp("no AWS region; give --region us-east-1, or set AWS_REGION.")
        return region

    def in_region(self, region: str) -> Aws:
        """The same account in another region."""
        return Aws(region, self._profile)

    def call(self, service: str, operation: str, params: Mapping[str, Any] | None = None, /) -> Answer:
        """The answer of AWS's `operation`.  Throttled and failed calls are repeated with growing pauses.

        Raises AwsError: AWS refused; NoAnswer: whether it took effect is unknown; NotSetUp.
        """
        import botocore
        from botocore.exceptions import BotoCoreError, ClientError

        client = self._client(service)
        try:
            answer: Answer = getattr(client, botocore.xform_name(operation))(**(params or {}))
        except ClientError as error:
            raise _refused(error, service, operation, self.region) from error
        except BotoCoreError as error:
            raise _failed(error, service, operation) from error
        return answer

    def pages(self, service: str, operation: str, key: str, params: Mapping[str, Any] | None = None, /) -> list[Any]:
        """All items under `key` of a listing operation, over as many pages as it takes.  Raises as call() does."""
        import botocore
        from botocore.exceptions import BotoCoreError, ClientError

        client, items = self._client(service), list[Any]()
        name = botocore.xform_name(operation)
        try:
            if not client.can_paginate(name):
                return list(getattr(client, name)(**(params or {})).get(key, []))
            for page in client.get_paginator(name).paginate(**(params or {})):
                items += page.get(key, [])
        except ClientError as error:
            raise _refused(error, service, operation, self.region) from error
        except BotoCoreError as error:
            raise _failed(error, service, operation) from error
        return items

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            from botocore.config import Config

            config = Config(
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                user_agent_extra="aws-ddp-toolkit",
            )
            self._clients[service] = self.session.client(service, region_name=self.region, config=config)
        return self._clients[service]


def _refused(error: ClientError, service: str, operation: str, region: str) -> TrainerError:
    code, message = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
    return AwsError(sentence(code, message, f"{service}:{operation}", region), code, operation)


def sentence(code: str, message: str, action: str, region: str) -> str:
    """What AWS's error `code` for `action`, such as ec2:RunInstances, means to a user, and what to do."""
    message = message.rstrip(". ")
    action = _PERMISSIONS.get(action, action)
    if code in _DENIED:
        return f"these credentials may not {action}; the policy in {granted_by(action)} allows it, ask for it."
    if code in _EXPIRED:
        return "the AWS credentials have expired; get new ones (aws sso login), and start the same command again."
    if code in _INVALID_KEYS:
        return "AWS does not know these credentials; run `aws sts get-caller-identity`, then aws configure."
    if code in _BUSY:
        return f"AWS is busy: {action} was refused {ATTEMPTS} times ({code}); try again in a minute."
    if code in _REMEDIES:
        return _REMEDIES[code].format(message=message, region=region)
    return f"AWS refused {action}: {message or 'no reason given'} ({code})."


# Operations whose permission has another name.
_PERMISSIONS = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "service-quotas:GetServiceQuota": "servicequotas:GetServiceQuota",
}


@cache
def granted_by(action: str) -> str:
    """The file in infra/iam that grants `action`, such as ec2:RunInstances."""
    for policy in sorted(files("infra").joinpath("iam").iterdir(), key=lambda file: file.name != "launcher.json"):
        if policy.name.endswith(".json") and action in set(_actions(json.loads(policy.read_text()))):
            return f"infra/iam/{policy.name}"
    return "infra/iam/launcher.json"


def _actions(policy: Mapping[str, Any]) -> Iterator[str]:
    for statement in policy.get("Statement", ()):
        actions = statement.get("Action", ())
        yield from [actions] if isinstance(actions, str) else actions


def _failed(error: BotoCoreError, service: str, operation: str) -> TrainerError:
    """What never reached AWS, or never came back from it."""
    from botocore import exceptions

    action, text = f"{service}:{operation}", " ".join(str(error).split())
    if isinstance(error, (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)):
        return NotSetUp("no AWS credentials; run aws configure or aws sso login, or set AWS_PROFILE.")
    if isinstance(error, (exceptions.TokenRetrievalError, exceptions.UnauthorizedSSOTokenError,
                          exceptions.SSOTokenLoadError, exceptions.CredentialRetrievalError)):  # fmt: skip
        return NotSetUp(f"the AWS credentials cannot be had: {text}; run aws sso login.")
    if isinstance(error, exceptions.ParamValidationError):
        raise error  # our request is wrong: a bug, with its traceback
    if isinstance(error, (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError)):
        return AwsError(f"AWS cannot be reached for {action}: {text}; look at the network and --region.", "", operation)
    what = re.sub(r"[.:].*", "", text) or type(error).__name__
    return NoAnswer(
        f"no answer to {action} ({what}): whether it took effect is not known; look at the network.", "", operation
    )
