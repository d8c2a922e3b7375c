"""What a backend's jobs need of an account, and the case that its checks examine: one job in one region."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from launch.core.aws import Aws
from launch.core.examination.findings import NotExamined, Verdict
from launch.core.examination.rights import Right
from launch.core.job import Job
from launch.core.lookup import SET_UP
from launch.core.names import bucket_of
from trainer.errors import TrainerError

Found = TypeVar("Found")
Resolved = TypeVar("Resolved")

POLICY = "doctor"  # the file in infra/iam that grants what an examination asks beyond a launcher's look-ups


@dataclass(frozen=True)
class Identity:
    """Whose credentials these are.  principal: the ARN of the user or role; user_id: IAM's aws:userid."""

    account: str
    principal: str
    user_id: str = ""

    @property
    def is_root(self) -> bool:
        return self.principal.endswith(":root")


@dataclass(frozen=True)
class Case(Generic[Resolved]):
    """examination: of the job's backend; resolved: the job's choices, as that resolves them; now: UTC.

    read: the content of a URL that AWS has signed.
    """

    examination: "Examination"
    aws: Aws
    job: Job[Any]
    resolved: Resolved
    identity: Identity
    now: datetime
    read: Callable[[str], bytes]
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
        """Calls look() once and keeps what it finds.  Raises its error the first time, and NotExamined later."""
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
    """remedy: for whatever the check's look-up says is not there."""

    name: str
    run: Callable[[Case[Any]], Iterable[Verdict]]
    remedy: str = SET_UP


@dataclass(frozen=True)
class Examination:
    """What a backend's jobs need of the account beyond what every job needs: a bucket, a set-up, credentials.

    resolve: the choices of a job.  Raises SettingsError for one that no account can run, and asks AWS nothing.
    machines: in words, such as 2 x g5.2xlarge, of a job's options; as are the next two.
    regions: those that the job may run in; None for the configured one.  bucket: None for the account's own.
    rights: what the launcher uses beyond look-ups, which show by themselves whether they are allowed.
    names: the values of {NAMES} in rights, beside those that every job has.
    in_doubt: how to find out about the launcher's rights where IAM's simulation cannot tell.
    roles and needs: checks, before and after that of the launcher's rights; leftovers: whether jobs have left anything.
    """

    resolve: Callable[[Job[Any]], Any]
    machines: Callable[[Any], str]
    regions: Callable[[Any], Sequence[str | None]] = lambda where: (None,)
    bucket: Callable[[Any], str | None] = lambda where: None
    rights: Sequence[Right] = ()
    names: Callable[[Case[Any]], Mapping[str, str]] = lambda case: {}
    in_doubt: str = ""
    roles: Sequence[Check] = ()
    needs: Sequence[Check] = ()
    leftovers: Callable[[Case[Any]], Iterable[Verdict]] = lambda case: ()
