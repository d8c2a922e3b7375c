"""How the ranks' software comes into a container: srun's flags for Pyxis, or an EDF for CSCS's container engine.  Pure.

https://github.com/NVIDIA/pyxis and https://docs.cscs.ch/software/container-engine/
"""

from collections.abc import Sequence
from pathlib import Path

from launch.slurm.names import EDF
from launch.slurm.options import SlurmOptions
from trainer.errors import SettingsError

# Both read a comma or a colon as the end of a path.
_SEPARATORS = (",", ":")


def is_used(options: SlurmOptions) -> bool:
    return options.container_image is not None or options.container_edf is not None


def check(options: SlurmOptions) -> None:
    """Raises SettingsError for flags that contradict each other."""
    if options.container_image and options.container_edf:
        raise SettingsError(
            f"--container-image {options.container_image} and --container-edf {options.container_edf} both name the "
            "image; give one."
        )
    if options.container_mounts and not options.container_image:
        where = "in your EDF" if options.container_edf else "and there is none; give --container-image"
        raise SettingsError(
            f"--container-mounts {','.join(options.container_mounts)} is of a --container-image, {where}."
        )
    for mount in options.container_mounts:
        source, colon, target = mount.partition(":")
        if not (colon and source and target.startswith("/")):
            raise SettingsError(f"--container-mounts {mount}: write HOST:CONTAINER, such as /data/imagenet:/data.")


def mounts(options: SlurmOptions, needed: Sequence[Path]) -> list[str]:
    """The user's mounts, and for each needed folder that none of them brings one at its own place.

    Raises SettingsError for a folder whose name cannot be written as a mount.
    """
    own = [Path(mount.split(":")[1]) for mount in options.container_mounts]
    wanted = [path for path in needed if not any(path.is_relative_to(place) for place in own)]
    outermost = [
        path for path in dict.fromkeys(wanted) if not any(path != o and path.is_relative_to(o) for o in wanted)
    ]
    for path in outermost:
        if any(mark in str(path) for mark in _SEPARATORS):
            raise SettingsError(f"{path}: a container cannot mount a path with a comma or colon; take another.")
    return [*options.container_mounts, *(f"{path}:{path}" for path in outermost)]


def srun_flags(options: SlurmOptions, folder: Path, workdir: Path, needed: Sequence[Path]) -> list[str]:
    """What srun gets; nothing without a container.  workdir: where the ranks run; needed: folders they must see."""
    if options.container_edf:
        return [f"--environment={options.container_edf}"]
    if options.container_image is None:
        return []
    if options.container_runtime == "edf":
        return [f"--environment={folder / EDF}"]
    return [
        f"--container-image={options.container_image}",
        f"--container-mounts={','.join(mounts(options, needed))}",
        f"--container-workdir={workdir}",
    ]


def edf(options: SlurmOptions, workdir: Path, needed: Sequence[Path]) -> str | None:
    """The EDF to write for the job, as TOML; None if it takes none."""
    if options.container_image is None or options.container_runtime != "edf":
        return None
    lines = ["mounts = [", *(f"    {_toml(mount)}," for mount in mounts(options, needed)), "]"]
    return "\n".join([f"image = {_toml(options.container_image)}", *lines, f"workdir = {_toml(str(workdir))}", ""])


def _toml(text: str) -> str:
    """A basic string, https://toml.io/en/v1.0.0#string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
