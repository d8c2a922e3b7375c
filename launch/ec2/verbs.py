"""Jobs on EC2 for the verbs: found by their tags, in all regions where they may be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from launch.aws.batch import Queued
from launch.aws.client import Aws
from launch.aws.instances.inventory import Fleet, Node, find, nodes_of
from launch.aws.logs import LogTail, follow
from launch.aws.lookup import spec_of
from launch.aws.names import Folder
from launch.aws.regions import query_each, query_regions
from launch.aws.retry import is_busy, retrying
from launch.aws.session import forwarding, shell_on
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.jobs import Choice, Connection, Leak, Log, Overview, Results, Show, State
from launch.core.terminal import Say
from launch.ec2 import status
from launch.ec2.backend import BACKEND_NAME, Runtime, command
from launch.ec2.ended import with_ended
from launch.ec2.job_folder import fetch_results, folder_of, job_named, known_folder, members_of, needed
from launch.ec2.leaks import in_queue, leaks_of, waiting, warm_times
from launch.ec2.lease import leading
from launch.ec2.queue import all_queued, end, find_queued, read_queued
from launch.ec2.queue_verbs import follow_queued, has_ended, is_led, with_queue, with_waiting
from launch.ec2.regions import plan_job
from launch.ec2.start import attach
from launch.ec2.status import ranks_in, view
from launch.ec2.stop import Target, remove_all, stop_job
from launch.ec2.watch import streams_of
from trainer.errors import SettingsError, TrainerError

if TYPE_CHECKING:
    from launch.ec2.options import RegionsOptions


Place = tuple[Aws, Fleet]  # AWS in a region, and the resources of all jobs there
Spec = Mapping[str, Any]


def find_job(
    places: Sequence[Aws],
    make_aws: Callable[[str | None], Aws],
    job: str | None,
    bucket: str | None,
    doubt: Callable[[str], None],
) -> Place:
    """The region that has `job`, with the resources of all jobs there; the first of `places` if none has it.

    Searches `places`, then the regions in the job.json found there.
    doubt: called with a sentence for each region that could not be searched, if no other has nodes of the job.
    """
    if job is None:
        return places[0], find(places[0])
    here = [_look(aws, job) for aws in places]
    found = _with_job(here, job)
    if found and _runs(found, job):
        return found
    specs = [_spec(place, job, bucket) for place in here]
    others = map(make_aws, _others(specs, here))
    more, failures = query_each(list(others), lambda aws: [_look(aws, job)])
    found = _with_job([*here, *more], job)
    if found and _runs(found, job):
        return found
    for sentence in failures:
        doubt(sentence)
    return found or _last_start([*here, *more], job, bucket)


def _runs(place: Place, job: str) -> bool:
    return bool(place[1].of(job).living)


def _last_start(places: Sequence[Place], job: str, bucket: str | None) -> Place:
    """The place of the job's last start, by job.json."""
    return _newest(places, [_spec(place, job, bucket) for place in places])


def _look(aws: Aws, job: str) -> Place:
    return aws, fleet_with_nodes(aws, job)


def fleet_with_nodes(aws: Aws, job: str | None = None) -> Fleet:
    """The resources of all jobs; without time limits if EventBridge fails and there are nodes to terminate.

    job: the job whose nodes count; None for any.
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
    """The first place with living nodes of the job, else with any of its resources."""
    present = [place for place in places if not place[1].of(job).is_empty]
    return max(present, key=lambda place: bool(place[1].of(job).living), default=None)


def _others(specs: Sequence[Spec], here: Sequence[Place]) -> list[str]:
    """The job's regions that were not searched yet."""
    known = {aws.region for aws, _ in here}
    named = dict.fromkeys(region for spec in specs for region in (*spec.get("regions", ()), spec.get("region", "")))
    return [region for region in named if region and region not in known]


def _newest(places: Sequence[Place], specs: Sequence[Spec]) -> Place:
    """The place of the newest start, else the first place."""
    known = [(place, spec) for place, spec in zip(places, specs, strict=True) if spec.get("started")]
    return max(known, key=lambda row: _start_order(*row))[0] if known else places[0]


def _start_order(place: Place, spec: Spec) -> tuple[int, int]:
    """Sort key of a start: its time, then the region's position in the user's order."""
    regions, region = list(spec.get("regions") or [spec.get("region")]), place[0].region
    return int(spec["started"]), regions.index(region) if region in regions else -1


def _spec(place: Place, job: str, bucket: str | None) -> Spec:
    """job.json, empty if there is none or it cannot be read: the verb itself reads it again, and reports errors."""
    aws, fleet = place
    try:
        return spec_of(aws, folder_of(aws, fleet, job, bucket), BACKEND_NAME) or {}
    except TrainerError:
        return {}


@dataclass(frozen=True)
class Ec2Jobs:
    """Jobs on EC2, found by the tags of their resources; see launch.core.jobs.Jobs."""

    runtime: Runtime
    leak_columns = ("kind", "id", "job", "region", "age", "USD/hour", "why")

    @property
    def say(self) -> Say:
        return self.runtime.say

    @property
    def clock(self) -> Clock:
        return self.runtime.clock

    @property
    def confirm(self) -> Callable[[str], None]:
        return self.runtime.confirm

    # ---- status

    def overview(self, options: Any) -> Iterator[Overview]:
        now = self.clock.utc()
        for aws in self._places(options):
            queued, fleet = list[Queued](), find(aws)
            with suppress(TrainerError):  # jobs in queues cost nothing; those that run are shown in any case
                queued = all_queued(aws)
            found = with_waiting(status.overview(aws, fleet, now), queued, aws.region, fleet)
            yield with_ended(aws, found, self.runtime.ended, now) if options.ended else found

    def state(self, options: Any) -> State:
        aws, fleet = self._find(options, options.bucket)
        folder = known_folder(aws, fleet, options.job, options.bucket)
        state = status.job_state(view(aws, fleet, folder, self.clock.utc()))
        with suppress(AwsError):  # the nodes' state is known without the queue's
            if read_queued(aws, folder) is not None:
                state = with_queue(state, find_queued(aws, folder.job), fleet.of(folder.job))
        return state

    def _places(self, options: RegionsOptions) -> list[Aws]:
        """AWS in each region to search."""
        return [self.runtime.make_aws(region) for region in dict.fromkeys(options.region or (None,))]

    def _find(self, options: Any, bucket: str | None = None, doubts: list[str] | None = None) -> Place:
        """The region of the job, with the resources of all jobs there.

        doubts: collects a sentence for each region that could not be searched; without it each is a warning.
        """

        def warn(sentence: str) -> None:
            self.say(f"warning: {sentence}")

        doubt = warn if doubts is None else doubts.append
        return find_job(self._places(options), self.runtime.make_aws, options.job, bucket, doubt)

    # ---- logs

    def log(self, options: Any) -> Log:
        aws, fleet = self._find(options, options.bucket)
        job = needed(options.job, "logs", fleet)
        living, folder = fleet.of(job).living, folder_of(aws, fleet, job, options.bucket)
        since = self.clock.utc() - timedelta(minutes=options.since) if options.since else None
        tail = LogTail(aws, streams_of(job), only=options.node, several=len(living) > 1, since=since)

        def follow_to_end(show: Show) -> str:
            follow(tail, lambda: bool(nodes_of(aws, job).living) or _may_be_led(aws, folder), self.clock, show)
            return f"all nodes of {job} have ended; to see how:\n  {command('status', job, aws.region)}"

        return Log(
            is_running=bool(living) or _may_be_led(aws, folder),
            show=tail.show_all,
            follow=follow_to_end,
            nothing=lambda: _no_logs(aws, known_folder(aws, fleet, job, options.bucket), options),
            stop=command("stop", job, aws.region),
        )

    # ---- fetch, stop, leaks

    def fetch(self, options: Any, choice: Choice) -> Results:
        aws, fleet = self._find(options, options.bucket)
        job = needed(options.job, "fetch", fleet)
        return fetch_results(aws, known_folder(aws, fleet, job, options.bucket), self.runtime.results, choice)

    def stop(self, options: Any) -> None:
        doubts = list[str]()

        def look() -> Place:
            return self._find(options, options.bucket, doubts)

        # The account's rate limit is shared by all its users; a resource missed because of it would keep costing money.
        aws, fleet = retrying(look, self.clock, self.say, is_busy)
        job = needed(options.job, "stop", fleet)
        self._end_at_home(aws, fleet, job, options.bucket)
        removed = stop_job(Target(aws, job, fleet, options.bucket), self.clock, self.say)
        if doubts:
            raise AwsError(f"{job} may still run in a region that could not be searched: {'  '.join(doubts)}")
        if not removed:
            with suppress(AwsError):  # a folder that cannot be read may be the job's
                known_folder(aws, fleet, job, options.bucket)

    def _end_at_home(self, aws: Aws, fleet: Fleet, job: str, bucket: str | None) -> None:
        """End the launcher of a job whose nodes are in another region than its queue."""
        regions = _spec((aws, fleet), job, bucket).get("regions", ())
        for region in {*regions[:1]} - {aws.region}:
            try:
                home = self.runtime.make_aws(region)
                end(home, folder_of(home, Fleet(), job, None), self.clock, self.say)
            except TrainerError as error:  # which must not keep the nodes running
                self.say(f"warning: its launcher in a queue of {region} may still lead {job}: {error}")

    def active(self, options: Any) -> tuple[Sequence[Leak], bool]:
        def look(aws: Aws) -> Sequence[Leak]:
            fleet = retrying(partial(fleet_with_nodes, aws), self.clock, self.say, is_busy)
            known = leaks_of(fleet, aws.region, self.clock.utc())
            waiting = [one for one in all_queued(aws) if one.name not in {leak.job for leak in known}]
            return [*known, *(in_queue(one, aws.region) for one in waiting)]

        return query_regions(self._places(options), look, self.runtime.make_aws, self.say, all_regions=False)

    def leaks(self, options: Any) -> tuple[Sequence[Leak], bool]:
        now = self.clock.utc()

        def look(aws: Aws) -> Sequence[Leak]:
            fleet = find(aws)
            return leaks_of(fleet, aws.region, now, waiting(aws, fleet, now), warm_times(aws, fleet))

        places = self._places(options)
        return query_regions(places, look, self.runtime.make_aws, self.say, all_regions=options.all_regions)

    def remove(self, leaks: Sequence[Leak]) -> Sequence[str]:
        """Remove the jobs concurrently."""
        # A generator, so that finished targets hold no clients.
        targets = (Target(self.runtime.make_aws(leak.region), leak.job, leak.resources) for leak in leaks)
        return remove_all(targets, self.clock, self.say)

    # ---- ssh, forward, attach

    def shell(self, options: Any) -> Connection:
        return shell_on(
            *self._node(options, "ssh"),
            "then, for a shell in the training's container: sudo docker exec -it ddp bash",
            "and for the boot log: sudo tail -f /var/lib/ddp/boot.log",
        )

    def forward(self, options: Any) -> Connection:
        return forwarding(*self._node(options, "forward"), options.port, options.local_port or options.port)

    def _node(self, options: Any, verb: str) -> tuple[str, str]:
        """The id of the node with the rank of the options, and its region.  Raises SettingsError if there is none."""
        aws, fleet = self._find(options, options.bucket)
        job = needed(options.job, verb, fleet)
        folder, living = known_folder(aws, fleet, job, options.bucket), fleet.of(job).living
        if not living:
            raise SettingsError(f"job {job} has no nodes; for its logs run {command('logs', job, aws.region)}")
        nodes = _by_rank(living, _members(aws, folder))
        _check_rank(job, options.node, nodes)
        return nodes[options.node].id, aws.region

    def attach(self, options: Any) -> None:
        """Plan the job again from its job.json, so that lost nodes can be replaced, and follow it."""
        aws, fleet = self._find(options, options.bucket)
        folder = folder_of(aws, fleet, needed(options.job, "attach", fleet), options.bucket)
        if read_queued(aws, folder) is None:
            self._lead(aws, fleet, options, self.runtime)
        elif is_led(aws, folder) or has_ended(aws, folder):
            follow_queued(aws, folder, self.runtime, fetch=options.fetch)
        else:  # its launchers are used up
            with leading(aws, folder, self.clock, self.say) as clock:
                self._lead(aws, fleet, options, replace(self.runtime, clock=clock))

    def _lead(self, aws: Aws, fleet: Fleet, options: Any, runtime: Runtime) -> None:
        job = job_named(aws, fleet, options.job, options.bucket)
        plan = plan_job(replace(job, where=job.where.model_copy(update={"fetch": options.fetch})), runtime)
        if plan.problem is not None:
            raise plan.problem
        attach(plan, runtime)


def _may_be_led(aws: Aws, folder: Folder) -> bool:
    """is_led(); False if AWS does not say."""
    with suppress(AwsError):
        return is_led(aws, folder)
    return False


def _no_logs(aws: Aws, folder: Folder, options: Any) -> str:
    """Why there are no logs.  Raises SettingsError if the job does not have the node."""
    if options.node is not None:
        _check_rank(folder.job, options.node, ranks_in(_members(aws, folder)).values())
    if options.since is not None:
        return f"{folder.job} logged nothing in the last {options.since:g} min"
    return (
        f"{folder.job} has no logs yet: nodes log once their container runs.  When a node ends, it uploads its boot "
        f"log; to get it:\n  aws s3 sync {folder.uri}/boot/ boot --region {aws.region}"
    )


def _check_rank(job: str, rank: int, ranks: Collection[int]) -> None:
    if ranks and rank not in ranks:
        raise SettingsError(f"--node {rank}: {job} has nodes {', '.join(map(str, sorted(ranks)))}.")


def _by_rank(living: Sequence[Node], members: Mapping[str, Any] | None) -> dict[int, Node]:
    """The nodes by rank in cluster.json; in launch order if it lists none of them."""
    ranks = ranks_in(members)
    return {ranks[node.id]: node for node in living if node.id in ranks} or dict(enumerate(living))


def _members(aws: Aws, folder: Folder) -> Mapping[str, Any] | None:
    """cluster.json; None if it is missing or unreadable."""
    try:
        return members_of(aws, folder)
    except AwsError:
        return None
