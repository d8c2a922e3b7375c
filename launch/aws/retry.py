"""Retry while AWS fails, is busy or cannot be reached."""

from collections.abc import Callable
from typing import TypeVar

from launch.aws.refusals import BUSY
from launch.core.clock import Clock
from launch.core.errors import AwsError, NoAnswer
from trainer.errors import TrainerError

RETRY_S = 600.0
# Limit and delay of retries in commands that end what costs money.
STOP_RETRY_S, RETRY_DELAY_S = 120.0, 3.0

Given = TypeVar("Given")


def is_transient(error: TrainerError) -> bool:
    """Whether AWS could not be reached, failed, or throttled the request, instead of refusing it.

    All users and tools of an account share the limit of requests in a region.
    https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
    """
    return isinstance(error, NoAnswer) or (isinstance(error, AwsError) and error.aws_code in {"", *BUSY})


def is_busy(error: TrainerError) -> bool:
    """Whether AWS throttled the request or failed; not if it did not answer, as in a wrong region."""
    return isinstance(error, AwsError) and error.aws_code in BUSY


class Retry:
    """Limits retries by the time since the last success.  is_transient: whether to retry after an error."""

    def __init__(
        self, clock: Clock, limit_s: float = RETRY_S, is_transient: Callable[[TrainerError], bool] = lambda error: True
    ) -> None:
        self._clock, self._limit_s, self._is_transient = clock, limit_s, is_transient
        self._failing_since: float | None = None

    def success(self) -> None:
        self._failing_since = None

    def failure(self, error: TrainerError) -> None:
        """Raise `error` if it is not transient, or if nothing has succeeded for the limit."""
        now = self._clock.now()
        if self._failing_since is None:
            self._failing_since = now
        if not self._is_transient(error) or now - self._failing_since > self._limit_s:
            raise error


def retrying(
    act: Callable[[], Given],
    clock: Clock,
    say: Callable[[str], None],
    is_transient: Callable[[TrainerError], bool] = is_transient,
    limit_s: float = STOP_RETRY_S,
) -> Given:
    """Return act(), retried after transient errors up to the limit.  Raises the last error."""
    retry = Retry(clock, limit_s, is_transient)
    while True:
        try:
            return act()
        except TrainerError as error:
            retry.failure(error)
            say(f"warning: {error}\n  retrying")
        clock.sleep(RETRY_DELAY_S)
