"""The table of data sets, and what a launcher must know about each.  Imports no torch; only loading a data set does.

To add a data set, write its module and add one line here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainer.errors import look_up

DEFAULT_MODEL = "resnet18"
SMALL_PX = 32  # default side of the images of data sets that are kept in memory


@dataclass(frozen=True)
class DataSet:
    """How to load a data set, and what it needs."""

    load: str  # its loader, as "module:function"
    needs_data: bool = False  # the user must provide its files; otherwise they are downloaded, generated or included
    is_folder: bool = False  # a folder of images with train/ and val/, large enough to be kept on a volume
    reads_data_dir: bool = True  # it reads --data-dir or downloads to it, so a container must have that folder
    model: str = DEFAULT_MODEL  # the default model to train on it


TABLE: Mapping[str, DataSet] = MappingProxyType(
    {
        "digits": DataSet("trainer.datasets.digits:load", reads_data_dir=False, model="cnn"),
        "cifar10": DataSet("trainer.datasets.cifar10:load"),
        "imagefolder": DataSet("trainer.datasets.imagefolder:load", needs_data=True, is_folder=True),
        "imagenet": DataSet("trainer.datasets.imagefolder:load_large", needs_data=True, is_folder=True),
        "synthetic": DataSet("trainer.datasets.synthetic:load", reads_data_dir=False),
    }
)
NAMES = tuple(TABLE)


def find(name: str) -> DataSet:
    """The data set of that name.  Raises SettingsError suggesting the nearest known name."""
    return look_up("dataset", name, TABLE)


def default_model(name: object) -> str:
    """The default model for the data set of that name."""
    return TABLE[name].model if isinstance(name, str) and name in TABLE else DEFAULT_MODEL


def needs_data(name: str) -> bool:
    """Whether the user must provide the files of this data set."""
    return find(name).needs_data


def downloads(name: str) -> bool:
    """Whether a training downloads this data set if its files are missing."""
    dataset = find(name)
    return dataset.reads_data_dir and not dataset.needs_data


def is_folder(name: str) -> bool:
    """Whether this data set is a folder of images that is kept on a volume."""
    return find(name).is_folder


def reads_data_dir(name: str) -> bool:
    """Whether this data set reads --data-dir."""
    return find(name).reads_data_dir
