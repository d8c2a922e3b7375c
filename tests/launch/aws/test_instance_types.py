"""Any NVIDIA type that EC2 describes can be planned: the catalog has today's, and others are looked up."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.aws.instances.facts import described, find_types
from launch.core import catalog
from launch.core.catalog import Instance, load, unknown
from launch.ec2.__main__ import main
from launch.ec2.checks import NO_DRIVER
from tests.launch.ec2.account import Account
from trainer.errors import SettingsError

# As moto has them from EC2's DescribeInstanceTypes.
DESCRIBED: Mapping[str, Any] = pytest.importorskip("moto.utilities.utils").load_resource(
    "ec2/resources/instance_types.json"
)
RETIRED = {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge"}  # which EC2 describes no more


def test_the_catalog_has_the_hardware_that_ec2_describes() -> None:
    differing = {
        name: (known, found)
        for name, known in load().items()
        if name not in RETIRED and (found := described(DESCRIBED[name])) != _without_rest(known)
    }

    assert differing == {}
    assert load().keys() - DESCRIBED.keys() == RETIRED


def test_the_catalog_has_every_nvidia_type_of_today() -> None:
    lacking = []
    for name, row in DESCRIBED.items():
        is_nvidia = any(gpu.get("Manufacturer") == "NVIDIA" for gpu in row.get("GpuInfo", {}).get("Gpus", ()))
        if is_nvidia and "x86_64" in row["ProcessorInfo"]["SupportedArchitectures"] and name not in load():
            lacking.append(name)

    assert lacking == []


def test_a_type_that_cannot_train_is_refused() -> None:
    with pytest.raises(SettingsError, match="Arm"):
        described(DESCRIBED["g5g.xlarge"])
    with pytest.raises(SettingsError, match="AMD"):
        described({**DESCRIBED["g5.xlarge"], "GpuInfo": {"Gpus": [{"Manufacturer": "AMD", "Count": 1}]}})


@pytest.mark.parametrize("name", ["g9.2xlarge", "g5.99xlarge"])  # a family, and a size of a family
def test_a_type_that_ec2_does_not_have_is_refused(aws: Aws, name: str) -> None:
    guess = unknown(name)
    assert guess is not None
    with pytest.raises(SettingsError, match=rf"no instance type {name} in .*did you mean"):
        find_types(aws, [guess])


def test_a_type_that_no_cluster_takes_is_recognized() -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_PlacementGroupInfo.html"""
    row = DESCRIBED["g5.xlarge"]
    assert described(row).in_cluster
    assert not described({**row, "PlacementGroupInfo": {"SupportedStrategies": ["partition", "spread"]}}).in_cluster


@pytest.fixture
def without_g7_12xlarge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog from before that size of the family."""
    older = MappingProxyType({name: known for name, known in load().items() if name != "g7.12xlarge"})
    monkeypatch.setattr(catalog, "load", lambda: older)


def test_a_type_that_the_catalog_lacks_is_planned_as_ec2_describes_it(
    without_g7_12xlarge: None, account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--nodes", "2", "--instance-type", "g7.12xlarge", "--dataset", "cifar10", "--dry-run=full"]) == 0

    text = capsys.readouterr().out
    assert "processes      4" in text
    assert "g7.12xlarge: 96 vCPUs needed" in text
    assert "not in the catalog" not in text
    assert "GetProducts" in account.operations


def test_a_limit_needs_a_price(without_g7_12xlarge: None, account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--instance-type", "g7.12xlarge", "--dataset", "cifar10", "--max-usd", "5", "--dry-run=full"]) != 0
    assert "--max-usd" in capsys.readouterr().out


def test_a_type_that_the_catalog_lacks_cannot_have_more_processes_than_gpus(
    without_g7_12xlarge: None, account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["--instance-type", "g7.12xlarge", "--dataset", "cifar10", "--nproc-per-node", "3", "--dry-run=full"]) == 2
    )
    assert "g7.12xlarge has 2 GPUs" in capsys.readouterr().err


def test_a_gpu_that_todays_drivers_leave_out_is_recognized() -> None:
    gpus = [{"Name": "M60", "Manufacturer": "NVIDIA", "Count": 1}]
    assert described({**DESCRIBED["g5.xlarge"], "GpuInfo": {"Gpus": gpus}}).architecture in NO_DRIVER


def test_a_type_whose_network_is_not_known_has_no_forecast(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--nodes", "2", "--dataset", "synthetic", "--instance-type", "m6i.xlarge", "--allow-cpu", "--dry-run=full"]
    assert main(words) in (0, 4)
    assert "not in the catalog" in capsys.readouterr().out


def _without_rest(instance: Instance) -> Instance:
    """Without what EC2 does not say."""
    return replace(
        instance, usd_per_hour=0.0, amx=False, half_tflops=0.0, sagemaker_usd_per_hour=None,
        price_source="list", sagemaker_price_source="list", end_of_life=None,
    )  # fmt: skip
