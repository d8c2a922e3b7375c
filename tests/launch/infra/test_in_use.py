"""What prevents deleting the roles of all regions, and what is only a warning."""

import pytest

from launch.core.errors import AwsError, Forbidden
from launch.infra.in_use import Region, check_regions

CLOSED = Forbidden("the organization forbids it", "AccessDenied")
HERE = Region("us-east-1", has_stack=True)


def refusal(*regions: Region) -> str:
    with pytest.raises(AwsError) as refused:
        check_regions((HERE, *regions), "us-east-1")
    return str(refused.value)


def test_a_region_closed_by_the_organization_is_only_a_warning() -> None:
    (warning,) = check_regions((HERE, Region("eu-west-1", problems=(CLOSED, CLOSED)), Region("eu-west-2")), "us-east-1")
    assert "eu-west-1" in warning


def test_a_region_that_fails_for_another_reason_does() -> None:
    away = AwsError("AWS cannot be reached")
    assert refusal(Region("eu-west-1", problems=(CLOSED, away))) == (
        "cannot tell whether jobs run in eu-west-1: AWS cannot be reached"
    )


def test_what_is_known_of_a_half_closed_region_counts() -> None:
    assert "j in eu-west-1" in refusal(Region("eu-west-1", ("j in eu-west-1",), problems=(CLOSED,)))


def test_stacks_elsewhere_go_first() -> None:
    said = refusal(Region("ap-south-1", has_stack=True), Region("eu-west-1", has_stack=True))
    assert said.splitlines()[1:] == [
        f"  python -m launch.infra down --region {region}" for region in ("ap-south-1", "eu-west-1")
    ]
