"""Thousands of calls to AWS, several at a time, retried while AWS throttles or fails."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from queue import LifoQueue
from typing import Any, TypeVar

from launch.aws.client import Aws
from launch.aws.retry import Retry, is_transient
from launch.core.clock import Clock
from launch.core.errors import AwsError
from trainer.errors import TrainerError

# EBS's own transient error codes; is_transient() knows those that all services have.  "You should always
# retry requests that receive server (5xx) error responses, and ThrottlingException and RequestThrottledException":
# https://docs.aws.amazon.com/ebs/latest/APIReference/API_PutSnapshotBlock.html
FULL = "ConcurrentLimitExceededException"
# Transient reasons of a ValidationException: a block arrived too slowly, or while an earlier attempt at it was still
# being written.  ValidationExceptionReason in AWS's model of the service:
# https://docs.aws.amazon.com/ebs/latest/APIReference/API_PutSnapshotBlock.html
PASSING = {"CONFLICTING_BLOCK_UPDATE", "WRITE_REQUEST_TIMEOUT"}
RETRY_S, FIRST_PAUSE_S, LONGEST_PAUSE_S = 900.0, 1.0, 30.0
AHEAD = 4  # per connection: tasks that wait for a thread

Item = TypeVar("Item")
Call = Callable[..., Mapping[str, Any]]


class Pool:
    """Retried calls in threads, each through one of `connections` clients."""

    def __init__(self, make_aws: Callable[[], Aws], clock: Clock, connections: int) -> None:
        self._clock, self._connections = clock, connections
        self._make_aws = make_aws
        self._free = LifoQueue[Aws]()

    def call(
        self, service: str, operation: str, params: Mapping[str, Any], beside: tuple[str, ...] = ()
    ) -> Mapping[str, Any]:
        """The answer.  Raises AwsError for errors that are not transient, or last longer than RETRY_S.

        beside: further transient codes.
        """
        retry = Retry(self._clock, RETRY_S, lambda error: _is_transient(error, beside))
        pause_s = FIRST_PAUSE_S
        while True:
            aws = self._take()
            try:
                return aws.call(service, operation, params)
            except AwsError as error:
                retry.failure(error)
            finally:
                self._free.put(aws)
            self._clock.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    def _take(self) -> Aws:
        with suppress(Exception):
            return self._free.get_nowait()
        return self._make_aws()

    def each(self, items: Iterable[Item], act: Callable[[Item], None]) -> None:
        """Call act(item) for all items, several at a time.  Raises the first error, once running calls have ended."""
        if self._connections == 1:
            for item in items:
                act(item)
            return
        with ThreadPoolExecutor(self._connections) as threads:
            running = set[Future[None]]()
            try:
                for item in items:
                    running.add(threads.submit(act, item))
                    if len(running) >= AHEAD * self._connections:
                        running = _without_done(running)
                while running:
                    running = _without_done(running)
            finally:
                for future in running:
                    future.cancel()


def _without_done(running: set[Future[None]]) -> set[Future[None]]:
    done, left = wait(running, return_when=FIRST_COMPLETED)
    for future in done:
        future.result()
    return left


def _is_transient(error: TrainerError, beside: tuple[str, ...]) -> bool:
    if is_transient(error):
        return True
    return isinstance(error, AwsError) and (error.aws_code in {FULL, *beside} or error.reason in PASSING)
