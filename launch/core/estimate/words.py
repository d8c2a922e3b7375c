"""Forecasts in words.  Pure."""

from launch.core.estimate.forecast import Forecast

# Share of a job.
WORTH_SAYING = 0.1


def speed(guess: Forecast) -> str:
    """663 s per epoch (500 to 900), 1,932 images/s, limited by EBS (published rate); and by new volumes at first."""
    low, high = (seconds(bound) for bound in guess.epoch_range_s)
    more = f"; {filling}" if (filling := at_first(guess)) else ""
    return (
        f"{seconds(guess.epoch_s)} s per epoch ({low} to {high}), {guess.images_per_s:,.0f} images/s, "
        f"limited by {guess.limit} ({guess.source} rate){more}"
    )


def at_first(guess: Forecast) -> str:
    """The time that new volumes add to the job, where that is a good part of it; else nothing."""
    filling = guess.filling
    if filling is None or filling.lost_s < WORTH_SAYING * guess.hours * 3600:
        return ""
    source = filling.volume.bytes_per_s.source
    return (
        f"at first limited by volume initialization ({source} rate), {filling.images_per_s:,.0f} images/s, which takes "
        f"{hours(filling.lost_s / 3600)} more"
    )


def hours(amount: float) -> str:
    """0.25 -> '15 min', 3 -> '3.0 h'."""
    return f"{amount * 60:.0f} min" if amount < 1 else f"{amount:,.1f} h"


def seconds(amount: float) -> str:
    """Three digits, at least: 0.123, 4.56, 1,234."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"
