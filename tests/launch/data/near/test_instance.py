"""launch.data publish s3://... --by instance: what is in the account meanwhile and afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.data.near.desk import NearDesk, opened


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[NearDesk]:
    with opened(tmp_path) as desk:
        yield desk


def test_an_instance_publishes_what_is_in_s3_and_nothing_of_it_is_left(desk: NearDesk) -> None:
    assert desk.near() == 0, desk.text + "\n".join(desk.told)

    (snapshot,) = desk.snapshots()
    assert (desk.record["state"], desk.record["snapshot"], desk.record["verified"]) == ("published", snapshot.id, "all")
    assert (desk.ran, desk.billed()) == (1, [])
    assert "use it:" in desk.text
