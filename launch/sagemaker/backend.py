"""The SageMaker backend's entry in the table of backends: its options, and how it provides a number of GPUs."""

from functools import partial

from launch.core import catalog
from launch.core.backend import Backend, Demand, Place, Values, single_type
from launch.core.catalog import Instance
from launch.core.options import first_of, whole
from launch.sagemaker.options import SageMakerOptions
from trainer.errors import SettingsError

_machine = partial(single_type, default=SageMakerOptions.model_fields["instance_type"].default)


def _place(demand: Demand) -> Place:
    """Whole instances of the type or a smaller one of its family, as SageMaker starts a process on every GPU."""
    options = demand.options
    if demand.strategy == "dp":
        raise SettingsError("strategy dp is one process, and SageMaker starts one per GPU; leave the point out.")
    instance = _machine(options)
    gpus_each = max(1, instance.gpus)
    if demand.gpus is None:
        return Place(options, whole(options, "nodes", 1) * gpus_each)
    if "nodes" in options:
        raise SettingsError("gpus and nodes both set the number of instances; give one of them.")
    if demand.gpus % gpus_each:
        instance = _sibling(instance, demand.gpus)
        gpus_each = instance.gpus
    nodes = demand.gpus // gpus_each
    return Place({**options, "instance_type": instance.sagemaker_name, "nodes": nodes}, demand.gpus)


def _sibling(like: Instance, gpus: int) -> Instance:
    """The cheapest type of the same family among those with the most GPUs that divide `gpus`."""
    family = like.name.split(".")[0]
    fitting = [
        one for one in catalog.load().values()
        if one.name.split(".")[0] == family and one.sagemaker_name and one.gpus and gpus % one.gpus == 0
    ]  # fmt: skip
    if not fitting:
        raise SettingsError(f"gpus: {gpus} cannot be made of SageMaker's instance types of the family {family}.")
    return min(fitting, key=lambda one: (-one.gpus, one.sagemaker_usd_per_hour or 0.0))


def _adopt(values: Values) -> Values:
    """A job file's settings: of several regions, in which EC2 looks for capacity, the first."""
    return {name: first_of(value) if name == "region" else value for name, value in values.items()}


BACKEND = Backend(
    name="sagemaker",
    adopt=_adopt,
    about="SageMaker training jobs",
    options=SageMakerOptions,
    place=_place,
    machine=_machine,
    defaults={"dataset": "cifar10", "model": "resnet18", "batch_size": 256, "progress": False},
    is_billed=True,
    outlives_launcher=True,
    examination="launch.sagemaker.examination",
    active_jobs="launch.sagemaker.leaks:jobs",
    returns_at_once=lambda where: where.queue is not None,
    batch="launch.sagemaker.batch:submit",
    rehearsal="launch.rehearse.sagemaker:opened",
)
