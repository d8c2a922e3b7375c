"""Carries out the verbs: from options to what is printed.  Jobs are found by name and tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from launch.aws import progress
from launch.aws.client import Aws
from launch.aws.logs import LogTail, follow
from launch.aws.regions import look_around
from launch.aws.retry import is_busy, retrying
from launch.core.errors import AwsError
from launch.sagemaker import leaks as leaks_of
from launch.sagemaker import status as status_of
from launch.sagemaker import training_jobs
from launch.sagemaker.follow import follow as follow_job
from launch.sagemaker.follow import streams_of, why_in_the_log
from launch.sagemaker.names import command
from launch.sagemaker.outcome import is_unexplained, outcome_of, recorded
from launch.sagemaker.runtime import Runtime, RuntimeOf
from launch.sagemaker.stop import end
from launch.sagemaker.training_job import TrainingJob
from trainer.contract import STOPPED, Exit
from trainer.errors import SettingsError
from trainer.outcome import Outcome
from trainer.script.pace import Pace

if TYPE_CHECKING:
    from launch.core.options import JobOptions
    from launch.sagemaker.verbs import AttachOptions, LeaksOptions, LogsOptions, SshOptions, StopOptions


PLUGIN = "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"


def shell_of(training_job: TrainingJob, node: int) -> Iterator[str]:
    """The lines to paste for a shell on algo-`node`.  Raises SettingsError if there can be none."""
    job, region = training_job.job, training_job.region
    if training_job.is_over:
        raise SettingsError(f"job {job} has ended; for its logs run {command('logs', job, region)}")
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
    yield f"# needs AWS's Session Manager plugin: {PLUGIN}"
    target = f"sagemaker-training-job:{training_job.name}_algo-{node}"
    yield f"aws ssm start-session --target {target} --region {region}"


@dataclass(frozen=True)
class Commands:
    """One method per verb; each returns its exit code and may raise TrainerError."""

    runtime_of: RuntimeOf

    def status(self, options: JobOptions) -> int:
        runtime = self.runtime_of(options.region)
        aws, now = runtime.aws, runtime.clock.utc()
        if options.job is None:
            runtime.say(status_of.all_as_text(training_jobs.recent(aws, now), aws.region, now))
            return Exit.DONE
        training_job = training_jobs.newest(aws, options.job, "status", now)
        outcome = recorded(aws, training_job) if training_job.is_over else None
        outcome = outcome or _from_the_log(aws, training_job, now)
        epoch, pace = _progress(aws, training_job)
        runtime.say(status_of.as_text(training_job, epoch, now, outcome, pace))
        return Exit.DONE

    def logs(self, options: LogsOptions) -> int:
        runtime = self.runtime_of(options.region)
        aws, now = runtime.aws, runtime.clock.utc()
        training_job = training_jobs.newest(aws, options.job, "logs", now)
        since = now - timedelta(minutes=options.since) if options.since else training_job.created
        several = training_job.nodes > 1
        tail = LogTail(aws, streams_of(training_job.name), only=options.node, several=several, since=since)
        if not tail.show_all(runtime.say):
            runtime.say(_no_logs(training_job, options))
        if options.follow and not training_job.is_over:
            return _follow_logs(training_job, tail, runtime)
        return Exit.DONE

    def stop(self, options: StopOptions) -> int:
        runtime = self.runtime_of(options.region)
        if options.all:
            return self._stop_all(options, runtime)

        def look() -> tuple[str, Sequence[TrainingJob]]:
            found = training_jobs.newest(runtime.aws, options.job, "stop", runtime.clock.utc()).job
            return found, training_jobs.of_job(runtime.aws, found, runtime.clock.utc())

        job, starts = retrying(look, runtime.clock, runtime.say, is_busy)
        ended = end(lambda _: runtime.aws, starts, runtime.clock, runtime.say)
        runtime.say(f"{job} is stopped and costs nothing" if ended else f"{job} was not running")
        return Exit.DONE

    def _stop_all(self, options: StopOptions, runtime: Runtime) -> int:
        if options.job is not None:
            raise SettingsError(f"use either --all or {options.job}, not both.")

        def look() -> list[TrainingJob]:
            return [one for one in training_jobs.costing(runtime.aws, runtime.clock.utc()) if one.is_ours]

        costing = retrying(look, runtime.clock, runtime.say, is_busy)
        if not costing:
            runtime.say(f"no job is running in {runtime.aws.region}")
            return Exit.DONE
        if not options.yes:
            runtime.say(status_of.all_as_text(costing, runtime.aws.region, runtime.clock.utc()))
            names = ", ".join(one.name for one in costing)
            raise SettingsError(f"--all stops {names}; add --yes to confirm.")
        end(lambda _: runtime.aws, costing, runtime.clock, runtime.say)
        return Exit.DONE

    def leaks(self, options: LeaksOptions) -> int:
        runtime = self.runtime_of(options.region)
        findings, all_checked = self._look(options, runtime)
        leaking = _stoppable(findings)
        if options.delete and leaking:
            _confirm(options, findings, runtime)
            end(lambda one: self.runtime_of(one.region).aws, leaking, runtime.clock, runtime.say)
            findings, all_checked = self._look(options, runtime)
        if findings:
            runtime.say(leaks_of.as_text(findings, runtime.clock.utc()))
        elif all_checked:
            runtime.say(leaks_of.NONE)
        if _stoppable(findings):
            runtime.say(f"to stop the leaks:\n  python -m launch.sagemaker leaks --delete{_where(options)}")
        has_leaks = any(finding.is_leak for finding in findings)
        return Exit.DONE if all_checked and not has_leaks else Exit.AWS

    def _look(self, options: LeaksOptions, runtime: Runtime) -> tuple[Sequence[leaks_of.Finding], bool]:
        """The findings, and whether all regions could be asked."""
        now = runtime.clock.utc()

        def look(aws: Aws) -> Sequence[leaks_of.Finding]:
            return leaks_of.judge(training_jobs.costing(aws, now), now)

        def make_aws(region: str) -> Aws:
            return self.runtime_of(region).aws

        return look_around([runtime.aws], look, make_aws, runtime.say, all_regions=options.all_regions)

    def ssh(self, options: SshOptions) -> int:
        runtime = self.runtime_of(options.region)
        training_job = training_jobs.newest(runtime.aws, options.job, "ssh", runtime.clock.utc())
        for line in shell_of(training_job, options.node):
            runtime.say(line)
        return Exit.DONE

    def attach(self, options: AttachOptions) -> int:
        runtime = self.runtime_of(options.region)
        training_job = training_jobs.newest(runtime.aws, options.job, "attach", runtime.clock.utc())
        outcome = follow_job(training_job, runtime, fetch=options.fetch)
        return Exit.DONE if outcome is None else outcome.exit_code


def _confirm(options: LeaksOptions, findings: Sequence[leaks_of.Finding], runtime: Runtime) -> None:
    """Asks whether the leaks may be stopped, unless the user has already said so.  Raises SettingsError."""
    if not options.yes:
        runtime.say(leaks_of.as_text(findings, runtime.clock.utc()))
        runtime.confirm(f"--delete stops {', '.join(one.name for one in _stoppable(findings))}")


def _stoppable(findings: Sequence[leaks_of.Finding]) -> list[TrainingJob]:
    """The leaks that are wholly the toolkit's."""
    return [finding.training_job for finding in findings if finding.is_leak and finding.training_job.is_ours]


def _where(options: LeaksOptions) -> str:
    """The flags that say where `leaks` looked."""
    if options.all_regions:
        return " --all-regions"
    return f" --region {options.region}" if options.region else ""


def _from_the_log(aws: Aws, training_job: TrainingJob, now: datetime) -> Outcome | None:
    """How a job ended that nobody followed, if only its log says it; None if that cannot be read."""
    if not is_unexplained(training_job):
        return None
    try:
        return outcome_of(training_job, now, why_in_the_log(aws, training_job))
    except AwsError:
        return None


def _progress(aws: Aws, training_job: TrainingJob) -> tuple[Mapping[str, Any] | None, Pace | None]:
    """The newest metrics, and how far a script is; None if they cannot be read, as a status is useful without."""
    if training_job.folder is None:
        return None, None
    try:
        epoch = progress.newest(aws, training_job.folder)
        return epoch, progress.pace(aws, training_job.folder, epoch)
    except AwsError:
        return None, None


def _follow_logs(training_job: TrainingJob, tail: LogTail, runtime: Runtime) -> int:
    job, region = training_job.job, training_job.region

    def is_running() -> bool:
        return not training_jobs.refreshed(runtime.aws, training_job).is_over

    try:
        follow(tail, is_running, runtime.clock, runtime.say)
    except KeyboardInterrupt:
        runtime.say(f"the job is still running; to stop it:\n  {command('stop', job, region)}")
        return STOPPED
    runtime.say(f"{job} has ended; for its result:\n  {command('status', job, region)}")
    return Exit.DONE


def _no_logs(training_job: TrainingJob, options: LogsOptions) -> str:
    if options.node is not None and options.node > training_job.nodes:
        raise SettingsError(f"--node {options.node}: {training_job.job} has {training_job.nodes}, numbered from 1.")
    if options.since is not None:
        return f"{training_job.job} logged nothing in the last {options.since:g} min"
    yet = "" if training_job.is_over else " yet"
    return f"{training_job.job} has logged nothing{yet}; it is {training_job.detail}"
