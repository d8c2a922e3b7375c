"""What a job's machines said, from CloudWatch: also after they are gone."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.perform import Say

# Lines can show up this much later than younger ones of other machines, so that much is read again.
OVERLAP_MS = 120_000
POLL_S = 5.0
# After the last machine's end: this many looks in a row without a line, and it was the last.
QUIET_LOOKS = 2
REMEMBERED_LINES = 1000  # for what a failing rank wrote last


@dataclass(frozen=True)
class Streams:
    """Where the machines of a job write: streams of `group` named `prefix`, the machine's number, and what follows.

    end: what the number ends with, if the name goes on after it; rewrite: a line as it was written -> as it is shown.
    """

    group: str
    prefix: str
    end: str = ""
    rewrite: Callable[[str], str] = str

    def start(self, only: int | None) -> str:
        """What the names of all streams begin with, or those of one machine; without an end, that is its whole name."""
        return self.prefix if only is None else f"{self.prefix}{only}{self.end}"

    def mark(self, stream: str) -> str:
        """The machine's number in the name of its stream."""
        rest = stream.removeprefix(self.prefix)
        return rest.partition(self.end)[0] if self.end else rest


class LogTail:
    """The lines of a job's machines in the order of their times, each once.

    only: of the machine with this number; several: mark the lines even before a second machine says something.
    """

    def __init__(
        self,
        aws: Aws,
        streams: Streams,
        *,
        only: int | None = None,
        several: bool = False,
        since: datetime | None = None,
    ) -> None:
        self._aws, self._streams, self._only = aws, streams, only
        self._start_ms = int(since.timestamp() * 1000) if since else 0
        self._seen: dict[str, int] = {}  # event id -> its time
        self._speakers: set[str] = set()
        self._several = several

    def new_lines(self) -> list[str]:
        """The lines since the last call; none while there is no log.  Raises AwsError."""
        fresh = [event for event in self._events() if event["eventId"] not in self._seen]
        fresh.sort(key=lambda event: event["timestamp"])
        self._remember(fresh)
        return [self._line(event) for event in fresh]

    def _events(self) -> list[Mapping[str, Any]]:
        start = self._streams.start(self._only)
        is_name = self._only is not None and not self._streams.end
        which = {"logStreamNames": [start]} if is_name else {"logStreamNamePrefix": start}
        query = {"logGroupName": self._streams.group, "startTime": self._start_ms, **which}
        try:
            events = self._aws.pages("logs", "FilterLogEvents", "events", query)
        except AwsError as error:
            if error.aws_code == "ResourceNotFoundException":  # nothing has begun yet
                return []
            raise
        return [event for event in events if event["logStreamName"].startswith(start)]

    def _remember(self, fresh: list[Mapping[str, Any]]) -> None:
        self._speakers |= {self._streams.mark(event["logStreamName"]) for event in fresh}
        self._seen |= {event["eventId"]: event["timestamp"] for event in fresh}
        self._start_ms = max(self._start_ms, max(self._seen.values(), default=0) - OVERLAP_MS)
        # What is older is not asked for again.
        self._seen = {event: time for event, time in self._seen.items() if time >= self._start_ms}

    def _line(self, event: Mapping[str, Any]) -> str:
        text = self._streams.rewrite(str(event["message"]).rstrip("\r\n"))
        if self._only is None and (self._several or len(self._speakers) > 1):
            return f"[{self._streams.mark(event['logStreamName'])}] {text}"
        return text


def follow(tail: LogTail, is_running: Callable[[], bool], clock: Clock, say: Say) -> None:
    """Shows lines as they come until the job does not run any more, and then what is still on its way."""
    quiet = 0
    while True:
        runs = is_running()  # before the lines, so that a last line is not missed
        lines = tail.new_lines()
        for line in lines:
            say(line)
        quiet = 0 if runs or lines else quiet + 1
        if quiet == QUIET_LOOKS:
            return
        clock.sleep(POLL_S)


class LogDisplay:
    """Shows a job's log while somebody follows it; trouble with the log is a warning, and never ends a job.

    shows: whether a line is shown; lines: the last ones, shown or not.
    """

    def __init__(
        self, tail: LogTail, clock: Clock, say: Say, shows: Callable[[str], bool] | None = None, poll_s: float = POLL_S
    ) -> None:
        self._tail, self._clock, self._say, self._shows, self._poll_s = tail, clock, say, shows, poll_s
        self._last_warning = ""
        self.lines: deque[str] = deque(maxlen=REMEMBERED_LINES)

    def show(self) -> int:
        """Shows what is new; returns how many lines came."""
        try:
            lines = self._tail.new_lines()
        except AwsError as error:
            self.warn(str(error))
            return 0
        self._last_warning = ""
        for line in lines:
            if self._shows is None or self._shows(line):
                self._say(line)
        self.lines.extend(lines)
        return len(lines)

    def warn(self, text: str) -> None:
        """Says it once, and not at every look."""
        if text != self._last_warning:
            self._say(f"warning: {text}")
        self._last_warning = text

    def drain(self) -> None:
        """Shows what is still on its way when the job is over: lines arrive some seconds after they were written."""
        quiet = 0
        while quiet < QUIET_LOOKS:
            self._clock.sleep(self._poll_s / 2)
            quiet = 0 if self.show() else quiet + 1
