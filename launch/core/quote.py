"""What a job costs and how long it takes on one kind of machine: as data, and in words.  Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from launch.core.catalog import Instance
from launch.core.estimate.forecast import Forecast, hours, lifted, speed
from launch.core.estimate.training import SMALL_PX, Images, training
from launch.core.estimate.volume import NewVolume
from launch.core.manifest import Content
from launch.core.price import usd
from trainer.config import TrainConfig
from trainer.errors import SettingsError

# allocation: not billed in USD, as on a cluster.
Market = Literal["on demand", "spot", "reserved", "allocation"]


@dataclass(frozen=True)
class Quote:
    """The price of one candidate.  None: not known."""

    instance: str
    nodes: int = 1
    market: Market = "on demand"
    usd_per_hour: float | None = None  # what all nodes with their disks cost now on `market`
    on_demand_usd_per_hour: float | None = None  # what they cost without spot
    most_usd: float | None = None  # at the time limit
    most_s: float | None = None  # the time limit
    forecast: Forecast | None = None  # the source of expected_s and expected_usd
    why_unknown: str = ""  # why there is no forecast
    once_usd: float = 0.0  # what the start costs beside that
    estimate_s: float | None = None  # expected time without a forecast: the user's estimate, or an earlier job's time
    estimate_from: str = ""  # where estimate_s comes from
    estimate_has_wait: bool = False  # whether estimate_s includes an unpaid wait for instances
    notes: tuple[str, ...] = ()  # sentences under the price

    @property
    def expected_s(self) -> float | None:
        return self.forecast.hours * 3600 if self.forecast else self.estimate_s

    @property
    def expected_usd(self) -> float | None:
        """The expected USD; if the spot price is unknown, at the on-demand price, which is an upper bound."""
        hourly = self.on_demand_usd_per_hour if self.usd_per_hour is None else self.usd_per_hour
        if hourly is None or self.expected_s is None:
            return None
        itself = self.forecast.usd(hourly) if self.forecast else self.expected_s / 3600 * hourly
        return itself + self.once_usd

    @property
    def expected_is_bound(self) -> bool:
        """Whether expected_usd is an upper bound: the spot price is unknown, or the time includes an unpaid wait."""
        return self.expected_usd is not None and (self.usd_per_hour is None or self.estimate_has_wait)

    def as_json(self) -> dict[str, Any]:
        return {
            "instance": self.instance,
            "nodes": self.nodes,
            "market": self.market,
            "usd_per_hour": self.usd_per_hour,
            "on_demand_usd_per_hour": self.on_demand_usd_per_hour,
            "once_usd": self.once_usd,
            "expected_usd": self.expected_usd,
            "expected_is_bound": self.expected_is_bound,
            "expected_s": self.expected_s,
            "most_usd": self.most_usd,
            "most_s": self.most_s,
            **_forecast_as_json(self.forecast),
            "expected_from": self.estimate_from,
            "why_unknown": self.why_unknown,
            "notes": list(self.notes),
        }


def _forecast_as_json(guess: Forecast | None) -> dict[str, Any]:
    if guess is None:
        names = ("epoch_s", "epoch_range_s", "images_per_s", "limited_by", "filling_images_per_s", "lift", "rate")
        return {**dict.fromkeys(names), "ceilings": {}}
    return {
        "epoch_s": guess.epoch_s,
        "epoch_range_s": list(guess.epoch_range_s),
        "images_per_s": guess.images_per_s,
        "limited_by": guess.limit,
        "ceilings": {one.name: one.images_per_s for one in guess.ceilings if one.lasts},
        "filling_images_per_s": guess.volume_init.images_per_s if guess.volume_init else None,
        "lift": asdict(guess.lift) if guess.lift else None,
        "rate": guess.source,
    }


def images_in(content: Content | None) -> Images | None:
    """The images of a prepared data set, for expect(); None where they are not counted."""
    if content is None or not content.train:
        return None
    return Images(content.train, content.image_bytes, content.val, is_small=0 < content.px <= SMALL_PX)


def read_gib(
    train: TrainConfig, instance: Instance, nodes: int, *, gpus: int | None = None, content: Content | None = None
) -> float | None:
    """GiB that a node reads to train; None if the data set's size is not known."""
    try:
        return training(train, instance, nodes, gpus=gpus, images=images_in(content)).read_gib
    except SettingsError:
        return None


def expect(
    train: TrainConfig,
    instance: Instance,
    nodes: int,
    *,
    gpus: int | None = None,
    on_ebs: bool,
    images: Images | None = None,
    volume: NewVolume | None = None,
) -> tuple[Forecast | None, str]:
    """The forecast of a training, or None and the reason.

    gpus: processes of a node, if not all its GPUs; on_ebs: whether images are read from an EBS volume; images: of a
    data set whose size is not in the tables; volume: what each node gets of its own, made from a snapshot.
    """
    if not instance.network_gbps.peak:
        return None, f"not known: {instance.name} is not in the catalog"
    try:
        job = training(train, instance, nodes, gpus=gpus, on_ebs=on_ebs, images=images, volume=volume)
        return lifted(job, instance), ""
    except SettingsError as error:
        return None, str(error)


def ended_early(quotes: Sequence[Quote]) -> list[str]:
    """A sentence for each candidate that its time limit would end too early."""
    return [
        f"{quote.instance} is expected to take {hours(quote.expected_s / 3600)}, and the time limit ends the job after "
        f"{hours(quote.most_s / 3600)}; raise --max-hours."
        for quote in quotes
        if quote.expected_s is not None and quote.most_s is not None and quote.expected_s > quote.most_s
    ]


def misfits(quotes: Sequence[Quote], *, anyway: bool) -> list[SettingsError]:
    """The candidates whose GPUs surely have too little memory.  anyway: the user knows better."""
    forecasts = [] if anyway else [quote.forecast for quote in quotes]
    return [
        SettingsError(f"{guess.misfit}  --anyway starts it nevertheless.")
        for guess in forecasts
        if guess is not None and not guess.fits
    ]


def price_of_all(quotes: Sequence[Quote]) -> str:
    """The expected price of the first candidate, and the highest of all, in words."""
    expected, most = quotes[0].expected_usd, [quote.most_usd for quote in quotes]
    words = [] if expected is None else [f"about {usd(expected)}"]
    words += [f"at most {usd(max(filter(None, most)))}"] if None not in most else []
    return ", ".join(words) or "a price that is not known"


def price_lines(quotes: Sequence[Quote], not_counted: str = "") -> list[tuple[str, str]]:
    """A label and a text per line, for a reader."""
    lines = list[tuple[str, str]]()
    for quote in quotes:
        lines += _lines(quote)
    return [*lines, ("not counted", not_counted)] if not_counted else lines


def _lines(quote: Quote) -> list[tuple[str, str]]:
    if quote.market == "allocation":
        return [(quote.instance, "no price: from your allocation"), ("  expected", _expected(quote))]
    lines = [*_rates(quote), ("  expected", _expected(quote)), *_ceilings(quote)]
    if quote.most_usd is not None and quote.most_s is not None:
        limit = hours(quote.most_s / 3600).replace(".0 h", " h")
        lines.append(("  at most", f"{usd(quote.most_usd)} in {limit}; then the time limit ends it"))
    misfit = [quote.forecast.misfit] if quote.forecast and quote.forecast.misfit else []
    return [*lines, *(("", note) for note in (*misfit, *quote.notes))]


def _ceilings(quote: Quote) -> list[tuple[str, str]]:
    """What each bottleneck allows, if images are decoded, as most trainings wait there; and what would help."""
    guess = quote.forecast
    if guess is None or all(one.name != "JPEG decoding" for one in guess.ceilings):
        return []
    lines = [("  ceilings", ", ".join(map(str, guess.ceilings)) + " images/s")]
    if lift := guess.lift:
        hourly = quote.on_demand_usd_per_hour if quote.usd_per_hour is None else quote.usd_per_hour
        saved_s = guess.epoch_s - lift.epoch_s
        price = "" if hourly is None else f" and {usd(saved_s / 3600 * hourly)}"
        gain = f"{guess.images_per_s:,.0f} -> {lift.images_per_s:,.0f} images/s"
        lines.append(("  to lift it", f"{lift.how}: {gain}, saves {hours(saved_s / 3600)}{price} an epoch"))
    return lines


def _rates(quote: Quote) -> list[tuple[str, str]]:
    """The price per hour on demand, and that of spot capacity."""
    machines = "disk included" if quote.nodes == 1 else f"for all {quote.nodes} nodes, disks included"
    label, on_demand = quote.instance or "price", f"on demand, {machines}"
    if quote.market != "spot":
        return [(label, _hourly(quote.usd_per_hour, on_demand))]
    spot = f"{_hourly(quote.usd_per_hour, 'now')}; at most the price on demand"
    return [(label, _hourly(quote.on_demand_usd_per_hour, on_demand)), ("  spot", spot)]


def _hourly(amount: float | None, which: str) -> str:
    return "price not known" if amount is None else f"{usd(amount)} per hour {which}"


def _expected(quote: Quote) -> str:
    if quote.expected_s is None:
        return quote.why_unknown or "not known"
    bound = "at most " if quote.expected_is_bound else ""
    price = "" if quote.expected_usd is None else f"{bound}{usd(quote.expected_usd)} in "
    how = speed(quote.forecast) if quote.forecast else quote.estimate_from or "by --expected-hours"
    return f"{price}{hours(quote.expected_s / 3600)}: {how}"
