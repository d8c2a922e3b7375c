"""The table of data sets and what a launcher must know of each.  Torch-free: loading one imports it.

To add a data set, write its module and add one line here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainer.errors import look_up

USUAL_MODEL = "resnet18"
SMALL_PX = 32  # a side, of the images of the sets that are kept in memory, unless asked otherwise


@dataclass(frozen=True)
class DataSet:
    """load: its function, as "module:function".

    needs_data: its files must be provided; without this it downloads them, generates them or ships them.
    is_folder: it is a folder of images with train/ and val/, large enough to be kept on a volume.
    reads_data_dir: it reads --data-dir (or downloads to it), so a container must have that folder.
    model: the one that is trained on it where none is given.
    """

    load: str
    needs_data: bool = False
    is_folder: bool = False
    reads_data_dir: bool = True
    model: str = USUAL_MODEL


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
    """The data set of that name.  Raises SettingsError with the nearest one."""
    return look_up("dataset", name, TABLE)


def usual_model(name: object) -> str:
    """The model that is trained on the data set of that name where none is given."""
    return TABLE[name].model if isinstance(name, str) and name in TABLE else USUAL_MODEL


def needs_data(name: str) -> bool:
    """Whether the files of this data set must be provided."""
    return find(name).needs_data


def downloads(name: str) -> bool:
    """Whether a training fetches this data set from the internet where its files are not provided."""
    dataset = find(name)
    return dataset.reads_data_dir and not dataset.needs_data


def is_folder(name: str) -> bool:
    """Whether this data set is a folder of images that is kept on a volume."""
    return find(name).is_folder


def reads_data_dir(name: str) -> bool:
    """Whether this data set reads --data-dir."""
    return find(name).reads_data_dir
