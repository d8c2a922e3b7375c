"""The regions that the toolkit supports, and queries to several regions in parallel.  Reads only."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from launch.aws.client import Aws
from launch.core.terminal import Say
from trainer.errors import SettingsError, TrainerError

Finding = TypeVar("Finding")

# AWS's other partitions: China, GovCloud, the isolated ones and the European sovereign cloud.
OTHER_PARTITIONS = r"(cn|us-gov|[a-z]+-iso[a-z]*|eusc)-.*"


def check_region(region: str) -> None:
    """Raise SettingsError for a region outside the partition `aws`, to which the ARNs in infra/iam are limited."""
    if re.fullmatch(OTHER_PARTITIONS, region):
        raise SettingsError(
            f"{region} is not in AWS's standard partition, and the policies are for that only; give another --region."
        )


@cache
def absent_types(region: str) -> frozenset[str]:
    """CloudFormation's resource types that the region lacks, by infra/cloudformation/regions.yaml."""
    # Imported here to keep --help fast.
    from importlib.resources import files

    import yaml

    absent = yaml.safe_load(files("infra").joinpath("cloudformation/regions.yaml").read_bytes())["absent"]
    return frozenset(kind for kind, regions in absent.items() if region in regions)


def regions_of(aws: Aws) -> list[str]:
    """The names of all regions that are enabled for the account, sorted."""
    return sorted(region["RegionName"] for region in aws.call("ec2", "DescribeRegions")["Regions"])


def query_regions(
    places: Sequence[Aws],
    query: Callable[[Aws], Sequence[Finding]],
    make_aws: Callable[[str], Aws],
    say: Say,
    *,
    all_regions: bool,
) -> tuple[Sequence[Finding], bool]:
    """Call `query` in `places`, or in all regions of their account; also return whether all calls succeeded."""
    if all_regions:
        places = [make_aws(region) for region in regions_of(places[0])]
    elif len(places) == 1:
        return query(places[0]), True
    findings, failures = query_each(places, query)
    for sentence in failures:
        say(f"warning: {sentence}")
    return findings, not failures


def query_each(
    places: Sequence[Aws], query: Callable[[Aws], Sequence[Finding]]
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Call `query` in `places`, one per region; also return a sentence for each region where it failed."""

    def attempt(aws: Aws) -> tuple[Sequence[Finding], str]:
        try:
            return query(aws), ""
        except TrainerError as error:
            return (), f"{aws.region} could not be checked: {error}"

    with ThreadPoolExecutor(max_workers=max(1, len(places))) as pool:
        answers = list(pool.map(attempt, places))
    findings = tuple(finding for found, _ in answers for finding in found)
    return findings, tuple(sentence for _, sentence in answers if sentence)
