"""Rates of an instance type at a training, from infra's rates, models, datasets and instances.yaml.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from math import inf
from typing import Any, Literal, NamedTuple

from launch.core.catalog import Instance
from launch.core.estimate.formulas import Figure, Side, Speeds, exactly, figure
from trainer.errors import SettingsError, did_you_mean

# Up to this size ResNet-18 has a different first layer, and VGG11 is a different network.
SMALL_PX = 64


@dataclass(frozen=True)
class Cost:
    """The cost of training on one image; see the head of infra/models.yaml."""

    classes: int
    parameters: int
    gflop: float
    matmul: float
    other: float
    operators: int
    kept: float
    largest: float


class Scaled(NamedTuple):
    """A model's cost at a size.  note: how it was scaled, if that size is not in the table."""

    cost: Cost
    note: str = ""


@dataclass(frozen=True)
class DataSet:
    """A data set; see the head of infra/datasets.yaml.  is_small: its JPEGs are limited to about the size of a crop."""

    train: int
    evaluation: int
    image_bytes: float
    px: int
    format: Literal["jpeg", "resident"]
    classes: int = 1000
    is_small: bool = False

    @property
    def gib(self) -> float:
        """Size of the training images on disk."""
        return self.train * self.image_bytes / 2**30

    @property
    def gib_in_all(self) -> float:
        """Size of all images on disk."""
        return (self.train + self.evaluation) * self.image_bytes / 2**30


def cost(model: str, px: int) -> Scaled:
    """The cost of `model` at `px` pixels a side.  Raises SettingsError for a model that is not in the table."""
    counted = table("models").get(model)
    if counted is None:
        near = did_you_mean(model, table("models"))
        raise SettingsError(
            f"no forecast for {model}: infra/models.yaml does not have it{near or '.'} "
            f"Add what `python -m trainer.models.count {model}` prints."
        )
    if px in counted:
        return Scaled(Cost(**counted[px]))
    # Preferably on the same side of the limit, as networks differ across it.
    nearest = min(counted, key=lambda size: ((size <= SMALL_PX) != (px <= SMALL_PX), abs(size - px)))
    area = (px / nearest) ** 2
    known = Cost(**counted[nearest])
    by_area = ("gflop", "matmul", "other", "kept", "largest")
    scaled = replace(known, **{name: getattr(known, name) * area for name in by_area})
    return Scaled(scaled, f"{model} was counted at {nearest} px and scaled to {px} px by the area")


def data_set(name: str) -> DataSet | None:
    """The data set of that name; None if it is not in the table, as a user's own."""
    known = table("datasets").get(name)
    return DataSet(**known) if known else None


@cache
def table(name: str) -> Mapping[str, Any]:
    """infra/NAME.yaml."""
    from importlib.resources import files  # slow to import, and --help does not need it

    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = yaml.load(files("infra").joinpath(f"{name}.yaml").read_bytes(), loader)  # noqa: S506  # both are safe
    return content if isinstance(content, dict) else {"cases": content}


# The slower of the measured processors, if the maker is not known.
USUAL = "Intel"
# Bytes that an update reads and writes for each weight: weight, gradient and the optimizer's state, 4 bytes each.
UPDATE_BYTES = {"sgd": 20, "adamw": 28}
OTHER_UPDATE_BYTES = 28
FOREVER = exactly(inf)
NEVER = exactly(0.0)


def decoded_per_vcpu(instance: Instance, *, is_small: bool) -> Figure:
    """Images/s of a vCPU: of the measured processor of its maker, times the ratio of their clocks where both are known.

    is_small: prepared, with a shorter side of 256 px.
    """
    makers = table("rates")["decoding"]
    row = makers.get(instance.processor, makers[USUAL])
    measured, clock = figure(row["small" if is_small else "whole"]), row["measured_on"]["clock_ghz"]
    return measured.times(instance.clock_ghz / clock) if clock and instance.clock_ghz else measured


@dataclass(frozen=True)
class Rates:
    """Speeds with their ranges; see Speeds for the fields."""

    image_s: Figure
    pass_s: Figure = NEVER
    update_s: Figure = NEVER
    decoded_per_s: Figure = FOREVER
    read_per_s: Figure = FOREVER
    inner_per_s: Figure = FOREVER
    inner_hop_s: Figure = NEVER
    outer_per_s: Figure = FOREVER
    outer_hop_s: Figure = NEVER
    lasting_per_s: Figure = FOREVER
    doubling: Figure = NEVER

    def at(self, side: Side) -> Speeds:
        return Speeds(**{part.name: getattr(self, part.name).at(side) for part in fields(self)})


@dataclass(frozen=True)
class Kind:
    """What the speed of a training depends on."""

    model: str
    half: bool
    decodes: bool
    reads_ebs: bool
    optimizer: str = "sgd"
    threads: int = 1  # of a CPU rank
    emulated: bool = False  # in 16 bits that the hardware cannot compute in, and slower than 32
    is_small: bool = False  # prepared images


def rates_of(instance: Instance, cost: Cost, kind: Kind) -> Rates:
    """The rates of one node of that type.  Raises SettingsError if the speed of its GPUs is not known."""
    if instance.is_gpu and instance.name.split(".")[0] not in table("rates")["families"]:
        raise SettingsError(f"no forecast for {instance.name}: infra/rates.yaml does not have its GPUs.")
    compute = _gpu(instance, cost, kind) if instance.is_gpu else _cpu(instance, cost, kind)
    known = table("rates")
    per_vcpu = decoded_per_vcpu(instance, is_small=kind.is_small)
    decoded = per_vcpu.times(instance.vcpus) if kind.decodes else FOREVER
    ebs = instance.ebs_mb_per_s
    # The peak is guaranteed for half an hour a day; small files are read more slowly.
    read = Figure(ebs.base * 1e6, ebs.peak * 1e6, ebs.base * 0.9e6, "published") if kind.reads_ebs else FOREVER
    doubling = figure(known["doubling"])
    return replace(compute, decoded_per_s=decoded, read_per_s=read, doubling=doubling, **_network(instance))


def spot_share() -> Figure:
    """The spot price as a share of the on-demand price, for plans without a look-up."""
    return figure(table("rates")["spot_share"])


def _gpu(instance: Instance, cost: Cost, kind: Kind) -> Rates:
    """A roofline: matrix products at the GPU's peak or as fast as memory allows, all else at memory's speed."""
    family = table("rates")["families"][instance.name.split(".")[0]]
    is_quick = kind.half and not kind.emulated
    tflops = instance.half_tflops if is_quick else family["fp32_tflops"]
    ideal = _roofline_s(cost, tflops, family["memory_gb_per_s"], 2 if is_quick else 4)
    attained = figure(family["attained" if is_quick else "attained_fp32"])
    update_bytes = cost.parameters * UPDATE_BYTES.get(kind.optimizer, OTHER_UPDATE_BYTES)
    operator = figure(table("rates")["operator_s"])
    return Rates(
        image_s=attained.inverse(ideal).joined(_model_factor(kind.model)).joined(_emulation("gpu", kind)),
        pass_s=operator.times(cost.operators),
        update_s=attained.inverse(update_bytes / (family["memory_gb_per_s"] * 1e9)),
        inner_per_s=figure(family["inner_gb_per_s"]).times(1e9),
    )


def _emulation(device: str, kind: Kind) -> Figure:
    """Time of emulated 16-bit precision over that of 32 bits."""
    return figure(table("rates")["emulated_half"][device]) if kind.emulated else exactly(1.0)


def _roofline_s(cost: Cost, tflops: float, memory_gb_per_s: float, number_bytes: int) -> float:
    """Seconds of one image under ideal conditions."""
    bytes_per_s = memory_gb_per_s * 1e9
    products = max(cost.gflop / tflops / 1e3, cost.matmul * 1e6 * number_bytes / bytes_per_s)
    return products + cost.other * 1e6 * number_bytes / bytes_per_s


def _model_factor(model: str) -> Figure:
    """The model's time over its roofline, relative to a ResNet's, on the GPU of a published benchmark."""
    known = table("rates")
    reference = known["reference"]
    speed = known["reference"]["images_per_s"].get(model)
    if speed is None:
        return figure(known["other_models"])
    at_224 = cost(model, 224).cost
    ideal = _roofline_s(at_224, reference["half_tflops"], reference["memory_gb_per_s"], 2)
    return exactly(1 / speed / (ideal / reference["attained"]))


def _cpu(instance: Instance, cost: Cost, kind: Kind) -> Rates:
    known = table("rates")["cpu"]
    speed = figure(known["amx_bf16_gflops" if kind.half and not kind.emulated else "fp32_gflops"])
    return Rates(
        image_s=speed.times(kind.threads).inverse(cost.gflop).joined(_emulation("cpu", kind)),
        pass_s=figure(known["operator_s"]).times(cost.operators),
        inner_per_s=figure(known["inner_gb_per_s"]).times(1e9),
    )


def _network(instance: Instance) -> dict[str, Figure]:
    """Rates between machines: the peak for a while, the base sustained."""
    known, gbps = table("rates")["network"], instance.network_gbps
    card = "efa" if instance.efa else "tcp"
    share = figure(known[f"{card}_share"])
    return {
        "inner_hop_s": figure(known["inner_hop_s"]),
        "outer_per_s": share.times(gbps.peak * 1e9 / 8),
        "outer_hop_s": figure(known[f"{card}_hop_s"]),
        "lasting_per_s": share.times(gbps.base * 1e9 / 8),
    }
