"""How long to retry while AWS fails or cannot be reached."""

from collections.abc import Callable
from typing import TypeVar

from launch.aws.refusals import BUSY
from launch.core.clock import Clock
from launch.core.errors import AwsError, NoAnswer
from trainer.errors import TrainerError

RETRY_S = 600.0
# How long a command bears it that ends what costs money, and how long it waits before it asks again.
STOP_RETRY_S, RETRY_DELAY_S = 120.0, 3.0

Given = TypeVar("Given")


def is_transient(error: TrainerError) -> bool:
    """Whether AWS did not refuse, but could not be reached, failed on its side, or has too many requests.

    The limit of requests is one for all of an account's users and tools in a region.
    https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
    """
    return isinstance(error, NoAnswer) or (isinstance(error, AwsError) and error.aws_code in {"", *BUSY})


def is_busy(error: TrainerError) -> bool:
    """Whether AWS has too many requests or failed on its side; not where a wrong region may be why nobody answers."""
    return isinstance(error, AwsError) and error.aws_code in BUSY


class Retry:
    """Counts the seconds since the last success.  is_transient: whether an error may go away by itself."""

    def __init__(
        self, clock: Clock, limit_s: float = RETRY_S, is_transient: Callable[[TrainerError], bool] = lambda error: True
    ) -> None:
        self._clock, self._limit_s, self._may_pass = clock, limit_s, is_transient
        self._trouble_since: float | None = None

    def success(self) -> None:
        self._trouble_since = None

    def failure(self, error: TrainerError) -> None:
        """Raises `error` if it cannot go away, or if nothing has succeeded for the limit."""
        now = self._clock.now()
        if self._trouble_since is None:
            self._trouble_since = now
        if not self._may_pass(error) or now - self._trouble_since > self._limit_s:
            raise error


def retrying(
    act: Callable[[], Given],
    clock: Clock,
    say: Callable[[str], None],
    is_transient: Callable[[TrainerError], bool] = is_transient,
    limit_s: float = STOP_RETRY_S,
) -> Given:
    """What `act` gives, which is called again where AWS was busy or out of reach.  Raises what does not pass."""
    retry = Retry(clock, limit_s, is_transient)
    while True:
        try:
            return act()
        except TrainerError as error:
            retry.failure(error)
            say(f"warning: {error}\n  retrying")
        clock.sleep(RETRY_DELAY_S)
