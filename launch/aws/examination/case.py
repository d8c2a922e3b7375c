"""Types of an examination: what a backend's jobs need of an account, the case that checks examine, and findings.

A case is one job in one region.  The queries are in permissions.py, image.py and the checks.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from launch.aws.client import Aws
from launch.aws.lookup import SET_UP
from launch.aws.names import JOB_TAG, bucket_of
from launch.aws.upload import FOLDER as SOURCES
from launch.core.errors import AwsError, NoAnswer
from launch.core.job import Job
from trainer.errors import TrainerError

# ---- findings: the results of a check, and what an error of AWS means for it

State = Literal["ok", "warning", "missing", "unknown"]

# AWS's codes for something that does not exist.
_ABSENT = re.compile(r"NotFound|NoSuch|Malformed|Unknown$|^404$|InvalidCapacityReservation")


@dataclass(frozen=True)
class Verdict:
    """One thing that a check found."""

    state: State
    text: str  # what is there, or is missing
    remedy: str = ""  # the command that fixes it


@dataclass(frozen=True)
class Finding:
    """A verdict, with the name of its check."""

    check: str
    verdict: Verdict


class NotExamined(TrainerError):
    """A check needs what an earlier one did not find."""


def ok(text: str) -> Verdict:
    return Verdict("ok", text)


def warning(text: str, remedy: str) -> Verdict:
    return Verdict("warning", text, remedy)


def missing(text: str, remedy: str) -> Verdict:
    return Verdict("missing", text, remedy)


def unknown(text: str, remedy: str = "") -> Verdict:
    return Verdict("unknown", text, remedy)


def of_error(error: TrainerError, remedy: str) -> Verdict:
    """The verdict for an error of a check: missing for the toolkit's own errors, unknown for AWS's refusals."""
    text = str(error).splitlines()[0]
    if isinstance(error, NotExamined):
        return unknown(text)
    if isinstance(error, NoAnswer):
        return unknown(text, "run the same command again")
    if isinstance(error, AwsError) and error.operation and not _ABSENT.search(error.aws_code):
        return unknown(text, split(text)[1])
    return missing(text, remedy)


def split(sentence: str) -> tuple[str, str]:
    """Splits a launcher's sentence into the problem and its remedy."""
    text, _, remedy = sentence.partition("; ")
    return text, remedy.rstrip(".")


# ---- rights that jobs need, for IAM's simulation
#
# {ACCOUNT} and the like are filled in before each call; infra/iam grants all of them.

NAME = "doctor"  # the job's name in requests that are simulated


@dataclass(frozen=True)
class Right:
    """Actions on resources: each of the actions on each of the resources."""

    actions: Sequence[str]
    resources: Sequence[str]
    context: Mapping[str, str] = field(default_factory=dict)


ROLE = "arn:aws:iam::{ACCOUNT}:role/"
LOGS = "arn:aws:logs:{REGION}:{ACCOUNT}:log-group:"
FOLDER = "arn:aws:s3:::{BUCKET}/jobs/{JOB}/"
SOURCE = f"arn:aws:s3:::{{BUCKET}}/{SOURCES}/x"
TAGGED, CARRIES = ({f"aws:{what}/{JOB_TAG}": NAME} for what in ("RequestTag", "ResourceTag"))
OWN_ACCOUNT = {"s3:ResourceAccount": "{ACCOUNT}", "aws:PrincipalAccount": "{ACCOUNT}"}

# What every launcher does with a job's folder.
JOB_FOLDER = (
    Right(["s3:GetObject", "s3:PutObject"], [f"{FOLDER}job.json"], OWN_ACCOUNT),
    Right(["s3:ListBucket"], ["arn:aws:s3:::{BUCKET}"], OWN_ACCOUNT),
)

# What a job with a script of the user's own needs as well: its source is sent once, and every rank reads it.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes-enforce.html
READS_SOURCE = (Right(["s3:GetObject"], [SOURCE], OWN_ACCOUNT),)
SENDS_SOURCE = (Right(["s3:PutObject"], [SOURCE], {**OWN_ACCOUNT, "s3:if-none-match": "*"}), *READS_SOURCE)


# ---- the case, and what a backend says of its jobs

Found = TypeVar("Found")
Resolved = TypeVar("Resolved")

POLICY = "doctor"  # the file in infra/iam that grants what an examination asks beyond a launcher's look-ups


@dataclass(frozen=True)
class Identity:
    """The user or role of the credentials."""

    account: str
    principal: str  # its ARN
    user_id: str = ""  # IAM's aws:userid

    @property
    def is_root(self) -> bool:
        return self.principal.endswith(":root")


@dataclass(frozen=True)
class Case(Generic[Resolved]):
    """One job in one region, as its checks examine it."""

    examination: "Examination"  # of the job's backend
    aws: Aws
    job: Job[Any]
    resolved: Resolved  # the job's choices, as the examination resolves them
    identity: Identity
    now: datetime  # UTC
    read: Callable[[str], bytes]  # the content of a URL that AWS has signed
    _found: dict[str, Any] = field(default_factory=dict)

    @property
    def region(self) -> str:
        return self.aws.region

    @property
    def account(self) -> str:
        return self.identity.account

    @property
    def bucket(self) -> str:
        """Where the job's folder would be."""
        return self.examination.bucket(self.job.where) or bucket_of(self.account, self.region)

    def once(self, what: str, look: Callable[[], Found]) -> Found:
        """Call look() once and keep its result.  Raises its error the first time, and NotExamined later."""
        if what not in self._found:
            try:
                self._found[what] = look()
            except TrainerError:
                self._found[what] = NotExamined(f"not examined: it needs the {what}")
                raise
        found: Found | NotExamined = self._found[what]
        if isinstance(found, NotExamined):
            raise found
        return found


@dataclass(frozen=True)
class Check:
    """A check of a case."""

    name: str
    run: Callable[[Case[Any]], Iterable[Verdict]]
    remedy: str = SET_UP  # if the check's look-up finds that something does not exist


@dataclass(frozen=True)
class Examination:
    """What a backend's jobs need of the account beyond what every job needs: a bucket, a set-up, credentials."""

    # Resolves the choices of a job without calling AWS.  Raises SettingsError for a job that no account can run.
    resolve: Callable[[Job[Any]], Any]
    # Of a job's options: its machines in words, such as 2 x g5.2xlarge; the regions that it may run in, None for the
    # configured one; its bucket, None for the account's own.
    machines: Callable[[Any], str]
    regions: Callable[[Any], Sequence[str | None]] = lambda where: (None,)
    bucket: Callable[[Any], str | None] = lambda where: None
    # The launcher's writing actions; its look-ups are examined by calling them.
    rights: Sequence[Right] = ()
    # The values of {NAMES} in rights, beside those that every job has.
    names: Callable[[Case[Any]], Mapping[str, str]] = lambda case: {}
    # How to find out about the launcher's rights if IAM's simulation cannot tell.
    in_doubt: str = ""
    # Checks before and after that of the launcher's rights, and a check for leaks.
    roles: Sequence[Check] = ()
    needs: Sequence[Check] = ()
    leftovers: Callable[[Case[Any]], Iterable[Verdict]] = lambda case: ()
