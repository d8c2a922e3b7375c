"""What each verb does, from its options to what is shown.  Everything is found by name and tag."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.logs import LogTail, follow
from launch.core.names import BUCKET_TAG, Folder
from launch.core.progress import newest as newest_epoch
from launch.sagemaker import leaks as leak
from launch.sagemaker import start, training_jobs
from launch.sagemaker import status as state
from launch.sagemaker.runs import Run, again
from launch.sagemaker.start import World
from launch.sagemaker.stop import end
from launch.sagemaker.watch import streams_of
from trainer.contract import Exit
from trainer.errors import SettingsError

if TYPE_CHECKING:
    from launch.core.options import JobOptions
    from launch.sagemaker.verbs import AttachOptions, LeaksOptions, LogsOptions, StopOptions


@dataclass(frozen=True)
class Acts:
    """One method per verb; each returns its exit code and may raise TrainerError.  make_world: see verbs()."""

    make_world: Callable[[str | None], World]

    def status(self, options: JobOptions) -> int:
        world = self.make_world(options.region)
        now = world.clock.utc()
        if options.job is None:
            world.say(state.all_as_text(training_jobs.recent(world.aws, now), world.aws.region, now))
        else:
            run = training_jobs.newest(world.aws, options.job, "status", now)
            world.say(state.as_text(run, _epoch(world.aws, run), now))
        return Exit.DONE

    def logs(self, options: LogsOptions) -> int:
        world = self.make_world(options.region)
        now = world.clock.utc()
        run = training_jobs.newest(world.aws, options.job, "logs", now)
        since = now - timedelta(minutes=options.since) if options.since else run.created
        tail = LogTail(world.aws, streams_of(run.name), only=options.node, several=run.nodes > 1, since=since)
        lines = tail.new_lines()
        for line in lines or [_no_logs(run, options)]:
            world.say(line)
        if options.follow and not run.is_over:
            try:
                follow(tail, lambda: not again(world.aws, run).is_over, world.clock, world.say)
            except KeyboardInterrupt:
                world.say(
                    f"the job goes on; end it with python -m launch.sagemaker stop {run.job} --region {run.region}"
                )
                return 130
            world.say(f"{run.job} is over; how it went: python -m launch.sagemaker status {run.job}")
        return Exit.DONE

    def stop(self, options: StopOptions) -> int:
        world = self.make_world(options.region)
        if options.all:
            return self._stop_all(options, world)
        job = training_jobs.newest(world.aws, options.job, "stop", world.clock.utc()).job
        ended = end(lambda _: world.aws, training_jobs.of_job(world.aws, job), world.clock, world.say)
        world.say(f"{job} is stopped, and nothing of it costs money" if ended else f"nothing of {job} was running")
        return Exit.DONE

    def _stop_all(self, options: StopOptions, world: World) -> int:
        if options.job is not None:
            raise SettingsError(f"--all and {options.job} do not go together; give one of them.")
        runs = training_jobs.costing(world.aws)
        if not runs:
            world.say(f"no job costs anything in {world.aws.region}")
            return Exit.DONE
        if not options.yes:
            world.say(state.all_as_text(runs, world.aws.region, world.clock.utc()))
            names = ", ".join(run.name for run in runs)
            raise SettingsError(f"--all ends {names}; give --yes if you mean it.")
        end(lambda _: world.aws, runs, world.clock, world.say)
        return Exit.DONE

    def leaks(self, options: LeaksOptions) -> int:
        world = self.make_world(options.region)
        findings, all_asked = self._look(options)
        leaking = [finding.run for finding in findings if finding.is_leak]
        if options.delete and leaking:
            end(lambda run: self.make_world(run.region).aws, leaking, world.clock, world.say)
            findings, all_asked = self._look(options)
        if findings:
            world.say(leak.as_text(findings, world.clock.utc()))
        elif all_asked:
            world.say(leak.NONE)
        is_leaking = any(finding.is_leak for finding in findings)
        if is_leaking:
            world.say("python -m launch.sagemaker leaks --delete ends the leaks")
        return Exit.DONE if all_asked and not is_leaking else Exit.AWS

    def _look(self, options: LeaksOptions) -> tuple[Sequence[leak.Finding], bool]:
        """What there is, and whether all regions could be asked."""
        world = self.make_world(options.region)
        now = world.clock.utc()
        if not options.all_regions:
            return leak.judge(training_jobs.costing(world.aws), now), True
        regions = [row["RegionName"] for row in world.aws.call("ec2", "DescribeRegions")["Regions"]]
        findings, unasked = leak.look_everywhere([self.make_world(region).aws for region in sorted(regions)], now)
        for sentence in unasked:
            world.say(f"warning: {sentence}")
        return findings, not unasked

    def attach(self, options: AttachOptions) -> int:
        world = self.make_world(options.region)
        run = training_jobs.newest(world.aws, options.job, "attach", world.clock.utc())
        return start.follow(run, world, fetch=options.fetch)


def _epoch(aws: Aws, run: Run) -> Mapping[str, Any] | None:
    """The newest metrics; None where they cannot be read, for a status can do without."""
    bucket = run.tags.get(BUCKET_TAG)
    try:
        return newest_epoch(aws, Folder(bucket, run.job)) if bucket else None
    except AwsError:
        return None


def _no_logs(run: Run, options: LogsOptions) -> str:
    if options.node is not None and options.node > run.nodes:
        raise SettingsError(f"--node {options.node}: {run.job} has {run.nodes}, numbered from 1.")
    if options.since is not None:
        return f"no line of {run.job} in the last {options.since:g} min"
    return f"{run.job} has said nothing {'' if run.is_over else 'yet'}".rstrip() + f"; it is {run.detail}"
