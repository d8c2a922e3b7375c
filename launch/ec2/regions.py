"""Plans of a job in its regions: the order in which they are tried, and what excluded ones lack."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from launch.aws.instances.inventory import Fleet, find
from launch.aws.lookup import earlier_jobs, is_sent
from launch.aws.names import DATA_TAG, bucket_of
from launch.aws.pricelist import cache_of
from launch.core.errors import AwsError, NotSetUp
from launch.core.job import Job, job_name, letters_of
from launch.core.plan import Plan, as_data, as_text, json_text, short_text
from launch.core.quote import Quote
from launch.core.terminal import columns
from launch.ec2 import checks, planner
from launch.ec2.backend import Runtime
from launch.ec2.capacity import is_no_capacity
from launch.ec2.describe import times
from launch.ec2.facts import Facts, Snapshot
from launch.ec2.lookup import look_up
from launch.ec2.options import IMAGE, Ec2Options
from launch.ec2.planner import Launch
from launch.ec2.queue import running_names
from launch.ec2.warm import warm_nodes
from trainer.errors import SettingsError, TrainerError


@dataclass(frozen=True)
class Place:
    """A region with its facts and plan."""

    facts: Facts
    plan: Plan[Launch]

    @property
    def region(self) -> str:
        return self.facts.region

    @property
    def problem(self) -> TrainerError | None:
        """Why the job cannot start here; None if it can, or the user waits for capacity and that may help."""
        problem, waits = self.plan.problem, self.plan.payload.job.where.wait_for_capacity > 0
        return None if problem is not None and waits and is_no_capacity(problem) else problem

    @property
    def spot_score(self) -> int:
        """The best spot placement score of its zones; 0 for other markets."""
        return max(self.facts.spot_scores.values(), default=0)

    @property
    def is_warm(self) -> bool:
        """Whether it starts on warm nodes of another job."""
        return self.plan.payload.cluster.warm is not None

    @property
    def holds_job(self) -> bool:
        """Whether nodes of the job run or ran here, so that its checkpoints are in this region's bucket."""
        return self.facts.last_generation > 0 or bool(self.facts.fleet.living)

    @property
    def is_begun(self) -> bool:
        """Whether an unfinished start of the job was begun here, whose launcher may have died."""
        spec = self.facts.spec
        return bool(self.facts.fleet.resources) or (spec is not None and "ended" not in spec)


@dataclass(frozen=True)
class Plans:
    """The places, one per region."""

    places: tuple[Place, ...]  # in the user's order
    is_new: bool = False  # the job has a generated, unique name

    @property
    def home(self) -> Place | None:
        """The region in which the job must continue, if it has begun to train."""
        held = [place for place in self.places if place.holds_job]
        stuck = [place for place in self.places if place.is_begun and place.problem]
        return max(held or stuck, key=_started, default=None)

    @property
    def tried(self) -> tuple[Place, ...]:
        """The regions to try, in order.  Those with an unfinished start come first, as they may have nodes.

        Then those with warm nodes for it, and those with the zone that has the best spot placement score.
        """
        if self.home:
            return (self.home,)
        ready = [place for place in self.places if place.problem is None]
        return tuple(sorted(ready, key=lambda place: (not place.is_begun, not place.is_warm, -place.spot_score)))

    @property
    def problem(self) -> TrainerError | None:
        """Why the job cannot start in any region."""
        first = self.places[0].problem
        if len(self.places) == 1 or isinstance(first, NotSetUp):
            return first
        unseen = [place for place in self.places if not place.facts.fleet_is_known]
        if unseen and not self.is_new:
            names = ", ".join(place.region for place in unseen)
            return AwsError(
                f"whether the job is in {names} already could not be looked up: {unseen[0].problem}  "
                "If it is not, leave that region out."
            )
        return self.tried[0].problem if self.tried else self._all_problems()

    def _all_problems(self) -> TrainerError:
        """One error with each region's problem."""
        lines = [f"{place.region}: {place.problem}" for place in self.places]
        are_settings = [isinstance(place.problem, SettingsError) for place in self.places]
        kind = SettingsError if all(are_settings) else AwsError
        return kind("\n  ".join(["the job can start in none of the regions:", *lines]))

    @property
    def job(self) -> str:
        return self.places[0].plan.payload.cluster.job

    @property
    def brief(self) -> str:
        """What is shown before a start: the plan of the first region, with several below a line for each."""
        text = self.tried[0].plan.brief
        return text if self.home or len(self.places) == 1 else f"{overview(self)}\n\n{text}"

    @property
    def quotes(self) -> tuple[Quote, ...]:
        """The prices of what a start would start, of the first region if none can start it; none if all nodes run."""
        plan = (self.tried or self.places)[0].plan
        return plan.quotes if plan.payload.missing else ()

    def __str__(self) -> str:
        return full_text(self)


def _started(place: Place) -> int:
    return int((place.facts.spec or {}).get("started", 0))


@dataclass(frozen=True)
class Missing:
    """A resource that a region lacks."""

    what: str
    command: str  # copies it from another region, or creates it


def missing(place: Place, places: Sequence[Place]) -> tuple[Missing, ...]:
    """The resources that the region lacks, in the order in which to create them."""
    rows = (_missing_bucket(place), _missing_image(place, places), _missing_snapshot(place, places))
    return tuple(row for row in rows if row is not None)


def _missing_bucket(place: Place) -> Missing | None:
    if any(isinstance(one, AwsError) and one.aws_code == "NoSuchBucket" for one in place.facts.problems):
        return Missing("bucket", f"python -m launch.infra up --region {place.region}")
    return None


def _missing_image(place: Place, places: Sequence[Place]) -> Missing | None:
    if place.facts.image is not None or place.facts.account is None:
        return None
    wanted = place.plan.payload.cluster.resolved.options.image
    return Missing("image", _push(place, wanted, [one.facts.image for one in places]))


def _missing_snapshot(place: Place, places: Sequence[Place]) -> Missing | None:
    """The missing snapshot; None if it exists, or no other region has one to copy."""
    has_volume = place.plan.payload.cluster.resolved.data_volume != "none"
    if not has_volume or place.facts.snapshot is not None or place.facts.account is None:
        return None
    for source in places:
        if source.facts.snapshot is not None:
            return Missing("snapshot", _copy(place, source.region, source.facts.snapshot))
    return None


def _push(place: Place, wanted: str, found: Sequence[str | None]) -> str:
    source = next((image for image in found if image), None)
    if wanted == IMAGE or source is None:
        return f"python -m launch.image push --region {place.region}"
    target = f"{place.facts.account}.dkr.ecr.{place.region}.amazonaws.com/{wanted.partition('@')[0]}"
    return f"docker buildx imagetools create --tag {target} {source}"


def _copy(place: Place, region: str, snapshot: Snapshot) -> str:
    job = place.plan.payload.job
    name = job.where.data or job.train.dataset
    if snapshot.content is not None:
        return f"python -m launch.data copy {name} --region {region} --to-region {place.region}"
    tags = f"ResourceType=snapshot,Tags=[{{Key={DATA_TAG},Value={name}}}]"
    return (
        f"aws ec2 copy-snapshot --region {place.region} --source-region {region} --source-snapshot-id {snapshot.id} "
        f"--tag-specifications '{tags}'"
    )


def full_text(plans: Plans) -> str:
    """The plans with every request; with one region, just its plan."""
    if len(plans.places) == 1:
        return as_text(plans.places[0].plan)
    parts = [f"in {place.region}: {as_text(place.plan)}" for place in plans.tried]
    return "\n\n".join([overview(plans), *parts])


def text(plans: Plans) -> str:
    """The plan of the first region to be tried on one screen; with several regions, below a line for each."""
    if len(plans.places) == 1:
        return short_text(plans.places[0].plan)
    return "\n\n".join([overview(plans), *(short_text(place.plan) for place in (plans.tried or plans.places)[:1])])


def overview(plans: Plans) -> str:
    """A line for all regions in the same state, and the commands that prepare the excluded ones."""
    regions = dict[str, list[str]]()  # by state
    for place in (*plans.tried, *_left_out(plans)):
        regions.setdefault(_state(plans, place), []).append(place.region)
    rows = [(", ".join(names), state) for state, names in regions.items()]
    lines = [f"job {plans.job} starts in the first of these regions that has capacity:", *columns(rows)]
    for place in _left_out(plans):
        if lacks := missing(place, plans.places):
            lines += [f"to make {place.region} ready:", *(f"  {one.command}" for one in lacks)]
    return "\n".join(lines)


def _left_out(plans: Plans) -> list[Place]:
    return [place for place in plans.places if place not in plans.tried]


def _state(plans: Plans, place: Place) -> str:
    if place in plans.tried:
        return f"the job is here: {place.problem}" if place.problem else "ready"
    if plans.home:
        return f"left out: the job and its checkpoints are in {plans.home.region}"
    lacks = ", ".join(one.what for one in missing(place, plans.places))
    why = "; ".join(str(problem) for problem in place.plan.problems)
    return f"left out: {f'no {lacks} here: ' if lacks else ''}{why}"


def data(plans: Plans) -> str:
    """The plans as JSON: the first one to be tried, and under `regions` all of them."""
    if len(plans.places) == 1:
        return json_text(as_data(plans.places[0].plan))
    first = next(iter(plans.tried), plans.places[0])
    content = as_data(first.plan)
    if plans.problem is not None:
        content["problems"] = [{"exit_code": int(plans.problem.code), "sentence": str(plans.problem)}]
    rows = [_row(plans, place) for place in plans.places]
    return json_text({**content, "regions": rows})


def _row(plans: Plans, place: Place) -> dict[str, Any]:
    lacks = [{"what": one.what, "command": one.command} for one in missing(place, plans.places)]
    return {"region": place.region, "is_tried": place in plans.tried, "lacks": lacks, "plan": as_data(place.plan)}


def plan_job(
    job: Job[Ec2Options], runtime: Runtime, region: str | None = None, *, is_first: bool = True
) -> Plan[Launch]:
    """The plan of `job` in one region, by default its first.  Without a name the job gets one.

    is_first: False for replacements of lost nodes, which are not quoted.  Raises SettingsError before any call to AWS.
    """
    return _plan_in(region or next(iter(job.where.region), None), _named(job, runtime), runtime, is_first=is_first).plan


def plan_regions(job: Job[Ec2Options], runtime: Runtime) -> Plans:
    """The plans of `job` in all its regions."""
    named, regions = _named(job, runtime), dict.fromkeys(job.where.region or (None,))
    places = tuple(_plan_in(region, named, runtime) for region in regions)
    return Plans(places, is_new=job.where.job_name is None)


def _named(job: Job[Ec2Options], runtime: Runtime) -> Job[Ec2Options]:
    checks.resolve(job)  # refuses what cannot work before any call
    name = job_name(job, runtime.clock.utc().astimezone(), partial(_running, job, runtime))
    return replace(job, where=job.where.model_copy(update={"job_name": name}))


def _running(job: Job[Ec2Options], runtime: Runtime) -> Iterator[str]:
    """The jobs that run in the regions that answer; why the others do not is among the problems of their plans.

    Without an equal one, by the letters in its name, that has ended and whose nodes are warm.
    """
    letters = letters_of(job)
    for region in job.where.region or (None,):
        with suppress(TrainerError):
            aws = runtime.make_aws(region)
            if job.where.queue is not None and aws.has_credentials:
                yield from running_names(aws)
            running = find(aws) if aws.has_credentials else Fleet()
            for name in running.jobs:
                is_warm = False
                if name.endswith(letters):
                    with suppress(TrainerError):
                        is_warm = warm_nodes(aws, running.of(name), name) is not None
                if not is_warm:
                    yield name


def _plan_in(region: str | None, job: Job[Ec2Options], runtime: Runtime, *, is_first: bool = True) -> Place:
    resolved, now, name = checks.resolve(job), runtime.clock.utc(), str(job.where.job_name)
    aws, cache = runtime.make_aws(region), partial(cache_of, runtime.env)
    facts = look_up(aws, resolved, name, job.train.dataset, now, cache)
    bucket = job.where.bucket or bucket_of(str(facts.account), facts.region)
    resolved = checks.resolve(job, facts.types) if facts.types else resolved
    if not facts.problems:
        facts = replace(facts, is_sent=is_sent(aws, bucket, job.train, times(job.where, facts)[0]))
    if not facts.problems and is_first:
        facts = replace(facts, earlier=earlier_jobs(aws, bucket, job.train, name))
    return Place(facts, planner.plan(job, resolved, name, facts))
