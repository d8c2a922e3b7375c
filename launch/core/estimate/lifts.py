"""What would lift the limit of a training, by the forecast of the same training with it.  Pure."""

from dataclasses import replace
from math import ceil

from launch.core.catalog import Instance
from launch.core.estimate.ceilings import Lift
from launch.core.estimate.forecast import Forecast, forecast
from launch.core.estimate.training import PREPARED_BYTES, Training
from launch.core.volumes import data_volume, promise

# Less is within the range of the forecast.
WORTH_IT = 1.1


def lifted(training: Training, instance: Instance) -> Forecast:
    """The forecast, with what would lift its limit.  Raises SettingsError as forecast() does."""
    guess = forecast(training, instance)
    for how, other in _ways(training, instance, guess):
        better = forecast(other, instance)
        if better.images_per_s > WORTH_IT * guess.images_per_s:
            return replace(guess, lift=Lift(how, better.images_per_s, better.epoch_s))
    return guess


def _ways(training: Training, instance: Instance, guess: Forecast) -> list[tuple[str, Training]]:
    """What could be done, in words, and the training with it."""
    data, config, volume = training.data, training.config, training.volume
    ways = list[tuple[str, Training]]()
    if guess.limit in ("EBS", "JPEG decoding") and not data.is_small and data.image_bytes > PREPARED_BYTES:
        small = replace(data, image_bytes=PREPARED_BYTES, is_small=True)
        prepared = replace(training, data=small, kind=replace(training.kind, is_small=True))
        ways.append(("prepare the data (launch.data publish)", prepared))
    if guess.limit == "EBS" and volume is not None and volume.is_shared:
        own = replace(volume, promise=promise(data_volume(instance, ceil(volume.data_gib))))
        ways.append(("a volume for each node (--data-volume per-node)", replace(training, volume=own)))
    if guess.step.exposed_s and config.comm_hook == "none" and training.work().strategy == "ddp":
        halved = config.model_copy(update={"comm_hook": "bf16"})
        ways.append(("send gradients in 16 bits (--comm-hook bf16)", replace(training, config=halved)))
    return ways
