"""The instance types that trainings run on: infra/instances.yaml, which has the units and sources.

Pure: what AWS offers today, and in which zone, is looked up elsewhere.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from trainer.errors import check_name

SAGEMAKER_PREFIX = "ml."


class Rate(NamedTuple):
    """A rate that varies over time."""

    base: float  # sustained
    peak: float  # reached for a while


@dataclass(frozen=True)
class EndOfLife:
    """When AWS retires a type, and the type with as many GPUs that replaces it."""

    leave_by: date
    replacement: str


@dataclass(frozen=True)
class Instance:
    """An EC2 instance type."""

    name: str
    gpus: int
    vcpus: int
    memory_gib: float
    nvme_gb: int
    efa: int
    network_gbps: Rate
    ebs_mb_per_s: Rate
    usd_per_hour: float
    amx: bool = False
    first_efa_card: int = 0  # 1 if the network card 0 has no EFA
    processor: str = ""  # its maker; "" if not known
    clock_ghz: float = 0.0  # sustained; 0 if not known
    gpu_model: str | None = None  # None without GPUs
    gpu_memory_gib: float = 0.0
    architecture: str | None = None  # None without GPUs
    half_tflops: float = 0.0
    sagemaker_usd_per_hour: float | None = None
    price_source: str = "list"
    sagemaker_price_source: str = "list"
    end_of_life: EndOfLife | None = None
    in_cluster: bool = True  # whether placement groups with the strategy cluster take it

    @property
    def is_known(self) -> bool:
        """Whether more than its name is known; see unknown()."""
        return self.vcpus > 0

    @property
    def is_gpu(self) -> bool:
        return self.gpus > 0

    @property
    def is_on_demand(self) -> bool:
        """Whether EC2 sells it by the hour; others need a Capacity Block."""
        return self.price_source != "capacity_block"

    @property
    def sagemaker_name(self) -> str | None:
        """SageMaker's name for the type; None if SageMaker has no training jobs on it."""
        return None if self.sagemaker_usd_per_hour is None else SAGEMAKER_PREFIX + self.name


def find(name: str) -> Instance:
    """The type with this EC2 or SageMaker name.  Raises SettingsError with the nearest name."""
    catalog = load()
    on_sagemaker = name.startswith(SAGEMAKER_PREFIX)
    known = [i.sagemaker_name for i in catalog.values() if i.sagemaker_name] if on_sagemaker else catalog
    check_name("instance type", name, known)
    return catalog[name.removeprefix(SAGEMAKER_PREFIX)]


def unknown(name: str) -> Instance | None:
    """An instance type that the catalog lacks; None if it has it, or if `name` does not look like one.

    The family's letter says whether it has GPUs, of which one is assumed; nothing else is known.
    """
    if name in load() or not re.fullmatch(r"[a-z]+\d[a-z0-9-]*\.(\d*x?large|metal(-\d+xl)?)", name):
        return None
    has_gpus = name.startswith(("g", "p"))
    nothing = Rate(0.0, 0.0)
    return Instance(
        name, int(has_gpus), 0, 0.0, 0, 0, nothing, nothing, 0.0, gpu_model="unknown GPU" if has_gpus else None
    )


def warning(instance: Instance) -> str | None:
    """A warning for a type that AWS is retiring, or None."""
    if instance.end_of_life is None:
        return None
    leave_by, name = instance.end_of_life.leave_by, instance.end_of_life.replacement
    return (
        f"{instance.name} is being retired: AWS asks users to move off it by {leave_by}, so it may be unavailable. "
        f"Take {name} ({SAGEMAKER_PREFIX}{name} on SageMaker), which has as many GPUs."
    )


@cache
def load() -> Mapping[str, Instance]:
    """Every type in the catalog, by its EC2 name."""
    # Both are slow to import, and --help needs neither.
    from importlib.resources import files

    import yaml

    # The parser in C, where there is one, takes a sixth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = yaml.load(files("infra").joinpath("instances.yaml").read_bytes(), loader)  # noqa: S506  # both are safe
    families, types = content["families"], content["types"]
    return MappingProxyType({name: _instance(name, families[name.split(".")[0]] | own) for name, own in types.items()})


def _instance(name: str, fields: Mapping[str, Any]) -> Instance:
    """An entry of the YAML file with its family's fields."""
    rates = {field: Rate(*fields[field]) for field in ("network_gbps", "ebs_mb_per_s")}
    end = EndOfLife(**fields["end_of_life"]) if "end_of_life" in fields else None
    return Instance(name, **{**fields, **rates, "end_of_life": end})
