"""How plans and tables say what is expected.  Pure."""

from launch.core.catalog import Instance
from launch.core.estimate.forecast import Forecast, forecast
from launch.core.estimate.training import training
from launch.core.price import usd
from trainer.config import TrainConfig
from trainer.errors import SettingsError


def expected(
    train: TrainConfig, instance: Instance, nodes: int, usd_per_hour: float, *, gpus: int | None = None, on_ebs: bool
) -> str:
    """A plan's sentence on price, time and limit, or why there is none.

    usd_per_hour: of all nodes; gpus: processes of a node, if not all its GPUs; on_ebs: whether images come from there.
    """
    try:
        guess = forecast(training(train, instance, nodes, gpus=gpus, on_ebs=on_ebs), instance)
    except SettingsError as error:
        return str(error)
    return f"{usd(guess.usd(usd_per_hour))} in {hours(guess.hours)}: {speed(guess)}"


def speed(guess: Forecast) -> str:
    """663 s per epoch (500 to 900), 1,932 images/s, limited by EBS (published rate)."""
    low, high = (seconds(bound) for bound in guess.epoch_range_s)
    return (
        f"{seconds(guess.epoch_s)} s per epoch ({low} to {high}), {guess.images_per_s:,.0f} images/s, "
        f"limited by {guess.limit} ({guess.source} rate)"
    )


def hours(amount: float) -> str:
    """0.25 -> '15 min', 3 -> '3.0 h'."""
    return f"{amount * 60:.0f} min" if amount < 1 else f"{amount:,.1f} h"


def seconds(amount: float) -> str:
    """Three digits, at least: 0.123, 4.56, 1,234."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"
