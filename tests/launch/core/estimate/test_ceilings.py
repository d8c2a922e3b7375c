"""launch.core.estimate: what each part of a machine allows, and what would lift the lowest."""

from typing import Any

import pytest

from launch.core import catalog, quote
from launch.core.estimate.forecast import Forecast
from launch.core.estimate.training import Images
from trainer.config import TrainConfig

IMAGENET = {"model": "resnet18", "dataset": "imagenet", "batch_size": 256}
PREPARED = Images(1_281_167, 30_000.0, is_small=True)


def expect(name: str = "g5.2xlarge", nodes: int = 1, images: Images | None = None, **settings: Any) -> Forecast:
    config = TrainConfig(**IMAGENET | settings)
    guess, why = quote.expect(config, catalog.find(name), nodes, on_ebs=True, images=images)
    assert guess is not None, why
    return guess


def ceilings(guess: Forecast) -> dict[str, float]:
    return {one.name: round(one.images_per_s) for one in guess.ceilings}


def test_each_part_has_its_ceiling_and_the_lowest_is_the_limit() -> None:
    """A g5.2xlarge: 106.25 MB/s from EBS (497.125 at its peak), 8 vCPUs; infra/instances.yaml and rates.yaml."""
    guess = expect()

    assert list(ceilings(guess)) == ["EBS", "JPEG decoding", "GPU"]
    assert ceilings(guess)["EBS"] == 966
    assert ceilings(guess)["JPEG decoding"] == 2_160
    assert "3,977 for half an hour a day" in str(guess.ceilings[0])
    assert guess.ceilings[0].images_per_s == pytest.approx(guess.images_per_s)


def test_two_nodes_have_nearly_twice_each_ceiling_and_that_of_their_network() -> None:
    one, two = ceilings(expect()), ceilings(expect(nodes=2))

    assert {name: two[name] / one[name] for name in one} == pytest.approx(dict.fromkeys(one, 2.0), rel=0.05)
    assert two.keys() - one.keys() == {"the network"}


def test_preparing_the_data_lifts_the_disks_ceiling_to_the_gpus() -> None:
    guess = expect()
    assert guess.lift is not None
    better = expect(images=PREPARED)

    assert guess.lift.how == "prepare the data (launch.data publish)"
    assert guess.lift.images_per_s == pytest.approx(better.images_per_s)
    assert better.limit == "compute"
    assert better.lift is None
    assert better.epoch_s < 12 * 60 < 20 * 60 < guess.epoch_s  # the goal: 9 to 12 minutes for an epoch of ImageNet


def test_a_slow_network_is_lifted_by_gradients_in_16_bits() -> None:
    guess = expect("g5.2xlarge", 2, dataset="cifar10", batch_size=128)

    assert guess.limit == "the network"
    assert guess.lift is not None
    assert "--comm-hook bf16" in guess.lift.how


def test_what_is_decoded_once_has_no_ceiling_for_decoding_and_disk() -> None:
    assert ceilings(expect(dataset="cifar10")).keys() == {"GPU"}


def test_the_plan_says_what_it_saves() -> None:
    guess = expect()
    made = quote.Quote("g5.2xlarge", usd_per_hour=1.2, on_demand_usd_per_hour=1.2, forecast=guess)
    lines = dict(quote.price_lines([made]))

    assert lines["  ceilings"].startswith(
        "EBS 966 (3,977 for half an hour a day), JPEG decoding 2,160 (8 vCPUs a node), GPU 2,372"
    )
    assert lines["  to lift it"] == (
        "prepare the data (launch.data publish): 966 -> 2,372 images/s, saves 14 min and 0.27 USD an epoch"
    )
    assert made.as_json()["lift"]["images_per_s"] == pytest.approx(2_372, abs=1)
