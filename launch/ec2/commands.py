"""The verbs, from their options to what is shown.  Jobs and resources are found by their tags."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from launch.aws.client import Aws
from launch.aws.logs import LogTail, follow
from launch.aws.names import Folder
from launch.aws.regions import look_around, look_everywhere
from launch.aws.retry import is_busy, retrying
from launch.core.errors import AwsError
from launch.ec2 import leaks as leak
from launch.ec2 import status as state
from launch.ec2.inventory import Fleet, Node, find, nodes_of
from launch.ec2.job_folder import folder_of, is_known, job_named, known_folder, members_of, needed, spec_of
from launch.ec2.leaks import waiting
from launch.ec2.names import BACKEND_NAME, command
from launch.ec2.regions import plan_job
from launch.ec2.runtime import Runtime
from launch.ec2.start import attach
from launch.ec2.status import ranks_in, view
from launch.ec2.stop import Target, remove, remove_all
from launch.ec2.watch import streams_of
from trainer.contract import STOPPED, Exit
from trainer.errors import SettingsError, TrainerError
from trainer.settings.registry import did_you_mean

if TYPE_CHECKING:
    from launch.ec2.verbs import (
        BucketOptions,
        JobOptions,
        LeaksOptions,
        LogsOptions,
        RegionsOptions,
        SshOptions,
        StopOptions,
    )


Place = tuple[Aws, Fleet]  # AWS in a region, and the resources of all jobs there
Spec = Mapping[str, Any]


def find_job(
    places: Sequence[Aws],
    make_aws: Callable[[str | None], Aws],
    job: str | None,
    bucket: str | None,
    doubt: Callable[[str], None],
) -> Place:
    """AWS in the region that has `job`, and the resources of all jobs there; the first of `places` if none has it.

    Looks in `places`, then in the regions that the job was started with, by its job.json there.
    doubt: called with a sentence for each of those that could not be asked, if no other has its nodes.
    """
    if job is None:
        return places[0], find(places[0])
    here = [_look(aws, job) for aws in places]
    found = _with_job(here, job)
    if found and _runs(found, job):
        return found
    specs = [_spec(place, job, bucket) for place in here]
    others = map(make_aws, _others(specs, here))
    more, failures = look_everywhere(list(others), lambda aws: [_look(aws, job)])
    found = _with_job([*here, *more], job)
    if found and _runs(found, job):
        return found
    for sentence in failures:
        doubt(sentence)
    return found or _last_start([*here, *more], job, bucket)


def _runs(place: Place, job: str) -> bool:
    return bool(place[1].of(job).living)


def _last_start(places: Sequence[Place], job: str, bucket: str | None) -> Place:
    """Where job.json says that the job was started last."""
    return _newest(places, [_spec(place, job, bucket) for place in places])


def _look(aws: Aws, job: str) -> Place:
    return aws, fleet_with_nodes(aws, job)


def fleet_with_nodes(aws: Aws, job: str | None = None) -> Fleet:
    """The resources of all jobs; without the time limits where EventBridge does not list them, if there are nodes.

    They cost money, and EC2 alone can end them.  job: whose nodes; None: of any.
    """
    try:
        return find(aws)
    except AwsError as error:
        if error.operation != "ListSchedules":
            raise
        fleet = find(aws, limits=False)
        if not (fleet if job is None else fleet.of(job)).living:
            raise
        return fleet


def _with_job(places: Sequence[Place], job: str) -> Place | None:
    """The first place with living nodes of the job, or else with anything of it."""
    present = [place for place in places if not place[1].of(job).is_empty]
    return max(present, key=lambda place: bool(place[1].of(job).living), default=None)


def _others(specs: Sequence[Spec], here: Sequence[Place]) -> list[str]:
    """The regions of the job that were not searched yet."""
    known = {aws.region for aws, _ in here}
    named = dict.fromkeys(region for spec in specs for region in (*spec.get("regions", ()), spec.get("region", "")))
    return [region for region in named if region and region not in known]


def _newest(places: Sequence[Place], specs: Sequence[Spec]) -> Place:
    """The place of the newest start, or else the first place."""
    known = [(place, spec) for place, spec in zip(places, specs, strict=True) if spec.get("started")]
    return max(known, key=lambda row: _turn(*row))[0] if known else places[0]


def _turn(place: Place, spec: Spec) -> tuple[int, int]:
    """When the launcher came to a region: of two in the same second, the later one in the user's order."""
    regions, region = list(spec.get("regions") or [spec.get("region")]), place[0].region
    return int(spec["started"]), regions.index(region) if region in regions else -1


def _spec(place: Place, job: str, bucket: str | None) -> Spec:
    """job.json, empty if there is none or it cannot be read: the verb itself asks again, and says why."""
    aws, fleet = place
    try:
        return spec_of(aws, folder_of(aws, fleet, job, bucket), BACKEND_NAME) or {}
    except TrainerError:
        return {}


Given = TypeVar("Given")

PLUGIN = "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"


@dataclass(frozen=True)
class Commands:
    """One method per verb; each returns its exit code and may raise TrainerError."""

    runtime: Runtime

    def status(self, options: BucketOptions) -> int:
        now = self.runtime.clock.utc()
        if options.job is None:
            for aws in self._places(options):
                fleet = find(aws)
                self.runtime.say(state.all_as_text(fleet, state.wanted(aws, fleet), aws.region, now))
            return Exit.DONE
        aws, fleet = self._find(options, options.bucket)
        folder = known_folder(aws, fleet, options.job, options.bucket)
        self.runtime.say(state.as_text(view(aws, fleet, folder, now)))
        return Exit.DONE

    def _places(self, options: RegionsOptions) -> list[Aws]:
        """AWS in each of the regions to look in."""
        return [self.runtime.make_aws(region) for region in dict.fromkeys(options.region or (None,))]

    def _find(self, options: JobOptions, bucket: str | None = None, doubts: list[str] | None = None) -> Place:
        """AWS in the region where the job is, and the resources of all jobs there.

        doubts: gets a sentence for each region where the job may be all the same; without, each is a warning.
        """

        def warn(sentence: str) -> None:
            self.runtime.say(f"warning: {sentence}")

        doubt = warn if doubts is None else doubts.append
        return find_job(self._places(options), self.runtime.make_aws, options.job, bucket, doubt)

    # ---- logs

    def logs(self, options: LogsOptions) -> int:
        clock = self.runtime.clock
        aws, fleet = self._find(options, options.bucket)
        job = needed(options.job, "logs", fleet)
        living = fleet.of(job).living
        since = clock.utc() - timedelta(minutes=options.since) if options.since else None
        tail = LogTail(aws, streams_of(job), only=options.node, several=len(living) > 1, since=since)
        if not tail.show_all(self.runtime.say):
            for line in _no_logs(aws, known_folder(aws, fleet, job, options.bucket), options):
                self.runtime.say(line)
        return self._follow(aws, job, tail) if options.follow and living else Exit.DONE

    def _follow(self, aws: Aws, job: str, tail: LogTail) -> int:
        say = self.runtime.say
        try:
            follow(tail, lambda: bool(nodes_of(aws, job).living), self.runtime.clock, say)
        except KeyboardInterrupt:
            say("the job keeps running; to stop it:")
            say(f"  {command('stop', job, aws.region)}")
            return STOPPED
        say(f"all nodes of {job} have ended; to see how:")
        say(f"  {command('status', job, aws.region)}")
        return Exit.DONE

    # ---- stop

    def stop(self, options: StopOptions) -> int:
        if options.all:
            return self._stop_everywhere(options)
        doubts = list[str]()
        aws, fleet = self._bearing(lambda: self._find(options, options.bucket, doubts))
        job = needed(options.job, "stop", fleet)
        remove(Target(aws, job, fleet, options.bucket), self.runtime.clock, self.runtime.say)
        if warning := _misspelt(aws, fleet, job, options.bucket):
            self.runtime.say(warning)
        if doubts:
            raise AwsError(f"{job} may still run where its job.json says that it may: {'  '.join(doubts)}")
        return Exit.DONE

    def _bearing(self, look: Callable[[], Given]) -> Given:
        """All users and tools of an account share a limit of calls: what is not found for that goes on costing."""
        return retrying(look, self.runtime.clock, self.runtime.say, is_busy)

    def _stop_everywhere(self, options: StopOptions) -> int:
        """All jobs of each region, also where another one fails: what is not ended there goes on costing."""
        code, places = int(Exit.DONE), self._places(options)
        for aws in places:
            try:
                fleet = self._bearing(partial(fleet_with_nodes, aws))
                code = max(code, self._stop_all(options, aws, fleet))
            except AwsError as error:
                if len(places) == 1:
                    raise
                self.runtime.say(f"error: {aws.region}: {error}")
                code = max(code, Exit.AWS)
        return code

    def _stop_all(self, options: StopOptions, aws: Aws, fleet: Fleet) -> int:
        if options.job is not None:
            raise SettingsError(f"use either --all or {options.job}, not both.")
        now = self.runtime.clock.utc()
        findings = leak.judge(fleet, aws.region, now)
        chosen = leak.deletable(findings, running=True)
        if not chosen:
            self.runtime.say(f"no job has resources in {aws.region}")
            return Exit.DONE
        if not options.yes:
            self.runtime.say(state.all_as_text(fleet, state.wanted(aws, fleet), aws.region, now))
            jobs = ", ".join(finding.job for finding in chosen)
            raise SettingsError(f"--all stops {jobs}; add --yes to confirm.")
        return self._remove(chosen)

    # ---- leaks

    def leaks(self, options: LeaksOptions) -> int:
        if options.running and not options.delete:
            raise SettingsError("--running needs --delete; all jobs are listed anyway.")
        findings, is_complete = self._look(options)
        if options.delete and (chosen := leak.deletable(findings, running=options.running)):
            if not options.yes:
                self.runtime.say(leak.as_text(findings, self.runtime.clock.utc()))
                self.runtime.confirm(f"--delete removes {', '.join(dict.fromkeys(one.job for one in chosen))}")
            self._remove(chosen)
            findings, is_complete = self._look(options)
        return self._report(findings, is_complete)

    def _report(self, findings: Sequence[leak.Finding], is_complete: bool) -> int:
        """Shows the findings and returns the exit code of `leaks`."""
        if findings:
            self.runtime.say(leak.as_text(findings, self.runtime.clock.utc()))
        elif is_complete:
            self.runtime.say("no leaks: no job has any resources")
        has_leaks = any(finding.is_leak for finding in findings)
        if leak.deletable([finding for finding in findings if finding.is_leak], running=False):
            self.runtime.say("to remove the leaks:\n  python -m launch.ec2 leaks --delete")
        return Exit.DONE if is_complete and not has_leaks else Exit.AWS

    def _look(self, options: LeaksOptions) -> tuple[Sequence[leak.Finding], bool]:
        """The findings, and whether all regions could be checked."""
        runtime, now = self.runtime, self.runtime.clock.utc()

        def look(aws: Aws) -> Sequence[leak.Finding]:
            fleet = find(aws)
            return leak.judge(fleet, aws.region, now, waiting(aws, fleet, now))

        places = self._places(options)
        return look_around(places, look, runtime.make_aws, runtime.say, all_regions=options.all_regions)

    def _remove(self, findings: Sequence[leak.Finding]) -> int:
        """Removes the jobs of `findings` at the same time, each with calls of its own; what costs most is first."""
        due = sorted(findings, key=lambda found: -found.usd_per_hour)
        # Made one by one, so that those who are done hold no clients.
        targets = (Target(self.runtime.make_aws(found.region), found.job, found.fleet) for found in due)
        failures = remove_all(targets, self.runtime.clock, self.runtime.say)
        for sentence in failures:
            self.runtime.say(f"error: {sentence}")
        return Exit.AWS if failures else Exit.DONE

    # ---- ssh, attach

    def ssh(self, options: SshOptions) -> int:
        say = self.runtime.say
        aws, fleet = self._find(options)
        job = needed(options.job, "ssh", fleet)
        folder, living = known_folder(aws, fleet, job, None), fleet.of(job).living
        if not living:
            raise SettingsError(f"job {job} has no nodes; for its logs run {command('logs', job, aws.region)}")
        nodes = _by_rank(living, _members(aws, folder))
        _check_rank(job, options.node, nodes)
        say(f"# needs AWS's Session Manager plugin: {PLUGIN}")
        say(f"aws ssm start-session --target {nodes[options.node].id} --region {aws.region}")
        say("# then, for a shell in the training's container: sudo docker exec -it ddp bash")
        say("# and for the boot log: sudo tail -f /var/lib/ddp/boot.log")
        return Exit.DONE

    def attach(self, options: BucketOptions) -> int:
        """Plans the job again from its job.json, so that lost nodes can be replaced, and follows it."""
        aws, fleet = self._find(options, options.bucket)
        job = job_named(aws, fleet, options.job, options.bucket)
        plan = plan_job(job, self.runtime)
        if plan.problem is not None:
            raise plan.problem
        attach(plan, self.runtime)
        return Exit.DONE


def _no_logs(aws: Aws, folder: Folder, options: LogsOptions) -> list[str]:
    """Why there is nothing to show.  Raises SettingsError for a node that the job does not have."""
    if options.node is not None:
        _check_rank(folder.job, options.node, ranks_in(_members(aws, folder)).values())
    if options.since is not None:
        return [f"{folder.job} logged nothing in the last {options.since:g} min"]
    return [
        f"{folder.job} has no logs yet: nodes log once their container runs.  When a node ends, it uploads its boot "
        "log; to get it:",
        f"  aws s3 sync {folder.uri}/boot/ boot --region {aws.region}",
    ]


def _check_rank(job: str, rank: int, ranks: Collection[int]) -> None:
    if ranks and rank not in ranks:
        raise SettingsError(f"--node {rank}: {job} has nodes {', '.join(map(str, sorted(ranks)))}.")


def _misspelt(aws: Aws, fleet: Fleet, job: str, bucket: str | None) -> str:
    """A warning if `job` never existed, as far as is known, and one of a similar name does."""
    nearest = did_you_mean(job, fleet.jobs)
    try:
        if not nearest or is_known(aws, fleet, folder_of(aws, fleet, job, bucket)):
            return ""
    except AwsError:
        pass  # warn those who may not read the folder, too
    return f"warning: there was no job {job!r}{nearest} That one is still running and billed."


def _by_rank(living: Sequence[Node], members: Mapping[str, Any] | None) -> dict[int, Node]:
    """The nodes by their rank in cluster.json; in the order of their launch if it has none of them."""
    ranks = ranks_in(members)
    return {ranks[node.id]: node for node in living if node.id in ranks} or dict(enumerate(living))


def _members(aws: Aws, folder: Folder) -> Mapping[str, Any] | None:
    """cluster.json; None if it does not exist or cannot be read."""
    try:
        return members_of(aws, folder)
    except AwsError:
        return None
