"""In which of several regions a job is.  Reads only."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch.core.aws import Aws
from launch.core.regions import look_everywhere
from launch.ec2.finding import find
from launch.ec2.fleet import Fleet
from launch.ec2.folders import folder_of
from launch.ec2.names import BACKEND_NAME
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
    doubt: called with a sentence for each region of job.json that could not be asked, if the job is nowhere else.
    """
    first = places[0], find(places[0])
    if job is None:
        return first
    here = [first, *_searched(places[1:])]
    if present := _present(here, job):
        return present
    specs = [_spec(place, job, bucket) for place in here]
    # Any launcher may write job.json, also with a region that there is not: the job may be in another all the same.
    more, failures = look_everywhere([make_aws(region) for region in _other_regions(specs, here)], _looked_into)
    if present := _present(more, job):
        return present
    for sentence in failures:
        doubt(sentence)
    if len(here) + len(more) == 1:
        return first
    specs += [_spec(place, job, bucket) for place in more]
    return _newest([*here, *more], specs)


def _searched(places: Sequence[Aws]) -> list[Place]:
    return [place for aws in places for place in _looked_into(aws)]


def _looked_into(aws: Aws) -> list[Place]:
    return [(aws, find(aws))]


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
    """The place with resources of the job: where it has nodes, if a launch has died on its way between two."""
    present = [(aws, fleet) for aws, fleet in places if fleet.of(job).present or fleet.of(job).resources]
    return max(present, key=lambda place: bool(place[1].of(job).living), default=None)


def _spec(place: Place, job: str, bucket: str | None) -> Spec:
    """job.json, empty if there is none or it cannot be read: the verb itself asks again, and says why."""
    aws, fleet = place
    try:
        return spec_of(aws, folder_of(aws, fleet, job, bucket), BACKEND_NAME) or {}
    except TrainerError:
        return {}
