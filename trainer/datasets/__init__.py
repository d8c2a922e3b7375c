"""The table of data sets.  Torch-free: loading one imports it."""

TABLE = {
    "digits": "trainer.datasets.digits:load",
    "cifar10": "trainer.datasets.cifar10:load",
    "imagefolder": "trainer.datasets.imagefolder:load",
    "imagenet": "trainer.datasets.imagenet:load",
    "synthetic": "trainer.datasets.synthetic:load",
}
NAMES = tuple(TABLE)
