"""The logs of a job's machines, from CloudWatch; they outlive the machines."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.terminal import Say, harmless
from trainer.errors import one_line

# A machine's lines can arrive this much later than newer ones of another machine, so this much is read again.
OVERLAP_MS = 120_000
POLL_S = 5.0
# After the last machine has ended, the log is complete once this many polls in a row bring no line.
QUIET_LOOKS = 2
MOST_LATE_LOOKS = 60  # or after so many: every training may write into the log of any job, and go on for ever
MOST_LATE_S = 900.0  # or after so long: a look at what has very many empty pages takes minutes
GOES_ON = "lines still arrive in this log, though the job has ended; what comes now is not shown"
REMEMBERED_LINES = 1000  # for what a failing rank wrote last
# What is held at once of a log, of which a training may write more than the memory has; a page has at most 1 MB:
# https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html
MOST_PAGES = 32
MOST_EMPTY = 30  # times as many pages without a line: AWS gives a page for each part of a log that it has gone through
MOST_SEEN = 200_000  # lines of the overlap


@dataclass(frozen=True)
class Streams:
    """Where the machines of a job log: streams in `group`, named `prefix`, the machine's number, and a suffix.

    end: what follows the number, if the name has a suffix; rewrite: from a line as logged to the line as shown.
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

    only: the machine with this number; several: mark lines with their machine before a second one has logged;
    words: only lines with these, which CloudWatch looks for.
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
        self._rest: dict[str, Any] | None = None  # the request for the next page, where there is one
        self._speakers: set[str] = set()
        self._several = several

    @property
    def has_more(self) -> bool:
        """Whether new_lines() has left lines for its next call."""
        return self._rest is not None

    def new_lines(self) -> list[str]:
        """The lines since the last call; none while there is no log.  Raises AwsError.

        Of very many only the first, and none where AWS has found none in very many pages: see has_more.
        """
        fresh = list[Mapping[str, Any]]()
        for _ in range(MOST_EMPTY):
            fresh = [event for event in self._events() if event["eventId"] not in self._seen]
            if fresh or not self.has_more:
                break
        fresh.sort(key=lambda event: event["timestamp"])
        self._remember(fresh)
        return [self._line(event) for event in fresh]

    def show_all(self, say: Say) -> int:
        """Shows new_lines() until there are no more; returns how many there were."""
        shown = 0
        while True:
            lines = self.new_lines()
            for line in lines:
                say(line)
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
        """The next events, in the order of their times.  After an error all since the last call are asked for again."""
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
        if len(self._seen) <= MOST_SEEN:
            # By AWS's clock: a machine whose own is ahead, by up to two hours, must not hide what the others say.
            # https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutLogEvents.html
            said = (min(event["timestamp"], event.get("ingestionTime", event["timestamp"])) for event in fresh)
            start_ms = max(said, default=0) - OVERLAP_MS
        else:  # in a flood what comes late is left out, or the flood would be read again and again
            start_ms = max(self._seen.values()) + 1
        self._start_ms = max(self._start_ms, start_ms)
        # Older events are not requested again.
        self._seen = {event: time for event, time in self._seen.items() if time >= self._start_ms}

    def _line(self, event: Mapping[str, Any]) -> str:
        text = harmless(self._streams.rewrite(str(event["message"]).rstrip("\r\n")))
        if self._only is None and (self._several or len(self._speakers) > 1):
            return f"[{one_line(self._streams.mark(event['logStreamName']), 20)}] {text}"
        return text


class _Rest:
    """The looks at a log once its job has ended.  goes_on: whether they have not seen its end."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._until, self._quiet, self._late = clock, clock.now() + MOST_LATE_S, 0, 0

    def is_over(self, found: bool) -> bool:
        """Whether a look was the last.  found: whether it brought lines, or did not come to the end."""
        self._quiet, self._late = (0 if found else self._quiet + 1), self._late + 1
        return not self.goes_on or self._late == MOST_LATE_LOOKS or self._clock.now() > self._until

    @property
    def goes_on(self) -> bool:
        return self._quiet < QUIET_LOOKS


def follow(tail: LogTail, is_running: Callable[[], bool], clock: Clock, say: Say) -> None:
    """Shows lines as they arrive until the job has ended, and then those that arrive late."""
    rest: _Rest | None = None
    while True:
        runs = is_running()  # before the lines, so that a last line is not missed
        rest = None if runs else rest or _Rest(clock)
        lines = tail.new_lines()
        for line in lines:
            say(line)
        if rest is not None and rest.is_over(bool(lines) or tail.has_more):
            break
        clock.sleep(POLL_S)
    if rest.goes_on:
        say(f"warning: {GOES_ON}")


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
        rest, is_over = _Rest(self._clock), False
        while not is_over:
            self._clock.sleep(self._poll_s / 2)
            is_over = rest.is_over(bool(self.show()) or self._tail.has_more)
        if rest.goes_on:
            self.warn(GOES_ON)
