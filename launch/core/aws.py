"""The only module that calls AWS: operations by AWS's names, paging, and errors as sentences with a remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any

from launch.core.errors import AwsError, Forbidden, NoAnswer, NotSetUp
from trainer.errors import TrainerError

if TYPE_CHECKING:
    import botocore.client
    from botocore.exceptions import BotoCoreError

Answer = dict[str, Any]

# Short enough for a user who watches to notice a lost answer; RunInstances for many nodes needs a while.
CONNECT_TIMEOUT_S, READ_TIMEOUT_S, ATTEMPTS = 5, 60, 6
METADATA_TIMEOUT_S = 0.2  # for each of two questions

DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedException", "403"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_INVALID_KEYS = {"AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch",
                 "InvalidAccessKeyId", "InvalidSignatureException", "RequestTimeTooSkewed"}  # fmt: skip
# The request may have taken effect.  Answers to HEAD have no code but the status.
_UNCLEAR = {"InternalError", "InternalServerError", "InternalFailure", "ServiceUnavailable", "Unavailable",
            "500", "503"}  # fmt: skip
_BUSY = {"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException", "SlowDown"} | _UNCLEAR
# No capacity: a retry in the same zone is useless, another zone may have some.
_NO_CAPACITY = {"InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
            "InsufficientVolumeCapacity"}  # fmt: skip

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


class Aws:
    """Calls to one region of one account.  Endpoint and credentials come from the environment or ~/.aws, as usual.

    policy: the file in infra/iam that grants what this caller needs; errors name it.

    Raises NotSetUp at the first call without credentials.
    """

    def __init__(self, region: str | None = None, profile: str | None = None, policy: str = "launcher") -> None:
        self._region, self._profile, self._policy = region, profile, policy
        self._clients: dict[str, botocore.client.BaseClient] = {}
        self._session: Any = None
        self._unclear = False  # whether an attempt of the current call may have taken effect unnoticed

    @property
    def session(self) -> Any:
        """The boto3 session, created when first needed: the import takes a fifth of a second."""
        if self._session is None:
            try:
                import boto3
            except ModuleNotFoundError as error:
                words = "boto3 is not installed; run pip install -c constraints.txt -e '.[aws]' in the checkout."
                raise NotSetUp(words) from error
            import botocore.exceptions
            import botocore.session
            from botocore.configprovider import ConstantProvider

            core = botocore.session.Session(profile=self._profile)
            # A laptop has no EC2 metadata service; botocore would wait seconds for it.
            settings = core.get_component("config_store")
            settings.set_config_provider("metadata_service_timeout", ConstantProvider(METADATA_TIMEOUT_S))
            try:
                self._session = boto3.Session(botocore_session=core, region_name=self._region)
            except botocore.exceptions.BotoCoreError as error:
                raise _not_set_up(error) from error
        return self._session

    @property
    def region(self) -> str:
        """The region of all calls.  Raises NotSetUp if none is configured."""
        region: str | None = self.session.region_name
        if not region:
            raise NotSetUp("no AWS region; give --region us-east-1, or set AWS_DEFAULT_REGION.")
        return region

    def call(self, service: str, operation: str, params: Mapping[str, Any] | None = None, /) -> Answer:
        """The answer of AWS's `operation`.  Throttled and failed calls are repeated with growing pauses.

        Raises AwsError: AWS refused; NoAnswer: whether it took effect is unknown; NotSetUp.
        """
        import botocore

        with self.in_words(service, operation):
            send = getattr(self.client(service), botocore.xform_name(operation))
            answer: Answer = send(**(params or {}))
            if "Body" in answer:  # a stream, which can break off, too
                answer["Body"] = BytesIO(answer["Body"].read())
        return answer

    def pages(self, service: str, operation: str, key: str, params: Mapping[str, Any] | None = None, /) -> list[Any]:
        """All items under `key` of a listing operation, over as many pages as it takes.  Raises as call() does."""
        import botocore

        name, items = botocore.xform_name(operation), list[Any]()
        with self.in_words(service, operation):
            client = self.client(service)
            if not client.can_paginate(name):
                return list(getattr(client, name)(**(params or {})).get(key, []))
            for page in client.get_paginator(name).paginate(**(params or {})):
                items += page.get(key, [])
        return items

    @contextmanager
    def in_words(self, service: str, operation: str) -> Iterator[None]:
        """Translates botocore's errors inside the block, for `operation` made through client()."""
        from botocore.exceptions import BotoCoreError, ClientError

        self._unclear = False
        try:
            yield
        except ClientError as error:
            code, message = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
            refused = NoAnswer if self._unclear else Forbidden if _is_forbidden(code, message) else AwsError
            words = sentence(code, message, f"{service}:{operation}", self.region, self._policy)
            raise refused(words, code, operation) from error
        except BotoCoreError as error:
            raise _failed(error, service, operation, self._unclear) from error

    def client(self, service: str) -> Any:
        """boto3's client for `service`, for libraries that make their own calls; wrap those in in_words()."""
        if service not in self._clients:
            from botocore.config import Config

            config = Config(
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                user_agent_extra="aws-ddp-toolkit",
            )
            client = self.session.client(service, region_name=self.region, config=config)
            client.meta.events.register("response-received", self._note_attempt)
            # Registered under the service's name, as botocore's handler is, so that it runs before the general ones.
            name = client.meta.service_model.service_id.hyphenize()
            client.meta.events.register_first(f"needs-retry.{name}", _is_no_capacity)
            self._clients[service] = client
        return self._clients[service]

    def _note_attempt(self, exception: Exception | None, parsed_response: Answer | None, **_: Any) -> None:
        """Notes whether any attempt may have taken effect, even if the last one never left this machine."""
        code = (parsed_response or {}).get("Error", {}).get("Code")
        self._unclear |= code in _UNCLEAR or (exception is not None and not _never_sent(exception))


def _is_no_capacity(response: tuple[Any, Answer] | None, **_: Any) -> bool | None:
    """False where a retry is useless; botocore would otherwise retry every 5xx for half a minute."""
    return False if response and response[1].get("Error", {}).get("Code") in _NO_CAPACITY else None


def _never_sent(error: Exception) -> bool:
    """Whether the request cannot have reached AWS."""
    from botocore import exceptions

    unconnected = (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError, exceptions.ProxyConnectionError)
    return isinstance(error, unconnected) or (isinstance(error, exceptions.SSLError) and "CERTIFICATE" in str(error))


def sentence(code: str, message: str, action: str, region: str, policy: str = "launcher") -> str:
    """A sentence and a remedy for AWS's error `code` of `action`, such as ec2:RunInstances."""
    message = message.rstrip(". ")
    # A request may need other permissions, too: RunInstances passes a role and creates tags.
    denied = re.search(r"not authorized to perform: ([\w-]+:\w+)", message)
    action = denied[1] if denied else _PERMISSIONS.get(action, action)
    if _is_forbidden(code, message):
        return f"the organization forbids {action} in {region} to everybody in the account; choose another region."
    if code in DENIED:
        return (
            f"these credentials may not {action}; ask for the policy in {granted_by(action, policy)}, which allows it."
        )
    if code in _EXPIRED:
        return "the AWS credentials have expired; get new ones (aws sso login), and start the same command again."
    if code in _INVALID_KEYS:
        return (
            f"AWS does not accept these credentials in {region}; check `aws sts get-caller-identity`, this machine's "
            "clock, and whether the region is enabled for the account."
        )
    if code in _BUSY:
        return f"AWS is busy: {action} was refused {ATTEMPTS} times ({code}); try again in a minute."
    if code in _REMEDIES:
        return _REMEDIES[code].format(message=message, region=region)
    return f"AWS refused {action}: {message or 'no reason given'} ({code})."


def _is_forbidden(code: str, message: str) -> bool:
    """Whether a policy of the organization denies it, which nobody in the account can change.
    https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
    """
    return code in DENIED and "explicit deny in a service control policy" in message


# Operations whose permission has another name.
_PERMISSIONS = {
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
    for file in sorted(policies, key=lambda file: (file.name != f"{policy}.json", file.name != "launcher.json")):
        if file.name.endswith(".json") and action in set(_actions(json.loads(file.read_text()))):
            return f"infra/iam/{file.name}"
    return "infra/iam/launcher.json"


def _actions(policy: Mapping[str, Any]) -> Iterator[str]:
    for statement in policy.get("Statement", ()):
        actions = statement.get("Action", ())
        yield from [actions] if isinstance(actions, str) else actions


def _failed(error: BotoCoreError, service: str, operation: str, unclear: bool) -> TrainerError:
    """The error for a request or an answer that was lost.  unclear: whether it may have taken effect."""
    from botocore import exceptions

    action, text = f"{service}:{operation}", " ".join(str(error).split()).rstrip(". ")
    if isinstance(error, exceptions.ParamValidationError):
        raise error  # our request is wrong: a bug, with its traceback
    broken_off = (exceptions.ReadTimeoutError, exceptions.ResponseStreamingError, exceptions.IncompleteReadError)
    if unclear or isinstance(error, broken_off):
        what = re.sub(r"[.:].*", "", text) or type(error).__name__
        words = f"no answer to {action} ({what}): whether it took effect is unknown; check the network."
        return NoAnswer(words, "", operation)
    if isinstance(error, exceptions.SSLError):
        words = (
            f"the TLS certificate for {action} is not trusted: {text}; set AWS_CA_BUNDLE to your proxy's certificate."
        )
        return AwsError(words, "", operation)
    if _never_sent(error):
        return AwsError(f"AWS cannot be reached for {action}: {text}; check the network and --region.", "", operation)
    return _not_set_up(error)


def _not_set_up(error: BotoCoreError) -> NotSetUp:
    """The error for an AWS configuration that does not work."""
    from botocore import exceptions

    text = " ".join(str(error).split()).rstrip(".: ")
    if isinstance(error, (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)):
        return NotSetUp("no AWS credentials; run aws configure or aws sso login, or set AWS_PROFILE.")
    if isinstance(error, (exceptions.TokenRetrievalError, exceptions.SSOError, exceptions.CredentialRetrievalError)):
        return NotSetUp(f"the AWS credentials cannot be loaded: {text}; run aws sso login.")
    if isinstance(error, exceptions.ProfileNotFound):
        return NotSetUp(f"{text}; check ~/.aws/config, or set AWS_PROFILE to another profile.")
    if isinstance(error, exceptions.InvalidRegionError):
        return NotSetUp(f"{text}; give --region us-east-1, or set AWS_DEFAULT_REGION.")
    return NotSetUp(f"the AWS configuration does not work: {text}; check ~/.aws/config and the AWS_ variables.")
