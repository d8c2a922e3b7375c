"""A dry run of every NVIDIA type of the catalog, and in every commercial region: a plan, or one clear sentence."""

import re
from collections.abc import Collection
from typing import Any

import botocore.session
import pytest

from launch.core import catalog
from launch.rehearse.aws.ec2.account import Ec2Account
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal
from trainer.contract import Exit

JOB = ("--dry-run", "--dataset", "digits", "--model", "cnn", "--job-name", "any")
NVIDIA = [one.name for one in catalog.load().values() if one.is_gpu]
# What a plan for these needs beside the type: AWS's AMIs do not drive a V100, and p5e is not sold by the hour.
NEEDED = {"p3": "--ami", "p3dn": "--ami", "p5e": "--capacity-block"}
# https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html, as botocore has it.
REGIONS = botocore.session.Session().get_available_regions("ec2", "aws")
NOT_OFFERED = "is not offered in the zones of the subnets"
Capture = pytest.CaptureFixture[str]


SLOW = pytest.mark.slow("every NVIDIA type and every commercial region has a plan, or one sentence that says why not")


def some_quick(names: Collection[str], quick: Collection[str], slow: Any = SLOW) -> list[Any]:
    """Cases, of which `make test` tries `quick`."""
    return [pytest.param(name, marks=() if name in quick else slow) for name in sorted(names)]


def why_not(code: int, capsys: Capture) -> list[str]:
    """The sentences that say why there is no plan; none with a plan."""
    text = "".join(capsys.readouterr())
    sentences = re.findall(r"(?m)^(?:problem|error): (.*)", text)
    assert (code, bool(sentences)) in ((0, False), (Exit.SETTINGS, True), (Exit.AWS, True)), text
    assert "Traceback" not in text
    return sentences


@pytest.mark.parametrize("family", some_quick({name.split(".")[0] for name in NVIDIA}, ("g5", "p3", "p5e")))
def test_every_type(family: str, account: Account, capsys: Capture) -> None:
    needed = NEEDED.get(family)
    for name in NVIDIA:
        if name.split(".")[0] == family:
            why = why_not(Terminal(account).type(*JOB, "--instance-type", name), capsys)
            assert [needed in sentence for sentence in why] == [True] if needed else why == [], name


@pytest.mark.parametrize("continent", some_quick({name.split("-")[0] for name in REGIONS}, ("sa",)))
def test_every_region(continent: str, account: Account, capsys: Capture) -> None:
    """One that is not set up names the command for that region; one that is has a plan, or lacks the type."""
    terminal = Terminal(account)
    for region in REGIONS:
        if region.split("-")[0] == continent:
            words = (*JOB, "--region", region)
            if region != account.region:
                assert f"python -m launch.infra up --region {region})" in why_not(terminal.type(*words), capsys)[0]
                Ec2Account(region, rules=account.rules).fill_region()
            why = why_not(terminal.type(*words), capsys)
            assert why == [] or (len(why) == 1 and NOT_OFFERED in why[0]), why
