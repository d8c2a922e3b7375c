"""Follows a job to its end: shows its log, records the outcome, fetches the result."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from launch.aws.client import Aws
from launch.aws.logs import LogDisplay, LogTail, Streams
from launch.aws.results import fetch_at_end
from launch.aws.retry import RETRY_S, Retry, is_transient, retrying
from launch.core.clock import duration
from launch.core.errors import AwsError, Ended, LeftRunning
from launch.core.jobs import Results
from launch.core.price import usd
from launch.core.signals import Hangup, hangups, hangups_ignored, unless_gone
from launch.core.terminal import Say
from launch.sagemaker.names import command
from launch.sagemaker.outcome import last_lines, outcome_of, record
from launch.sagemaker.register import register
from launch.sagemaker.result import fetch_result
from launch.sagemaker.runtime import Runtime
from launch.sagemaker.stop import end
from launch.sagemaker.training_job import LOG_GROUP, TrainingJob
from launch.sagemaker.training_jobs import refreshed
from trainer.contract import SAGEMAKER_FAILURE, STOPPED, Exit
from trainer.errors import TrainerError
from trainer.outcome import Outcome

POLL_S = 10.0
LAST_LOG = timedelta(hours=1)  # a failed rank may wait for the others, and the result is uploaded afterwards

Shows = Callable[[str], bool]  # whether to show a line of the log

# The trainer's messages for the user, among output of AWS's container toolkit, pip and mpirun.
_HEADLINE = re.compile(
    r"(\[\d+\] )?(rank \d+: )?"
    r"(warning: |error: |epoch \d+/|resuming |done: |.+ parameters, on |.+ [\d,]+ updates$)"
)
# mpirun's line prefix with job, rank and stream: Open MPI's own form, and that of AWS's toolkit with a host.
_TAGGED = re.compile(r"^\[\d+,(mpirank:)?(?P<rank>\d+)(,algo-\d+)?\]<std(out|err)>: ?(?P<text>.*)$")


def is_headline(line: str) -> bool:
    """Whether a line of a job's log is a message of the trainer for the user."""
    return _HEADLINE.match(line) is not None


def readable(line: str) -> str:
    """A line of the log without mpirun's prefix, which becomes `rank N:` for ranks other than 0."""
    match = _TAGGED.match(line)
    if match is None:
        return line
    return match["text"] if match["rank"] == "0" else f"rank {match['rank']}: {match['text']}"


def streams_of(name: str) -> Streams:
    """The log streams of the training job called `name`: NAME/algo-1-1732180000."""
    return Streams(LOG_GROUP, f"{name}/algo-", end="-", rewrite=readable)


def failure_lines(aws: Aws, training_job: TrainingJob) -> list[str]:
    """The lines in the last hour of an ended job's log in which ranks logged their failure.  Raises AwsError."""
    since = (training_job.ended or training_job.created) - LAST_LOG
    words = SAGEMAKER_FAILURE.partition(" {")[0]
    return LogTail(aws, streams_of(training_job.name), since=since, words=words).new_lines()


class Follower:
    """Follows one training job."""

    def __init__(
        self, runtime: Runtime, training_job: TrainingJob, shows: Shows | None = None, poll_s: float = POLL_S
    ) -> None:
        self._runtime, self._poll_s = runtime, poll_s
        several, since = training_job.nodes > 1, training_job.created
        self._tail = LogTail(runtime.aws, streams_of(training_job.name), several=several, since=since)
        self._display = LogDisplay(self._tail, runtime.clock, runtime.say, shows, poll_s)
        self._training_job = training_job
        self._transitions_shown = 0
        self._place = ""

    @property
    def lines(self) -> deque[str]:
        return self._display.lines

    def follow(self) -> TrainingJob:
        """Show the job until it is over, and return it.  Raises TrainerError after ten minutes of failed calls."""
        retry = Retry(self._runtime.clock)
        while True:
            try:
                self._refresh()
                self._show_transitions()
                self._display.show()
                if self._training_job.is_over:
                    self._display.drain()
                    return self._training_job
                retry.success()
            except TrainerError as error:
                retry.failure(error)
                self._display.warn(f"{error}\n  trying again")
            self._runtime.clock.sleep(self._poll_s)

    def _refresh(self) -> None:
        """Look at the job; through a queue it may have another training job than before, or none."""
        before, self._training_job = self._training_job.name, refreshed(self._runtime.aws, self._training_job)
        now = self._training_job
        if now.name != before:
            self._transitions_shown = 0
            self._tail.turn_to(streams_of(now.name))
        place = now.queued.in_words if now.queued and now.waits and not now.is_over else ""
        if place and place != self._place:
            self._runtime.say(f"{now.job} {place}")
        self._place = place

    def _show_transitions(self) -> None:
        transitions = self._training_job.transitions
        for status, message in transitions[self._transitions_shown :]:
            self._runtime.say(f"{status}: {message}" if message else status)
        self._transitions_shown = len(transitions)


def follow(
    training_job: TrainingJob, runtime: Runtime, *, fetch: bool, shows: Shows | None = None, poll_s: float = POLL_S
) -> Outcome | None:
    """Show the job until it is over, and fetch the result; return its outcome, or None if it was left running.

    Raises Ended if the training failed, LeftRunning if this machine can no longer follow it.
    shows: whether to show a line of the log; poll_s: seconds between polls.
    """
    follower = Follower(runtime, training_job, shows, poll_s)
    attach = command("attach", training_job.job, training_job.region)
    with hangups():
        try:
            training_job = follower.follow()
        except KeyboardInterrupt:
            _interrupted(training_job, runtime)
            return None
        except (Hangup, BrokenPipeError) as error:
            words = f"the terminal was closed ({error}); the job is still running:\n  {attach}"
            raise LeftRunning(words, STOPPED) from error
        except TrainerError as error:
            raise LeftRunning(f"{error}  The job is still running:\n  {attach}", Exit.AWS) from error
    return _finish(training_job, runtime, follower.lines, fetch=fetch)


def detached(training_job: TrainingJob, say: Say) -> None:
    """Show the commands for a job that is left running."""
    say("the job runs without this terminal until it ends; to follow it and fetch its result, or to stop it:")
    for verb in ("attach", "stop"):
        say(f"  {command(verb, training_job.job, training_job.region)}")


def stop(training_job: TrainingJob, runtime: Runtime) -> None:
    """Stop `training_job`, ignoring further signals except Ctrl-C.  Raises AwsError."""
    try:
        with hangups_ignored():
            end(lambda _: runtime.aws, [training_job], runtime.clock, unless_gone(runtime.say))
    except KeyboardInterrupt:
        stop_it = command("stop", training_job.job, training_job.region)
        runtime.say(f"{training_job.start} may not have stopped yet; make sure that it ends:\n  {stop_it}")
        raise


def _interrupted(training_job: TrainingJob, runtime: Runtime) -> None:
    """After Ctrl-C, ask the user: leave the job running, or stop it and raise Ended."""
    try:
        leaves_it = runtime.may_detach()
    except Hangup:  # the terminal was closed instead of an answer
        leaves_it = True
    if leaves_it:
        detached(training_job, unless_gone(runtime.say))
        return
    stop(training_job, runtime)
    training_job, now = refreshed(runtime.aws, training_job), runtime.clock.utc()
    raise Ended(f"stopped as requested; {_cost(training_job, now)}", STOPPED, outcome_of(training_job, now))


def _finish(training_job: TrainingJob, runtime: Runtime, lines: Sequence[str], *, fetch: bool) -> Outcome:
    say, now = runtime.say, runtime.clock.utc()
    outcome, cost = outcome_of(training_job, now, lines), _cost(training_job, now)
    record(runtime.aws, training_job, outcome, unless_gone(say))
    if training_job.keep_s and training_job.pool in (None, "InUse", "Available"):  # also after a failure
        stop_it = command("stop", training_job.job, training_job.region)
        say(f"the instances are kept up to {training_job.keep_s} s for the next job, and billed; to release them:")
        say(f"  {stop_it}")
    if outcome.exit_code != Exit.DONE:
        for line in _diagnosis(training_job, lines):
            say(line)
        logs = command("logs", training_job.job, training_job.region)
        raise Ended(f"{outcome.reason}; {cost}\n  {logs}\n  {training_job.console}", outcome.exit_code, outcome)
    say(f"the training is done; {cost}")
    if training_job.registers_in is not None:
        say(register(runtime.aws, training_job))
    if fetch:
        again = command("fetch", training_job.job, training_job.region)
        fetch_at_end(lambda: _fetch(training_job, runtime, outcome), say, again)
    if training_job.checkpoints is not None:
        say(f"checkpoints: {training_job.checkpoints}")
    return outcome


def _fetch(training_job: TrainingJob, runtime: Runtime, outcome: Outcome) -> Results:
    """Fetch the result; outcome.json goes beside it, which includes the cost."""

    def fetch() -> Path:
        return fetch_result(runtime.aws, training_job, runtime.results)

    folder = retrying(fetch, runtime.clock, runtime.say, _is_connection_lost, RETRY_S)
    try:
        outcome.write(folder)
    except OSError as error:
        runtime.say(f"warning: the outcome was not written to {folder}: {error.strerror}")
    return Results(folder)


def _is_connection_lost(error: TrainerError) -> bool:
    """Whether S3 or the network failed."""
    return isinstance(error, AwsError) and bool(error.operation) and is_transient(error)


def _diagnosis(training_job: TrainingJob, lines: Sequence[str]) -> Iterator[str]:
    """The details of a failure: SageMaker's reason, and the last lines of the failed rank."""
    if not training_job.failure:
        return
    yield f"FailureReason: {' '.join(training_job.failure.split())}"
    if lines:
        yield "the last lines of the rank that failed:"
        yield from (f"  {line}" for line in last_lines(list(lines)))


def _cost(training_job: TrainingJob, now: datetime) -> str:
    """The billed time, its cost, and spot's saving, as text."""
    clause = f"{duration(training_job.billed(now))} billed, about {usd(training_job.cost(now))}"
    if training_job.saved is not None:
        clause += f" ({training_job.saved:.0%} saved by spot)"
    return clause
