"""Regions: which the toolkit can work in, and a look into all those of an account at once.  Reads only."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from launch.aws.client import Aws
from launch.core.terminal import Say
from trainer.errors import SettingsError, TrainerError

Finding = TypeVar("Finding")

# AWS's other partitions: China, GovCloud, the isolated ones and the European sovereign cloud.
OTHER_PARTITIONS = r"(cn|us-gov|[a-z]+-iso[a-z]*|eusc)-.*"


def check_region(region: str) -> None:
    """Raises SettingsError for a region outside the partition `aws`, which the ARNs in infra/iam name."""
    if re.fullmatch(OTHER_PARTITIONS, region):
        raise SettingsError(
            f"{region} is not in AWS's standard partition, and the policies are for that only; give another --region."
        )


def regions_of(aws: Aws) -> list[str]:
    """The names of all regions that are enabled for the account, sorted."""
    return sorted(region["RegionName"] for region in aws.call("ec2", "DescribeRegions")["Regions"])


def look_around(
    places: Sequence[Aws],
    look: Callable[[Aws], Sequence[Finding]],
    make_aws: Callable[[str], Aws],
    say: Say,
    *,
    all_regions: bool,
) -> tuple[Sequence[Finding], bool]:
    """Calls `look` in `places`, or in all regions of their account; also tells whether each could be checked."""
    if all_regions:
        places = [make_aws(region) for region in regions_of(places[0])]
    elif len(places) == 1:
        return look(places[0]), True
    findings, failures = look_everywhere(places, look)
    for sentence in failures:
        say(f"warning: {sentence}")
    return findings, not failures


def look_everywhere(
    places: Sequence[Aws], look: Callable[[Aws], Sequence[Finding]]
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Calls `look` in `places`, one per region.  Also gives a sentence for each region where it failed."""

    def try_to_look(aws: Aws) -> tuple[Sequence[Finding], str]:
        try:
            return look(aws), ""
        except TrainerError as error:
            return (), f"{aws.region} could not be checked: {error}"

    with ThreadPoolExecutor(max_workers=max(1, len(places))) as pool:
        answers = list(pool.map(try_to_look, places))
    findings = tuple(finding for found, _ in answers for finding in found)
    return findings, tuple(sentence for _, sentence in answers if sentence)
