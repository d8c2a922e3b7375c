"""In which of several regions a job is.  Reads only."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.regions import look_everywhere
from launch.ec2.finding import find
from launch.ec2.fleet import Fleet
from launch.ec2.folders import folder_of
from launch.ec2.names import BACKEND_NAME
from launch.ec2.permission import caller
from launch.ec2.written import is_region, spec_of
from trainer.errors import TrainerError

MakeAws = Callable[[str | None], Aws]
Place = tuple[Aws, Fleet]  # AWS in a region, and the resources of all jobs there
Spec = Mapping[str, Any]


def find_job(
    places: Sequence[Aws], make_aws: MakeAws, job: str | None, bucket: str | None, doubt: Callable[[str], None]
) -> Place:
    """AWS in the region that has `job`, and the resources of all jobs there; the first of `places` if none has it.

    A job that was started with several regions is looked for in all of them, whichever of them is asked; and one whose
    bucket is that of several regions where its job.json says that it was started.
    doubt: called with a sentence for each region of job.json that could not be asked, if no other has its nodes.
    """
    first = places[0], _fleet(places[0], job)
    if job is None:
        return first
    here = [first, *_searched(places[1:], job)]
    # A time limit or a group is not where a job is, nor are another's nodes: any launcher may make some of that name in
    # any region.
    present = _present(here, job)
    if present and _has_nodes(present, job) and _has_nodes(present, job, caller(present[0])):
        return present
    specs = [_spec(place, job, bucket) for place in here]
    named = [*specs, *_specs_beside(here, job, bucket)]
    # Any launcher may write job.json, also with a region that there is not: the job may be in another all the same.
    others = [make_aws(region) for region in _other_regions(named, here)]
    more, failures = look_everywhere(others, partial(_looked_into, job=job))
    present = _present([*here, *more], job)
    if not present or not _has_nodes(present, job):
        _tell(failures, doubt)
    return present or _last(here, more, specs, job, bucket)


def _tell(failures: Sequence[str], doubt: Callable[[str], None]) -> None:
    for sentence in failures:
        doubt(sentence)


def _last(here: Sequence[Place], more: Sequence[Place], specs: Sequence[Spec], job: str, bucket: str | None) -> Place:
    """Where a job was last that is nowhere now.  specs: job.json in each place of `here`."""
    if len(here) + len(more) == 1:
        return here[0]
    return _newest([*here, *more], [*specs, *(_spec(place, job, bucket) for place in more)])


def _searched(places: Sequence[Aws], job: str) -> list[Place]:
    return [place for aws in places for place in _looked_into(aws, job)]


def _looked_into(aws: Aws, job: str) -> list[Place]:
    return [(aws, _fleet(aws, job))]


def _fleet(aws: Aws, job: str | None) -> Fleet:
    return find(aws) if job is None else fleet_with_nodes(aws, job)


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


def _other_regions(specs: Sequence[Spec], here: Sequence[Place]) -> list[str]:
    """The regions of the job that were not searched yet."""
    known = {aws.region for aws, _ in here}
    named = dict.fromkeys(region for spec in specs for region in (*spec.get("regions", ()), spec.get("region", "")))
    return [region for region in named if is_region(region) and region not in known]


def _newest(places: Sequence[Place], specs: Sequence[Spec]) -> Place:
    """The place of the newest start, or else the first place."""
    known = [(place, spec) for place, spec in zip(places, specs, strict=True) if spec.get("started")]
    return max(known, key=lambda row: _turn(*row))[0] if known else places[0]


def _turn(place: Place, spec: Spec) -> tuple[int, int]:
    """When the launcher came to a region: of two in the same second, the later one in the user's order."""
    regions, region = list(spec.get("regions") or [spec.get("region")]), place[0].region
    return int(spec["started"]), regions.index(region) if region in regions else -1


def _present(places: Sequence[Place], job: str) -> Place | None:
    """The place with resources of the job: where the caller has some, or it has nodes, as a launch may have died on its
    way between two.
    """
    present = [(aws, fleet) for aws, fleet in places if fleet.of(job).present or fleet.of(job).resources]
    if len(present) < 2:
        return next(iter(present), None)
    me = caller(present[0][0])
    return max(
        present, key=lambda place: (_has_nodes(place, job, me), _has_some(place, job, me), _has_nodes(place, job))
    )


def _has_nodes(place: Place, job: str, owner: str = "") -> bool:
    """Whether it has nodes of the job that live, of any owner or of this one."""
    return any(not owner or node.owner == owner for node in place[1].of(job).living)


def _has_some(place: Place, job: str, owner: str) -> bool:
    own = place[1].of(job)
    return owner in {*(node.owner for node in own.present), *(thing.owner for thing in own.resources)}


def _specs_beside(places: Sequence[Place], job: str, bucket: str | None) -> list[Spec]:
    """job.json in the toolkit's own bucket, where tags name the bucket: those of another's things may name any."""
    doubtful = [] if bucket else [aws for aws, fleet in places if job in fleet.buckets]
    return [_spec((aws, Fleet()), job, None) for aws in doubtful]


def _spec(place: Place, job: str, bucket: str | None) -> Spec:
    """job.json, empty if there is none or it cannot be read: the verb itself asks again, and says why."""
    aws, fleet = place
    try:
        return spec_of(aws, folder_of(aws, fleet, job, bucket), BACKEND_NAME) or {}
    except TrainerError:
        return {}
