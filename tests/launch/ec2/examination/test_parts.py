"""What its checks are made of: the rights that are simulated, and the magic numbers of file systems."""

import pytest

from launch.ec2.examination import account, machines
from tests.launch.aws.examination.rights import ungranted
from tests.launch.doctor.account import EXT4


def test_what_is_simulated_is_what_the_policies_grant() -> None:
    """So the tables of rights and infra/iam say the same."""
    assert ungranted("launcher", account.LAUNCHER) == []
    assert ungranted("node", account.NODE) == []
    assert ungranted("scheduler", account.RIGHTS) == []


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (EXT4, "ext4"),
        (b"XFSB" + bytes(2000), "xfs"),
        (bytes(510) + b"\x55\xaaEFI PART" + bytes(1000), "gpt"),
        (bytes(510) + b"\x55\xaa" + bytes(1000), "mbr"),
        (bytes(2000), ""),
        (b"", ""),
    ],
)
def test_a_file_system_is_known_by_its_magic_number(block: bytes, kind: str) -> None:
    assert machines.kind_of(block) == kind
