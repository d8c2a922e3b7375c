"""launch.aws.retry: a short trouble is put up with, a long one or a hopeless one is not."""

from datetime import UTC, datetime

import pytest

from launch.aws.retry import Retry
from launch.core.clock import Clock
from launch.core.errors import AwsError
from trainer.errors import TrainerError

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()


class Watch:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOON
        self.clock = Clock(now=lambda: self.now)


def test_trouble_shorter_than_the_limit_is_put_up_with() -> None:
    watch = Watch()
    retry = Retry(watch.clock, limit_s=60)

    retry.failure(AwsError("busy"))
    watch.now += 60
    retry.failure(AwsError("busy"))
    watch.now += 1
    with pytest.raises(AwsError, match="still busy"):
        retry.failure(AwsError("still busy"))


def test_a_success_starts_the_count_anew() -> None:
    watch = Watch()
    retry = Retry(watch.clock, limit_s=60)

    retry.failure(AwsError("busy"))
    watch.now += 50
    retry.success()
    watch.now += 50
    retry.failure(AwsError("busy again"))
    watch.now += 50
    retry.failure(AwsError("busy again"))


def test_trouble_that_cannot_pass_is_raised_at_once() -> None:
    def is_transient(error: TrainerError) -> bool:
        return isinstance(error, AwsError) and error.aws_code != "AccessDenied"

    retry = Retry(Watch().clock, is_transient=is_transient)

    with pytest.raises(AwsError):
        retry.failure(AwsError("no", "AccessDenied"))
