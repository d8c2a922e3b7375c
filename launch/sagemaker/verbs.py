"""Training jobs for the verbs: found by name and tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from launch.aws import progress
from launch.aws.client import Aws
from launch.aws.logs import LogTail, follow
from launch.aws.regions import query_regions
from launch.aws.retry import is_busy, retrying
from launch.aws.session import shell_on
from launch.core.clock import Clock
from launch.core.errors import AwsError, Ended
from launch.core.jobs import Choice, Connection, Leak, Log, Overview, Results, Show, State
from launch.core.terminal import Say
from launch.sagemaker import status, training_jobs
from launch.sagemaker.follow import failure_lines, streams_of
from launch.sagemaker.follow import follow as follow_job
from launch.sagemaker.leaks import COLUMNS, leaks_of
from launch.sagemaker.names import command
from launch.sagemaker.outcome import is_unexplained, outcome_of, recorded
from launch.sagemaker.result import fetch_job
from launch.sagemaker.runtime import Runtime, RuntimeOf
from launch.sagemaker.stop import end
from launch.sagemaker.training_job import TrainingJob
from trainer.errors import SettingsError, TrainerError
from trainer.outcome import Outcome, state_of
from trainer.script.pace import Pace

if TYPE_CHECKING:
    from launch.core.options import RegionOptions


def shell_of(training_job: TrainingJob, node: int) -> Connection:
    """A shell on algo-`node`.  Raises SettingsError if there cannot be one."""
    job, region = training_job.job, training_job.region
    if training_job.is_over:
        raise SettingsError(f"job {job} has ended; for its logs run {command('logs', job, region)}")
    if training_job.queued and training_job.waits:
        raise SettingsError(f"job {job} {training_job.queued.in_words}; wait until it runs.")
    if not training_job.has_shell:
        # While it is Downloading or Training:
        # https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_UpdateTrainingJob.html, RemoteDebugConfig
        raise SettingsError(
            f"job {job} was started without --remote-debug; turn it on while it trains:\n  aws sagemaker "
            f"update-training-job --training-job-name {training_job.name} --remote-debug-config EnableRemoteDebug=true "
            f"--region {region}"
        )
    if node > training_job.nodes:
        raise SettingsError(f"--node {node}: {job} has {training_job.nodes}, numbered from 1.")
    return shell_on(f"sagemaker-training-job:{training_job.name}_algo-{node}", region)


@dataclass(frozen=True)
class SageMakerJobs:
    """Training jobs, found by name and tags; see launch.core.jobs.Jobs."""

    runtime: Runtime  # in the region of the options
    runtime_of: RuntimeOf  # in any other region
    leak_columns = COLUMNS

    @property
    def say(self) -> Say:
        return self.runtime.say

    @property
    def clock(self) -> Clock:
        return self.runtime.clock

    @property
    def confirm(self) -> Callable[[str], None]:
        return self.runtime.confirm

    def overview(self, options: RegionOptions) -> Iterator[Overview]:
        aws, now = self.runtime.aws, self.clock.utc()
        yield status.overview(training_jobs.recent(aws, now), aws.region, now)

    def state(self, options: Any) -> State:
        aws, now, training_job = self.runtime.aws, self.clock.utc(), self._newest(options, "status")
        outcome = recorded(aws, training_job) if training_job.is_over else None
        outcome = outcome or _from_the_log(aws, training_job, now)
        epoch, pace = _progress(aws, training_job)
        return status.job_state(training_job, epoch, now, outcome, pace)

    def _newest(self, options: Any, verb: str) -> TrainingJob:
        return training_jobs.newest(self.runtime.aws, options.job, verb, self.clock.utc())

    def log(self, options: Any) -> Log:
        aws, now, training_job = self.runtime.aws, self.clock.utc(), self._newest(options, "logs")
        job, region = training_job.job, training_job.region
        since = now - timedelta(minutes=options.since) if options.since else training_job.created
        several = training_job.nodes > 1
        tail = LogTail(aws, streams_of(training_job.name), only=options.node, several=several, since=since)

        def is_running() -> bool:
            now = training_jobs.refreshed(aws, training_job)
            tail.turn_to(streams_of(now.name))  # of the next attempt, through a queue
            return not now.is_over

        def follow_to_end(show: Show) -> str:
            follow(tail, is_running, self.clock, show)
            return f"{job} has ended; for its result:\n  {command('status', job, region)}"

        return Log(
            is_running=not training_job.is_over,
            show=tail.show_all,
            follow=follow_to_end,
            nothing=lambda: _no_logs(training_job, options),
            stop=command("stop", job, region),
        )

    def fetch(self, options: Any, choice: Choice) -> Results:
        return fetch_job(self.runtime.aws, self._newest(options, "fetch"), self.runtime.results, choice)

    def stop(self, options: Any) -> None:
        def look() -> tuple[str, Sequence[TrainingJob]]:
            found = self._newest(options, "stop").job
            return found, training_jobs.of_job(self.runtime.aws, found, self.clock.utc())

        job, starts = retrying(look, self.clock, self.say, is_busy)
        ended = end(lambda _: self.runtime.aws, starts, self.clock, self.say)
        self.say(f"{job} is stopped and costs nothing" if ended else f"{job} was not running")

    def active(self, options: Any) -> tuple[Sequence[Leak], bool]:
        def look() -> Sequence[TrainingJob]:
            return training_jobs.costing(self.runtime.aws, self.clock.utc())

        return leaks_of(retrying(look, self.clock, self.say, is_busy), self.clock.utc()), True

    def leaks(self, options: Any) -> tuple[Sequence[Leak], bool]:
        now = self.clock.utc()

        def look(aws: Aws) -> Sequence[Leak]:
            return leaks_of(training_jobs.costing(aws, now), now)

        def make_aws(region: str) -> Aws:
            return self.runtime_of(region).aws

        return query_regions([self.runtime.aws], look, make_aws, self.say, all_regions=options.all_regions)

    def remove(self, leaks: Sequence[Leak]) -> Sequence[str]:
        places = {region: self.runtime_of(region).aws for region in {leak.region for leak in leaks}}
        end(lambda one: places[one.region], [leak.resources for leak in leaks], self.clock, self.say)
        return ()

    def shell(self, options: Any) -> Connection:
        return shell_of(self._newest(options, "ssh"), options.node)

    def attach(self, options: Any) -> Outcome | None:
        try:
            outcome = follow_job(self._newest(options, "attach"), self.runtime, fetch=options.fetch)
        except TrainerError as error:
            known = error.outcome if isinstance(error, Ended) else None
            _write(known or Outcome(state_of(error.code), error.code, str(error)), options)
            raise
        _write(outcome, options)
        return outcome


def _write(outcome: Outcome | None, options: Any) -> None:
    if outcome is not None and options.outcome is not None:
        outcome.write(options.outcome)


def _from_the_log(aws: Aws, training_job: TrainingJob, now: datetime) -> Outcome | None:
    """The outcome of a job that was not followed, from its log; None if that is not needed or cannot be read."""
    if not is_unexplained(training_job):
        return None
    try:
        return outcome_of(training_job, now, failure_lines(aws, training_job))
    except AwsError:
        return None


def _progress(aws: Aws, training_job: TrainingJob) -> tuple[Mapping[str, Any] | None, Pace | None]:
    """The newest metrics and a script's progress; None if unreadable, as the status is useful without them."""
    if training_job.folder is None:
        return None, None
    try:
        epoch = progress.newest(aws, training_job.folder)
        return epoch, progress.pace(aws, training_job.folder, epoch)
    except AwsError:
        return None, None


def _no_logs(training_job: TrainingJob, options: Any) -> str:
    if options.node is not None and options.node > training_job.nodes:
        raise SettingsError(f"--node {options.node}: {training_job.job} has {training_job.nodes}, numbered from 1.")
    if options.since is not None:
        return f"{training_job.job} logged nothing in the last {options.since:g} min"
    if training_job.queued and training_job.waits and not training_job.is_over:
        return f"{training_job.job} {training_job.queued.in_words}"
    yet = "" if training_job.is_over else " yet"
    return f"{training_job.job} has logged nothing{yet}; it is {training_job.detail}"
