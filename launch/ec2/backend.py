"""The EC2 backend's entry in the table of backends: its options, and how it provides a number of GPUs.  Pure."""

from launch.core import catalog
from launch.core.backend import Backend, Demand, Place, Values
from launch.core.catalog import Instance
from launch.core.options import whole
from launch.ec2.options import INSTANCE_TYPE, Ec2Options
from trainer.errors import SettingsError

# The default training; flags and --config override it.
DEFAULTS = {"dataset": "imagenet", "model": "resnet18", "batch_size": 256, "progress": False, "health_check": True}


def machine(options: Values) -> Instance:
    """The instance type in `options`, or the default one.  Raises SettingsError for several."""
    given = options.get("instance_type", INSTANCE_TYPE)
    names = given.split(",") if isinstance(given, str) else list(given)
    if len(names) != 1:
        raise SettingsError("instance_type: the runs of a sweep are compared, so each needs one type; give only one.")
    return catalog.find(names[0].strip())


def _place(demand: Demand) -> Place:
    """The smallest number of nodes of the type with that many GPUs."""
    options, gpus = demand.options, demand.gpus
    instance = machine(options)
    each = max(1, instance.gpus)
    if demand.strategy == "dp":
        if gpus not in (None, each):
            raise SettingsError(f"strategy dp uses all GPUs of one machine; {instance.name} has {each}, not {gpus}.")
        return Place({**options, "nodes": 1, "nproc_per_node": 1}, each)
    if gpus is None:
        return Place(options, whole(options, "nodes", 1) * whole(options, "nproc_per_node", each))
    if gpus <= each and "nodes" not in options:
        return Place({**options, "nodes": 1, "nproc_per_node": gpus}, gpus)
    if gpus % each or whole(options, "nodes", gpus // each) != gpus // each:
        raise SettingsError(
            f"gpus: {gpus} is not a whole number of {instance.name}, which has {each}; change one of them."
        )
    return Place({**options, "nodes": gpus // each}, gpus)


BACKEND = Backend(
    name="ec2",
    about="EC2 instances, created for the job and removed after it",
    options=Ec2Options,
    place=_place,
    machine=machine,
    defaults=DEFAULTS,
    is_billed=True,
    examination="launch.ec2.examination",
    holding="launch.ec2.leaks:active_jobs",
    rehearsal="launch.rehearse.ec2:opened",
)
