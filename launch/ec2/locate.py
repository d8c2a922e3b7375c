"""In which of several regions a job is.  Reads only."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch.aws.client import Aws
from launch.aws.regions import look_everywhere
from launch.core.errors import AwsError
from launch.ec2.inventory import Fleet, find
from launch.ec2.job_folder import folder_of, spec_of
from launch.ec2.names import BACKEND_NAME
from trainer.errors import TrainerError

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
