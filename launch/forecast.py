"""How long a training should take, and what limits it: estimated from the catalog, before anything runs.  Pure.

Rough on purpose: a third of the GPU's peak, a fixed cost per JPEG, no communication.  It tells minutes from hours.
"""

from dataclasses import dataclass

from launch.catalog import Instance
from trainer.config import TrainConfig

TRAINING_IMAGES = {"imagenet": 1_281_167, "cifar10": 50_000, "digits": 1_437}
JPEG_SETS = {"imagenet": 110_000}  # bytes of a mean image
DECODED_PER_VCPU = 400  # images/s, simplejpeg to a 224 px crop: half of what a whole core does here

# Of training one image: forward and backward, counted with torch's FlopCounterMode.
GFLOP = {("resnet18", 32): 3.33, ("vgg11", 32): 0.913, ("resnet18", 224): 10.65}
SIZES = {"imagenet": 224, "imagefolder": 224, "cifar10": 32, "digits": 32, "synthetic": 32}
# Of the peak: ResNet-18 at 224 px reaches about 2,450 images/s on an A10G.
EFFICIENCY = 0.37

BOOT_HOURS = 0.1  # start, image, first look at the data


@dataclass(frozen=True)
class Forecast:
    """hours: of the whole job, with boot; limit: what the others wait for."""

    images_per_s: float
    seconds_per_epoch: float
    hours: float
    limit: str


def forecast(train: TrainConfig, instance: Instance, nodes: int, *, data_on_ebs: bool) -> Forecast | None:
    """What to expect of `train` on so many nodes, or None for what the tables above do not know."""
    size = train.image_size or SIZES.get(train.dataset, 0)
    images = train.synthetic_images if train.dataset == "synthetic" else TRAINING_IMAGES.get(train.dataset)
    gflop = GFLOP.get((train.model, size))
    if images is None or gflop is None or not instance.is_gpu:
        return None
    rates = {"the GPUs": instance.gpus * instance.half_tflops * EFFICIENCY * 1000 / gflop}
    if train.dataset in JPEG_SETS:
        rates["decoding JPEGs on the CPUs"] = instance.vcpus * DECODED_PER_VCPU
        if data_on_ebs:
            rates["EBS"] = instance.ebs_mb_per_s.base * 1e6 / JPEG_SETS[train.dataset]
    limit = min(rates, key=lambda name: rates[name])
    total = rates[limit] * nodes
    epoch_s = images / total
    return Forecast(total, epoch_s, BOOT_HOURS + train.epochs * epoch_s / 3600, limit)
