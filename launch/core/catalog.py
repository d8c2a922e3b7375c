"""The instance types a training runs on: infra/instances.yaml, which also says in which units and from where.

Pure: what AWS offers today, and in which zone, is looked up elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from trainer.settings.registry import check_name

SAGEMAKER_PREFIX = "ml."


class Rate(NamedTuple):
    """What an instance sustains, and what it reaches for a while."""

    base: float
    peak: float


@dataclass(frozen=True)
class EndOfLife:
    """When AWS asked everybody to have left a type, and the type with as many GPUs to take instead."""

    leave_by: date
    replacement: str


@dataclass(frozen=True)
class Instance:
    """An EC2 instance type.  Without GPUs, gpu_model and architecture are None."""

    name: str
    gpus: int
    vcpus: int
    memory_gib: float
    nvme_gb: int
    efa: int
    network_gbps: Rate
    ebs_mb_per_s: Rate
    usd_per_hour: float
    bf16: bool
    amx: bool = False
    gpu_model: str | None = None
    gpu_memory_gib: float = 0.0
    architecture: str | None = None
    half_tflops: float = 0.0
    sagemaker_usd_per_hour: float | None = None
    price_source: str = "list"
    sagemaker_price_source: str = "list"
    end_of_life: EndOfLife | None = None

    @property
    def is_gpu(self) -> bool:
        return self.gpus > 0

    @property
    def total_gpu_memory_gib(self) -> float:
        return self.gpus * self.gpu_memory_gib

    @property
    def is_on_demand(self) -> bool:
        """Whether EC2 sells it by the hour; if not, it takes a Capacity Block."""
        return self.price_source != "capacity_block"

    @property
    def sagemaker_name(self) -> str | None:
        """What SageMaker calls it, or None if it runs no training jobs on it."""
        return None if self.sagemaker_usd_per_hour is None else SAGEMAKER_PREFIX + self.name


def find(name: str) -> Instance:
    """The type that EC2 or SageMaker calls `name`.  Raises SettingsError with the nearest name there."""
    catalog = load()
    on_sagemaker = name.startswith(SAGEMAKER_PREFIX)
    known = [i.sagemaker_name for i in catalog.values() if i.sagemaker_name] if on_sagemaker else catalog
    check_name("instance type", name, known)
    return catalog[name.removeprefix(SAGEMAKER_PREFIX)]


def warning(instance: Instance) -> str | None:
    """A sentence for who chose a type that AWS is taking away, or None."""
    if instance.end_of_life is None:
        return None
    leave_by, name = instance.end_of_life.leave_by, instance.end_of_life.replacement
    return (
        f"{instance.name} is at its end: AWS asked everybody to leave it by {leave_by}, so there may be none. "
        f"Take {name} ({SAGEMAKER_PREFIX}{name} on SageMaker), which has as many GPUs."
    )


@cache
def load() -> Mapping[str, Instance]:
    """Every type in the catalog, by its EC2 name."""
    # Both take a while to import, and --help needs neither.
    from importlib.resources import files

    import yaml

    # The parser in C, where there is one, takes a sixth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = yaml.load(files("infra").joinpath("instances.yaml").read_bytes(), loader)  # nosec B506  # both are safe
    families, types = content["families"], content["types"]
    return MappingProxyType({name: _instance(name, families[name.split(".")[0]] | own) for name, own in types.items()})


def _instance(name: str, fields: Mapping[str, Any]) -> Instance:
    """An entry together with its family's fields, as YAML has them."""
    rates = {field: Rate(*fields[field]) for field in ("network_gbps", "ebs_mb_per_s")}
    end = EndOfLife(**fields["end_of_life"]) if "end_of_life" in fields else None
    return Instance(name, **{**fields, **rates, "end_of_life": end})
