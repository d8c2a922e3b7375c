"""What each verb does, from its options to what is shown.  Everything is found by tags."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.logs import LogTail, follow
from launch.core.lookup import read_json
from launch.core.names import Folder
from launch.core.perform import Say
from launch.ec2 import leaks as leak
from launch.ec2 import status as state
from launch.ec2.fleet import Fleet, Node, find, nodes_of
from launch.ec2.folders import folder_of, is_known, needed, refuse_unknown
from launch.ec2.logs import streams_of
from launch.ec2.remove import Target, remove, remove_all
from trainer.contract import Exit
from trainer.errors import SettingsError
from trainer.settings.registry import did_you_mean

if TYPE_CHECKING:
    from launch.ec2.verbs import LeaksOptions, LogsOptions, SshOptions, StatusOptions, StopOptions

PLUGIN = "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"


@dataclass(frozen=True)
class Acts:
    """One method per verb; each returns its exit code and may raise TrainerError.  make_aws: see verbs()."""

    make_aws: Callable[[str | None], Aws]
    clock: Clock
    say: Say

    def status(self, options: StatusOptions) -> int:
        aws = self.make_aws(options.region)
        fleet, now = find(aws), self.clock.utc()
        if options.job is None:
            self.say(state.all_as_text(fleet, state.wanted(aws, fleet), aws.region, now))
        else:
            folder = known_folder(aws, fleet, options.job, options.bucket)
            self.say(state.as_text(state.view(aws, fleet, folder, now)))
        return Exit.DONE

    def logs(self, options: LogsOptions) -> int:
        aws = self.make_aws(options.region)
        fleet = find(aws)
        job = needed(options.job, "logs", fleet)
        living = fleet.of(job).living
        since = self.clock.utc() - timedelta(minutes=options.since) if options.since else None
        tail = LogTail(aws, streams_of(job), only=options.node, several=len(living) > 1, since=since)
        lines = tail.new_lines()
        for line in lines or [_no_logs(aws, known_folder(aws, fleet, job, options.bucket), options)]:
            self.say(line)
        if options.follow and living:
            try:
                follow(tail, lambda: any(node.lives for node in nodes_of(aws, job)), self.clock, self.say)
            except KeyboardInterrupt:
                self.say(f"the job goes on; end it with python -m launch.ec2 stop {job} --region {aws.region}")
                return 130
            self.say(f"{job} has no nodes any more; how it went: python -m launch.ec2 status {job}")
        return Exit.DONE

    def stop(self, options: StopOptions) -> int:
        aws = self.make_aws(options.region)
        fleet = find(aws)
        if options.all:
            return self._stop_all(options, aws, fleet)
        job = needed(options.job, "stop", fleet)
        remove(Target(aws, job, fleet, options.bucket), self.clock, self.say)
        if warning := _perhaps_misspelt(aws, fleet, job, options.bucket):
            self.say(warning)
        return Exit.DONE

    def _stop_all(self, options: StopOptions, aws: Aws, fleet: Fleet) -> int:
        if options.job is not None:
            raise SettingsError(f"--all and {options.job} do not go together; give one of them.")
        jobs = leak.judge(fleet, aws.region, self.clock.utc())
        if not jobs:
            self.say(f"no job has anything in {aws.region}")
            return Exit.DONE
        if not options.yes:
            self.say(state.all_as_text(fleet, state.wanted(aws, fleet), aws.region, self.clock.utc()))
            raise SettingsError(f"--all ends {', '.join(found.job for found in jobs)}; give --yes if you mean it.")
        return self._remove(leak.deletable(jobs, running=True))

    def leaks(self, options: LeaksOptions) -> int:
        if options.running and not options.delete:
            raise SettingsError("--running goes with --delete; without it, all jobs are shown anyway.")
        findings, all_asked = self._look(options)
        if options.delete and (chosen := leak.deletable(findings, running=options.running)):
            self._remove(chosen)
            findings, all_asked = self._look(options)
        return self._told(findings, all_asked)

    def _told(self, findings: Sequence[leak.Finding], all_asked: bool) -> int:
        """Shows what there is; the exit code is that of leaks."""
        if findings:
            self.say(leak.as_text(findings, self.clock.utc()))
        elif all_asked:
            self.say("nothing of any job is there, so nothing leaks")
        leaks = any(found.is_leak for found in findings)
        if leaks:
            self.say("python -m launch.ec2 leaks --delete removes the leaks")
        return Exit.DONE if all_asked and not leaks else Exit.AWS

    def _look(self, options: LeaksOptions) -> tuple[Sequence[leak.Finding], bool]:
        """What there is, and whether all regions could be asked."""
        aws = self.make_aws(options.region)
        if not options.all_regions:
            return leak.judge(find(aws), aws.region, self.clock.utc()), True
        places = [self.make_aws(region) for region in leak.regions_of(aws)]
        findings, unasked = leak.look_everywhere(places, self.clock.utc())
        for sentence in unasked:
            self.say(f"warning: {sentence}")
        return findings, not unasked

    def _remove(self, findings: Sequence[leak.Finding]) -> int:
        """Removes the jobs that were found; each has calls of its own, as they are made at the same time."""
        targets = [Target(self.make_aws(found.region), found.job, found.fleet) for found in findings]
        failures = remove_all(targets, self.clock, self.say)
        for sentence in failures:
            self.say(f"error: {sentence}")
        return Exit.AWS if failures else Exit.DONE

    def ssh(self, options: SshOptions) -> int:
        aws = self.make_aws(options.region)
        fleet = find(aws)
        job = needed(options.job, "ssh", fleet)
        folder, living = known_folder(aws, fleet, job, None), fleet.of(job).living
        if not living:
            raise SettingsError(f"job {job} has no nodes now; python -m launch.ec2 logs {job} shows what they said.")
        nodes = _by_rank(living, _members(aws, folder))
        _check_rank(job, options.node, nodes)
        self.say(f"# needs AWS's Session Manager plugin, {PLUGIN}")
        self.say(f"aws ssm start-session --target {nodes[options.node].id} --region {aws.region}")
        self.say("# there: sudo docker exec -it ddp bash   is inside the training;  sudo tail -f /var/lib/ddp/boot.log")
        return Exit.DONE


def known_folder(aws: Aws, fleet: Fleet, job: str, bucket: str | None) -> Folder:
    """Where the folder of `job` lies.  Raises SettingsError for a job that never was.  fleet: of all jobs."""
    folder = folder_of(aws, fleet, job, bucket)
    if not is_known(aws, fleet, folder):
        refuse_unknown(aws, fleet, folder)
    return folder


def _no_logs(aws: Aws, folder: Folder, options: LogsOptions) -> str:
    """Why there is nothing to show.  Raises SettingsError for a node that the job does not have."""
    if options.node is not None:
        _check_rank(folder.job, options.node, state.ranks_in(_members(aws, folder)).values())
    if options.since is not None:
        return f"no line of {folder.job} in the last {options.since:g} min"
    return (
        f"there are no logs of {folder.job}: a node writes them once its container starts.  How it booted, it tells "
        f"when it ends: aws s3 sync {folder.uri}/boot/ boot --region {aws.region}"
    )


def _check_rank(job: str, rank: int, ranks: Collection[int]) -> None:
    if ranks and rank not in ranks:
        raise SettingsError(f"--node {rank}: {job} has nodes {', '.join(map(str, sorted(ranks)))}.")


def _perhaps_misspelt(aws: Aws, fleet: Fleet, job: str, bucket: str | None) -> str:
    """A warning if `job` never was, as far as we know, and another one of a similar name is there."""
    nearest = did_you_mean(job, fleet.jobs)
    try:
        if not nearest or is_known(aws, fleet, folder_of(aws, fleet, job, bucket)):
            return ""
    except AwsError:
        pass  # who may not look into the folder is warned too
    return f"warning: there was no job {job!r}{nearest} That one still costs money."


def _by_rank(living: Sequence[Node], members: Mapping[str, Any] | None) -> dict[int, Node]:
    """The nodes by their rank in cluster.json; while it names none of them, in the order of their launch."""
    ranks = state.ranks_in(members)
    return {ranks[node.id]: node for node in living if node.id in ranks} or dict(enumerate(living))


def _members(aws: Aws, folder: Folder) -> Mapping[str, Any] | None:
    """cluster.json, or None where it is not there or cannot be read."""
    try:
        return read_json(aws, folder.bucket, folder.cluster)
    except AwsError:
        return None
