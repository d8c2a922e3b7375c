"""What the nodes' containers said, from CloudWatch: also after the nodes are gone."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from launch.aws import Aws
from launch.ec2.names import LOG_GROUP, node_stream
from launch.ec2.stop import Clock
from launch.errors import AwsError
from launch.perform import Say

# Lines can show up this much later than younger ones of other nodes, so that much is read again.
OVERLAP_MS = 120_000
POLL_S = 5.0
# After the last node's end: this many looks in a row without a line, and it was the last.
QUIET_LOOKS = 2


class LogTail:
    """The lines of a job's nodes in the order of their times, each once.

    node: only of this rank; several: mark the lines with their rank even before a second node says something.
    """

    def __init__(
        self, aws: Aws, job: str, *, node: int | None = None, several: bool = False, since: datetime | None = None
    ) -> None:
        self._aws, self._node, self._prefix = aws, node, node_stream(job, 0)[:-1]
        self._start_ms = int(since.timestamp() * 1000) if since else 0
        self._seen: dict[str, int] = {}  # event id -> its time
        self._streams: set[str] = set()
        self._several = several

    def new_lines(self) -> list[str]:
        """The lines since the last call; none while there is no log.  Raises AwsError."""
        fresh = [event for event in self._events() if event["eventId"] not in self._seen]
        fresh.sort(key=lambda event: event["timestamp"])
        self._remember(fresh)
        return [self._line(event) for event in fresh]

    def _events(self) -> list[Mapping[str, Any]]:
        one = None if self._node is None else f"{self._prefix}{self._node}"
        which = {"logStreamNamePrefix": self._prefix} if one is None else {"logStreamNames": [one]}
        query = {"logGroupName": LOG_GROUP, "startTime": self._start_ms, **which}
        try:
            events = self._aws.pages("logs", "FilterLogEvents", "events", query)
        except AwsError as error:
            if error.aws_code == "ResourceNotFoundException":  # no container has begun yet
                return []
            raise
        return [event for event in events if one is not None or event["logStreamName"].startswith(self._prefix)]

    def _remember(self, fresh: list[Mapping[str, Any]]) -> None:
        self._streams |= {event["logStreamName"] for event in fresh}
        self._seen |= {event["eventId"]: event["timestamp"] for event in fresh}
        self._start_ms = max(self._start_ms, max(self._seen.values(), default=0) - OVERLAP_MS)
        # What is older is not asked for again.
        self._seen = {event: time for event, time in self._seen.items() if time >= self._start_ms}

    def _line(self, event: Mapping[str, Any]) -> str:
        text = str(event["message"]).rstrip("\r\n")
        if self._node is None and (self._several or len(self._streams) > 1):
            return f"[{event['logStreamName'].removeprefix(self._prefix)}] {text}"
        return text


def follow(tail: LogTail, has_nodes: Callable[[], bool], clock: Clock, say: Say) -> None:
    """Shows lines as they come until the job has no nodes any more, and then what is still on its way."""
    quiet = 0
    while True:
        lives = has_nodes()  # before the lines, so that a last line is not missed
        lines = tail.new_lines()
        for line in lines:
            say(line)
        quiet = 0 if lives or lines else quiet + 1
        if quiet == QUIET_LOOKS:
            return
        clock.sleep(POLL_S)
