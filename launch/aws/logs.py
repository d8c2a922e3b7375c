"""Read and follow the logs of a job's machines in CloudWatch, which outlive the machines."""

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.jobs import Line, Show
from launch.core.terminal import Say, harmless
from trainer.errors import one_line

# Lines of one machine can arrive this much later than newer ones of another, so this much is read again.
OVERLAP_MS = 120_000
POLL_S = 5.0
# After the last machine has ended, the log is complete when this many polls in a row return no line.
QUIET_POLLS = 2
REMEMBERED_LINES = 1000  # for the last lines of a failing rank
# How much of a log is held at once, as it may be larger than the memory; a page has at most 1 MB:
# https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html
MOST_PAGES = 32
MOST_EMPTY = 30  # times as many pages without a line: AWS returns a page for each part of a log that it has searched


@dataclass(frozen=True)
class Streams:
    """Where the machines of a job log: streams in `group`, named `prefix`, the machine's number, and a suffix.

    end: what separates the number from a suffix; rewrite: turns a logged line into the shown one.
    """

    group: str
    prefix: str
    end: str = ""
    rewrite: Callable[[str], str] = str

    def start(self, only: int | None) -> str:
        """The prefix of all streams, or of one machine's; without a suffix it is the stream's whole name."""
        return self.prefix if only is None else f"{self.prefix}{only}{self.end}"

    def mark(self, stream: str) -> str:
        """The machine's number in the name of its stream."""
        rest = stream.removeprefix(self.prefix)
        return rest.partition(self.end)[0] if self.end else rest


class LogTail:
    """The lines of a job's machines, each once, in the order of their times.

    only: the machine with this number; several: mark lines with their machine even before a second one has logged;
    words: CloudWatch's filter pattern.
    """

    def __init__(
        self,
        aws: Aws,
        streams: Streams,
        *,
        only: int | None = None,
        several: bool = False,
        since: datetime | None = None,
        words: str = "",
    ) -> None:
        self._aws, self._streams, self._only = aws, streams, only
        self._filter = {"filterPattern": f'"{words}"'} if words else {}
        self._start_ms = int(since.timestamp() * 1000) if since else 0
        self._seen: dict[str, int] = {}  # event id -> its time
        self._rest: dict[str, Any] | None = None  # the request for the next page, if there is one
        self._speakers: set[str] = set()
        self._several = several

    @property
    def has_more(self) -> bool:
        """Whether the next call of new_lines() may have more lines at once."""
        return self._rest is not None

    def turn_to(self, streams: Streams) -> None:
        """Read on in these streams, such as those of the job's next attempt."""
        if streams != self._streams:
            self._streams, self._rest = streams, None

    def new_lines(self) -> list[str]:
        """read() as text."""
        return [str(line) for line in self.read()]

    def read(self) -> list[Line]:
        """The lines since the last call; none while there is no log.  Raises AwsError.

        A call returns limited numbers of lines and reads limited numbers of pages: see has_more.
        """
        fresh = list[Mapping[str, Any]]()
        for _ in range(MOST_EMPTY):
            fresh = [event for event in self._events() if event["eventId"] not in self._seen]
            if fresh or not self.has_more:
                break
        fresh.sort(key=lambda event: event["timestamp"])
        self._remember(fresh)
        return [self._line(event) for event in fresh]

    def show_all(self, show: Show) -> int:
        """Show lines until there are no more; return their number."""
        shown = 0
        while True:
            lines = self.read()
            for line in lines:
                show(line)
            shown += len(lines)
            if not self.has_more:
                return shown

    def _events(self) -> list[Mapping[str, Any]]:
        start = self._streams.start(self._only)
        try:
            events = self._some(self._rest or self._query(start))
        except AwsError as error:
            if error.aws_code == "ResourceNotFoundException":  # nothing has been logged yet
                return []
            raise
        return [event for event in events if event["logStreamName"].startswith(start)]

    def _query(self, start: str) -> dict[str, Any]:
        is_name = self._only is not None and not self._streams.end
        which = {"logStreamNames": [start]} if is_name else {"logStreamNamePrefix": start}
        return {"logGroupName": self._streams.group, "startTime": self._start_ms, **which, **self._filter}

    def _some(self, query: dict[str, Any]) -> list[Mapping[str, Any]]:
        """The next events, ordered by time.  After an error the next call repeats the whole query."""
        events, self._rest = list[Mapping[str, Any]](), None
        for _ in range(MOST_PAGES):
            answer = self._aws.call("logs", "FilterLogEvents", query)
            events += answer.get("events", ())
            if not answer.get("nextToken"):
                return events
            query = {**query, "nextToken": answer["nextToken"]}
        self._rest = query
        return events

    def _remember(self, fresh: list[Mapping[str, Any]]) -> None:
        self._speakers |= {self._streams.mark(event["logStreamName"]) for event in fresh}
        self._seen |= {event["eventId"]: event["timestamp"] for event in fresh}
        # By AWS's clock: a machine's own may be up to two hours ahead, which must not hide other machines' lines.
        # https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutLogEvents.html
        times = (min(event["timestamp"], event.get("ingestionTime", event["timestamp"])) for event in fresh)
        self._start_ms = max(self._start_ms, max(times, default=0) - OVERLAP_MS)
        # Older events are not requested again.
        self._seen = {event: time for event, time in self._seen.items() if time >= self._start_ms}

    def _line(self, event: Mapping[str, Any]) -> Line:
        text = harmless(self._streams.rewrite(str(event["message"]).rstrip("\r\n")))
        number = self._streams.mark(event["logStreamName"])
        is_marked = self._only is None and (self._several or len(self._speakers) > 1)
        return Line(
            text,
            int(number) if re.fullmatch("[0-9]{1,9}", number) else None,
            datetime.fromtimestamp(event["timestamp"] / 1000, UTC),
            one_line(number, 20) if is_marked else "",
        )


def follow(tail: LogTail, is_running: Callable[[], bool], clock: Clock, show: Show) -> None:
    """Show lines as they arrive until the job has ended, and then late ones."""
    quiet = 0
    while True:
        runs = is_running()  # before the lines, so that a last line is not missed
        lines = tail.read()
        for line in lines:
            show(line)
        quiet = 0 if runs or lines or tail.has_more else quiet + 1
        if quiet == QUIET_POLLS:
            return
        clock.sleep(POLL_S)


class LogDisplay:
    """Shows a job's log while it is followed; errors of the log are warnings, and never end a job.

    shows: filter of the lines that are shown; lines: the last ones, shown or not.
    """

    def __init__(
        self, tail: LogTail, clock: Clock, say: Say, shows: Callable[[str], bool] | None = None, poll_s: float = POLL_S
    ) -> None:
        self._tail, self._clock, self._say, self._shows, self._poll_s = tail, clock, say, shows, poll_s
        self._last_warning = ""
        self.lines: deque[str] = deque(maxlen=REMEMBERED_LINES)

    def show(self) -> int:
        """Show new lines; return how many arrived."""
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
        """Show a warning, unless the last one was the same."""
        if text != self._last_warning:
            self._say(f"warning: {text}")
        self._last_warning = text

    def drain(self) -> None:
        """Show late lines after the end of the job: they arrive some seconds after they were written."""
        quiet = 0
        while quiet < QUIET_POLLS:
            self._clock.sleep(self._poll_s / 2)
            quiet = 0 if self.show() or self._tail.has_more else quiet + 1
