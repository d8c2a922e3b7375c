"""Models, data sets and machines: infra/models.yaml, datasets.yaml, rates.yaml and published.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

from trainer.errors import SettingsError
from trainer.settings.registry import did_you_mean

# Up to here ResNet-18 has a different first layer, and VGG11 is a different network.
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
    """A model's cost at some size.  note: how it was scaled, where that size is not in the table."""

    cost: Cost
    note: str = ""


@dataclass(frozen=True)
class DataSet:
    """See the head of infra/datasets.yaml.  is_small: its JPEGs are limited to about the size of a crop."""

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
        """With those to evaluate on."""
        return (self.train + self.evaluation) * self.image_bytes / 2**30


def cost(model: str, px: int) -> Scaled:
    """The cost of `model` at `px` pixels a side.  Raises SettingsError for a model that is not in the table."""
    counted = table("models").get(model)
    if counted is None:
        near = did_you_mean(model, table("models"))
        raise SettingsError(
            f"no forecast for {model}: infra/models.yaml does not have it{near or '.'} "
            f"Add what `python -m trainer.count {model}` prints."
        )
    if px in counted:
        return Scaled(Cost(**counted[px]))
    # On the same side of the limit if there is one, for networks differ across it.
    nearest = min(counted, key=lambda size: ((size <= SMALL_PX) != (px <= SMALL_PX), abs(size - px)))
    area = (px / nearest) ** 2
    known = Cost(**counted[nearest])
    by_area = ("gflop", "matmul", "other", "kept", "largest")
    scaled = replace(known, **{name: getattr(known, name) * area for name in by_area})
    return Scaled(scaled, f"{model} was counted at {nearest} px and scaled to {px} px by the area")


def data_set(name: str) -> DataSet | None:
    """The data set of that name; None for one that is not in the table, such as the user's own."""
    known = table("datasets").get(name)
    return DataSet(**known) if known else None


@cache
def table(name: str) -> Mapping[str, Any]:
    """infra/NAME.yaml."""
    from importlib.resources import files  # slow to import, and --help does not need it

    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = yaml.load(files("infra").joinpath(f"{name}.yaml").read_bytes(), loader)  # nosec B506  # both are safe
    return content if isinstance(content, dict) else {"cases": content}
