"""SageMaker's limits on the length and number of values in a request, checked per flag before any call.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html and the types that it names.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from launch.sagemaker.channels import Channel
from launch.sagemaker.options import SageMakerOptions
from trainer.errors import SettingsError

MOST_TAGS, OWN_TAGS = 50, 10  # the toolkit's own are fewer
_TAG = r"[\w .:/=+\-@]*"


@dataclass(frozen=True)
class Limit:
    """A limit on a flag's values."""

    most: int  # values
    longest: int  # characters of each
    pattern: str = r"[\S\s]*"  # of each
    allows: str = ""  # the pattern in words


TAG_NAMES = Limit(MOST_TAGS - OWN_TAGS, 128, _TAG, "letters, digits, spaces and _ . : / = + - @")
TAG_VALUES = Limit(MOST_TAGS - OWN_TAGS, 256, _TAG, TAG_NAMES.allows)
VARIABLES = Limit(90, 512)  # of 100: the toolkit adds some
SUBNETS = Limit(16, 32, r"[-0-9a-zA-Z]+", "ids such as subnet-0123456789abcdef0")
GROUPS = Limit(5, 32, r"[-0-9a-zA-Z]+", "ids such as sg-0123456789abcdef0")
KEY = Limit(1, 2048, r"[a-zA-Z0-9:/_-]*", "a key's id, ARN or alias")
IMAGE = Limit(1, 255)
PLACES = Limit(20, 1024)
PLACES_BESIDE_A_SCRIPT = Limit(19, 1024)  # the script takes one channel


def check_limits(
    options: SageMakerOptions,
    tags: Mapping[str, str],
    variables: Mapping[str, str],
    channels: Iterable[Channel],
    *,
    has_script: bool,
) -> None:
    """Raise SettingsError for values that SageMaker would reject.  variables: of --environment and --secret."""
    _check("--tags", tags.keys(), TAG_NAMES)
    _check("--tags", tags.values(), TAG_VALUES)
    _check("--environment and --secret", variables.keys(), VARIABLES)
    for name, value in variables.items():
        if len(value) > VARIABLES.longest:  # not repeated: it may be a secret
            raise SettingsError(f"--environment {name}: SageMaker takes {VARIABLES.longest} characters; shorten it.")
    _check("--subnet", options.subnet, SUBNETS)
    _check("--security-group", options.security_group, GROUPS)
    _check("--kms-key", [options.kms_key or ""], KEY)
    _check("--image", [options.image or ""], IMAGE)
    _check("--data", [channel.place for channel in channels], PLACES_BESIDE_A_SCRIPT if has_script else PLACES)


def _check(flag: str, values: Iterable[str], limit: Limit) -> None:
    given = tuple(values)
    if len(given) > limit.most:
        raise SettingsError(
            f"{flag}: SageMaker takes {limit.most} beside the toolkit's own; leave {len(given) - limit.most} out."
        )
    for value in given:
        if len(value) > limit.longest:
            raise SettingsError(f"{flag} {value[:40]}...: SageMaker takes {limit.longest} characters; shorten it.")
        if not re.fullmatch(limit.pattern, value):
            raise SettingsError(f"{flag} {value}: SageMaker takes {limit.allows}.")
