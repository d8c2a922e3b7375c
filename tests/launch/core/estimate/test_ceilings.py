"""launch.core.estimate: what each part of a machine allows, and what would lift the lowest."""

from dataclasses import replace
from typing import Any

import pytest

from launch.core import catalog, quote
from launch.core.estimate.forecast import Forecast
from launch.core.estimate.rates import decoded_per_vcpu
from launch.core.estimate.training import Images
from launch.core.estimate.volume import NewVolume, data_volume, io2_volume, promise, rate_paid
from trainer.config import TrainConfig

IMAGENET = {"model": "resnet18", "dataset": "imagenet", "batch_size": 256}
PREPARED = Images(1_281_167, 30_000.0, is_small=True)


def expect(
    name: str = "g5.2xlarge",
    nodes: int = 1,
    images: Images | None = None,
    volume: NewVolume | None = None,
    **settings: Any,
) -> Forecast:
    config = TrainConfig(**IMAGENET | settings)
    guess, why = quote.expect(config, catalog.find(name), nodes, on_ebs=True, images=images, volume=volume)
    assert guess is not None, why
    return guess


def ceilings(guess: Forecast) -> dict[str, float]:
    return {one.name: round(one.images_per_s) for one in guess.ceilings}


def test_each_part_has_its_ceiling_and_the_lowest_is_the_limit() -> None:
    """A g5.2xlarge: 106.25 MB/s from EBS (497.125 at its peak), 8 vCPUs; infra/instances.yaml and rates.yaml."""
    guess = expect()

    assert list(ceilings(guess)) == ["EBS", "JPEG decoding", "compute"]
    assert ceilings(guess)["EBS"] == 966
    assert ceilings(guess)["JPEG decoding"] == round(8 * 323 * 3.3 / 3.7)  # an EPYC of 3.7 GHz decodes 323
    assert "3,977 for half an hour a day" in str(guess.ceilings[0])
    assert guess.ceilings[0].images_per_s == pytest.approx(guess.images_per_s)


@pytest.mark.parametrize("batch", [2, 128])
@pytest.mark.parametrize("nodes", [1, 8])
@pytest.mark.parametrize("name", ["g5.2xlarge", "g5.12xlarge", "p5.48xlarge"])
@pytest.mark.parametrize("dataset", ["cifar10", "imagenet"])
def test_the_limit_is_the_lowest_ceiling_by_its_name_and_number(
    dataset: str, name: str, nodes: int, batch: int
) -> None:
    for prepared in [False, True]:
        images = PREPARED if prepared and dataset == "imagenet" else None
        for strategy in ("ddp", "fsdp"):
            guess = expect(name, nodes, images, NewVolume(), dataset=dataset, batch_size=batch, strategy=strategy)
            lowest = guess.ceilings[0]

            assert lowest.name == guess.limit
            assert lowest.images_per_s == pytest.approx(guess.images_per_s)
            assert lowest.images_per_s == min(one.images_per_s for one in guess.ceilings if one.lasts)


@pytest.mark.parametrize(
    ("name", "nodes", "model", "limit"),
    [("g5.12xlarge", 1, "vgg11", "the interconnect"), ("g5.2xlarge", 2, "resnet18", "the network")],
)
def test_a_slow_exchange_of_gradients_is_lifted_by_16_bits(name: str, nodes: int, model: str, limit: str) -> None:
    guess = expect(name, nodes, model=model, dataset="cifar10", batch_size=128)

    assert guess.limit == limit
    assert ceilings(guess).keys() == {"compute", limit}  # nobody decodes, nor reads a disk
    assert guess.lift is not None
    assert "--comm-hook bf16" in guess.lift.how
    assert expect(name, nodes, model=model, dataset="cifar10", batch_size=128, strategy="fsdp").lift is None


def test_a_program_finds_the_limit_among_the_ceilings_and_what_volumes_give_at_first_beside_them() -> None:
    made = quote.Quote("g5.12xlarge", forecast=expect("g5.12xlarge", batch_size=128, volume=NewVolume())).as_json()

    assert made["limited_by"] == "compute"
    assert min(made["ceilings"].values()) == made["ceilings"]["compute"] == pytest.approx(made["images_per_s"])
    assert made["filling_images_per_s"] == pytest.approx(50 * 2**20 / 110_000)


def test_preparing_the_data_lifts_the_disks_ceiling_to_the_gpus() -> None:
    guess = expect()
    assert guess.lift is not None
    better = expect(images=PREPARED)

    assert guess.lift.how == "prepare the data (launch.data publish)"
    assert guess.lift.images_per_s == pytest.approx(better.images_per_s)
    assert better.limit == "compute"
    assert better.lift is None
    assert better.epoch_s < 12 * 60 < 20 * 60 < guess.epoch_s  # the goal: 9 to 12 minutes for an epoch of ImageNet


GP3 = promise(data_volume(catalog.find("g5.2xlarge"), 150))
IO2 = promise(io2_volume(150))


def test_nodes_that_read_one_volume_share_what_it_gives() -> None:
    """16,000 operations a second in all, and 3,000 of each; a volume comes from S3 once, whichever node reads it."""
    own = expect(nodes=16, images=PREPARED, comm_hook="bf16", volume=NewVolume(data_gib=40, promise=GP3))
    one = expect(nodes=16, images=PREPARED, comm_hook="bf16", volume=NewVolume(data_gib=40, promise=IO2))

    assert own.images_per_s > 20_000
    assert (one.limit, round(one.images_per_s)) == ("EBS", 16_000)
    assert "EBS 16,000 (16,000 operations/s of the volume that all read)" in map(str, one.ceilings)
    assert ceilings(own)["volume initialization"] == pytest.approx(16 * ceilings(one)["volume initialization"], abs=16)
    assert one.lift is not None
    assert one.lift.how == "a volume for each node (--data-volume per-node)"
    assert one.lift.images_per_s == pytest.approx(own.images_per_s)


def test_shards_that_are_read_from_s3_come_over_the_line() -> None:
    """0.9 of 5 Gbit/s all the time: 562.5 MB/s, of 30 kB each; infra/instances.yaml and rates.yaml."""
    one, two = (expect(nodes=nodes, images=PREPARED, data_url="s3://b/data/imagenet") for nodes in (1, 2))

    assert ceilings(one)["S3"] == 18_750
    assert "S3 37,500 (by the line that gradients take, too)" in map(str, two.ceilings)
    large = expect(images=Images(1_281_167, 1e6), data_url="s3://b/data/large")
    assert (large.limit, round(large.images_per_s)) == ("S3", 562)


def test_the_plan_says_what_it_saves() -> None:
    made = quote.Quote("g5.2xlarge", usd_per_hour=1.2, on_demand_usd_per_hour=1.2, forecast=expect())
    lines = dict(quote.price_lines([made]))

    assert lines["  ceilings"].startswith("EBS 966 (")
    assert "launch.data publish" in lines["  to lift it"]
    assert made.as_json()["lift"]["images_per_s"] == pytest.approx(2_372, abs=1)


GIB = (1_281_167 + 50_000) * 110_000 / 2**30  # of ImageNet


def test_a_volume_that_aws_fills_as_it_pleases_limits_the_first_epoch() -> None:
    """At 50 MiB/s (20 to 130, infra/rates.yaml): 477 images/s of 110 kB, and all of ImageNet after 47 minutes."""
    full, new = expect(epochs=3), expect(epochs=3, volume=NewVolume())

    assert str(new.ceilings[-1]) == "volume initialization 477 (the first 47 min; 50 MiB/s, estimated)"
    assert new.volume_init is not None
    assert new.volume_init.full_s == pytest.approx(GIB * 1024 / 50)
    # Of the images that it gives until then, each would have come at 966 images/s.
    given = new.volume_init.full_s * 50 * 2**20 / 110_000
    assert new.volume_init.lost_s == pytest.approx(new.volume_init.full_s - given / full.images_per_s, rel=1e-6)
    assert 3600 * (new.hours - full.hours) == pytest.approx(new.volume_init.lost_s)
    assert (new.epoch_s, new.images_per_s, new.limit) == (full.epoch_s, full.images_per_s, full.limit)
    assert new.hours_range[1] - full.hours_range[1] > 2.4 * (new.hours - full.hours)


def test_a_short_training_loses_no_more_than_its_own_images_take() -> None:
    ten = expect(max_steps=10, volume=NewVolume())
    assert ten.volume_init is not None
    assert ten.volume_init.lost_s == pytest.approx(10 * 256 * (110_000 / 50 / 2**20 - 1 / 966), rel=1e-3)


def test_a_rate_that_is_paid_for_counts_from_the_volumes_creation_on() -> None:
    """The nodes take 0.2 h to start (infra/rates.yaml), in which 150 MiB/s bring 105 GiB."""
    raw = expect(volume=NewVolume(150, GIB))
    prepared = expect(images=PREPARED, volume=NewVolume(300))

    assert raw.volume_init is not None
    assert raw.volume_init.full_s == pytest.approx(GIB * 1024 / 150 - 720)
    assert raw.volume_init.lost_s == 0.0  # it gives 1,430 images/s, and EBS 966
    assert str(prepared.ceilings[-1]) == ("volume initialization 10,486 (full before it begins; 300 MiB/s, paid for)")


@pytest.mark.parametrize(
    ("pay", "nodes", "usd_per_hour", "read_gib", "rate"),
    [
        ("auto", 1, 1.2, None, 300),
        ("auto", 1, 0.1, None, None),
        ("auto", 1, 1.2, 100.0, 300),
        ("auto", 1, 1.2, 70.0, None),  # 20 minutes are saved, for 0.40 USD
        ("always", 1, 0.1, None, 300),
        ("never", 1, 1.2, None, None),
        ("always", 50, 0.1, None, 100),
        ("always", 51, 0.1, None, None),
    ],
)
def test_a_rate_is_paid_for_where_it_is_wanted_or_worth_it(
    pay: Any, nodes: int, usd_per_hour: float, read_gib: float | None, rate: int | None
) -> None:
    """140 GiB cost 0.504 USD, however much of them is read, and save 40 minutes of a node."""
    assert rate_paid(pay, 140, nodes, usd_per_hour, read_gib=read_gib) == rate


def test_what_a_processor_decodes_is_measured_on_one_of_its_maker_and_scaled_by_clocks() -> None:
    """An EPYC of 3.7 GHz, and a Xeon whose clock nobody wrote down; infra/rates.yaml."""
    g5, g6, p4d = (catalog.find(name) for name in ("g5.2xlarge", "g6.2xlarge", "p4d.24xlarge"))

    assert decoded_per_vcpu(g5, is_small=False).value == pytest.approx(323 * 3.3 / 3.7)
    assert decoded_per_vcpu(g6, is_small=True).value == pytest.approx(790 * 3.4 / 3.7)
    assert decoded_per_vcpu(p4d, is_small=True).value == 464
    assert decoded_per_vcpu(replace(g5, processor="", clock_ghz=0.0), is_small=False).value == 275  # not known
    assert {decoded_per_vcpu(one, is_small=True).source for one in (g5, g6, p4d)} == {"estimated"}
