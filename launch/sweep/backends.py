"""The backends as a sweep sees them: what they take, and how many GPUs mean which machines.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pydantic import BaseModel

from launch.core import catalog
from launch.core.catalog import Instance
from trainer.errors import SettingsError

# Their options' models, by name; imported on use, as a backend may need more than --help should.
BACKENDS = {
    "local": "launch.local.options:LocalOptions",
    "slurm": "launch.slurm.options:SlurmOptions",
    "ec2": "launch.ec2.options:Ec2Options",
    "sagemaker": "launch.sagemaker.options:SageMakerOptions",
}
BILLED = ("ec2", "sagemaker")
REHEARSED = ("ec2", "sagemaker")
# Those that write into a folder of ours; the others have a job folder of their own.
SHARES_FOLDERS = ("local", "slurm")
# What the sweep itself decides for each run.
OURS = ("job_name", "run_dir", "checkpoint_dir", "resume", "wait", "detach", "fetch")
PER_NODE = ("nproc_per_node", "gpus_per_node")
ALONE = ("dp", "single")  # strategies of one process

Values = Mapping[str, Any]


def options_of(backend: str) -> type[BaseModel]:
    """The model of what `backend` takes beside the trainer's settings.  Raises SettingsError if it is not there."""
    module, _, name = BACKENDS[backend].partition(":")
    try:
        model: type[BaseModel] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise SettingsError(f"this version has no {module.rpartition('.')[0]}; take another --backend.") from error
    return model


@dataclass(frozen=True)
class Place:
    """Where one run trains.

    options: of the backend; replicas: GPUs or CPU ranks that share an update, None where only the backend knows;
    visible: CUDA_VISIBLE_DEVICES must hold so many, for one process with several GPUs.
    """

    options: Values
    replicas: int | None
    visible: int | None = None


def place(backend: str, options: Values, strategy: str, gpus: int | None, *, on_cpu: bool = False) -> Place:
    """What `gpus` GPUs are called on `backend`.  Raises SettingsError for a number that its machines do not have.

    gpus None: the options say it.  on_cpu: whether the training is told to use none, and a process stands for one.
    """
    if gpus is not None:
        for name in PER_NODE:
            if name in options:
                raise SettingsError(f"gpus and {name} both say how many; give one of them.")
    if strategy == "single" and (gpus or 1) > 1:
        raise SettingsError(f"strategy single trains on one GPU, not on {gpus}; take ddp, or leave the point out.")
    if backend == "slurm":
        return _slurm(dict(options), strategy, gpus, on_cpu=on_cpu)
    resolve = {"local": _local, "ec2": _ec2, "sagemaker": _sagemaker}[backend]
    return resolve(dict(options), strategy, gpus)


def _local(options: dict[str, Any], strategy: str, gpus: int | None) -> Place:
    if strategy in ALONE:
        return Place({**options, "nproc_per_node": 1}, gpus if strategy == "dp" else 1, gpus)
    processes = gpus or _whole(options, "nproc_per_node", 1)
    return Place({**options, "nproc_per_node": processes}, processes)


def _slurm(options: dict[str, Any], strategy: str, gpus: int | None, *, on_cpu: bool) -> Place:
    """Over as many nodes as the options say; launch.slurm starts a process per GPU, and one for dp."""
    if gpus is None:
        return Place(options, None)
    nodes = _whole(options, "nodes", 1)
    if gpus % nodes:
        raise SettingsError(f"gpus: {gpus} do not divide among {nodes} nodes; change one of them.")
    return Place({**options, "nproc_per_node" if on_cpu else "gpus_per_node": gpus // nodes}, gpus)


def _ec2(options: dict[str, Any], strategy: str, gpus: int | None) -> Place:
    """As few nodes of the type as have so many GPUs."""
    instance = _instance(options, "g5.2xlarge")
    each = max(1, instance.gpus)
    if strategy == "dp":
        if gpus not in (None, each):
            raise SettingsError(f"strategy dp takes all GPUs of a machine; {instance.name} has {each}, not {gpus}.")
        return Place({**options, "nodes": 1, "nproc_per_node": 1}, each)
    if gpus is None:
        return Place(options, _whole(options, "nodes", 1) * _whole(options, "nproc_per_node", each))
    if gpus <= each and "nodes" not in options:
        return Place({**options, "nodes": 1, "nproc_per_node": gpus}, gpus)
    if gpus % each or _whole(options, "nodes", gpus // each) != gpus // each:
        raise SettingsError(f"gpus: {gpus} are no whole number of {instance.name}, with {each}; change one of them.")
    return Place({**options, "nodes": gpus // each}, gpus)


def _sagemaker(options: dict[str, Any], strategy: str, gpus: int | None) -> Place:
    """Whole machines, as SageMaker starts a process on every GPU: of the type, or of a smaller one of its family."""
    if strategy == "dp":
        raise SettingsError("strategy dp is one process, and SageMaker starts one per GPU; leave the point out.")
    instance = _instance(options, "ml.g5.2xlarge")
    each = max(1, instance.gpus)
    if gpus is None:
        return Place(options, _whole(options, "nodes", 1) * each)
    if "nodes" in options:
        raise SettingsError("gpus and nodes both say how many machines; give one of them.")
    if gpus % each:
        instance = _sibling(instance, gpus)
        each = max(1, instance.gpus)
    return Place({**options, "instance_type": instance.sagemaker_name, "nodes": gpus // each}, gpus)


def _sibling(like: Instance, gpus: int) -> Instance:
    """Of the same family, with the most GPUs that divide `gpus`, and the cheapest of those."""
    family = like.name.split(".")[0]
    fitting = [
        one for one in catalog.load().values()
        if one.name.split(".")[0] == family and one.sagemaker_name and one.gpus and gpus % one.gpus == 0
    ]  # fmt: skip
    if not fitting:
        raise SettingsError(f"gpus: {gpus} cannot be made of SageMaker's machines of the family {family}.")
    return min(fitting, key=lambda one: (-one.gpus, one.sagemaker_usd_per_hour or 0.0))


def _whole(options: Values, name: str, default: int) -> int:
    """A number of `options`, which a command line gives as text.  Raises SettingsError."""
    given = str(default if options.get(name) is None else options[name])
    if not given.isdecimal() or int(given) < 1:
        raise SettingsError(f"{name}: {given} must be a whole number of at least 1.")
    return int(given)


def _instance(options: Values, default: str) -> Instance:
    given = options.get("instance_type", default)
    names = given.split(",") if isinstance(given, str) else list(given)
    if len(names) != 1:
        raise SettingsError("instance_type: a sweep compares runs, so each must know its machine; give one type.")
    return catalog.find(names[0].strip())


def machine(backend: str, options: Values) -> Instance | None:
    """What kind of machine a run's options name; None where they do not."""
    return (
        _instance(options, {"ec2": "g5.2xlarge", "sagemaker": "ml.g5.2xlarge"}[backend]) if backend in BILLED else None
    )
