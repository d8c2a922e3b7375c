"""Runs the ranks in a container: srun's flags for Pyxis, or an EDF for CSCS's container engine.  Pure.

https://github.com/NVIDIA/pyxis and https://docs.cscs.ch/software/container-engine/
"""

from collections.abc import Sequence
from pathlib import Path

from launch.slurm.names import EDF
from launch.slurm.options import SlurmOptions
from trainer.errors import SettingsError

# In both, a comma or a colon ends a path.
_SEPARATORS = (",", ":")
# The variant of CSCS's hook for NCCL for images with CUDA 12.
NCCL_VARIANT = "cuda12"


def is_used(options: SlurmOptions) -> bool:
    return options.container_image is not None or options.container_edf is not None


def check(options: SlurmOptions) -> None:
    """Raise SettingsError for contradictory flags."""
    if options.container_image and options.container_edf:
        raise SettingsError(
            f"--container-image {options.container_image} and --container-edf {options.container_edf} both name an "
            "image; give one of them."
        )
    if options.container_mounts and not options.container_image:
        remedy = "put the mounts into your EDF" if options.container_edf else "give --container-image, too"
        raise SettingsError(
            f"--container-mounts {','.join(options.container_mounts)} needs a --container-image; {remedy}."
        )
    _check_hook(options)
    for mount in options.container_mounts:
        source, colon, target = mount.partition(":")
        if not (colon and source and target.startswith("/")):
            raise SettingsError(f"--container-mounts {mount}: write HOST:CONTAINER, such as /data/imagenet:/data.")


def _check_hook(options: SlurmOptions) -> None:
    """Raise SettingsError for a hook without a generated EDF."""
    if options.container_nccl_hook and (options.container_runtime != "edf" or not options.container_image):
        raise SettingsError(
            f"--container-nccl-hook {options.container_nccl_hook} goes into the EDF that is written for a job; give "
            "--container-image with --container-runtime edf, or leave it out."
        )


def mounts(options: SlurmOptions, needed: Sequence[Path]) -> list[str]:
    """The user's mounts, plus one at the same path for each needed folder that they do not contain.

    Raises SettingsError for a folder with a name that cannot be written as a mount.
    """
    targets = [Path(mount.split(":")[1]) for mount in options.container_mounts]
    missing = [path for path in dict.fromkeys(needed) if not _is_within(path, targets)]
    added = []
    for path in missing:
        if not _is_within(path, [other for other in missing if other != path]):
            _check_path(path)
            added.append(f"{path}:{path}")
    return [*options.container_mounts, *added]


def _is_within(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _check_path(path: Path) -> None:
    if any(mark in str(path) for mark in _SEPARATORS):
        raise SettingsError(f"{path}: a container cannot mount a path with a comma or colon; use another folder.")


def srun_flags(options: SlurmOptions, folder: Path, workdir: Path, needed: Sequence[Path]) -> list[str]:
    """srun's flags; none without a container.  workdir: the ranks' working directory; needed: folders that they use."""
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
    """The EDF of the job as TOML; None if it needs none."""
    if options.container_image is None or options.container_runtime != "edf":
        return None
    lines = ["mounts = [", *(f"    {_toml(mount)}," for mount in mounts(options, needed)), "]"]
    lines = [f"image = {_toml(options.container_image)}", *lines, f"workdir = {_toml(str(workdir))}"]
    return "\n".join([*lines, *_annotations(options), ""])


def _annotations(options: SlurmOptions) -> list[str]:
    """The EDF's annotations for the hook that lets NCCL use Slingshot; without it NCCL falls back to TCP.

    https://docs.cscs.ch/software/container-engine/resource-hook
    """
    variant = options.container_nccl_hook or NCCL_VARIANT
    if variant == "none" or not options.gpus_per_node:
        return []
    hook = "com.hooks.aws_ofi_nccl"
    return ["", "[annotations]", f'{hook}.enabled = "true"', f"{hook}.variant = {_toml(variant)}"]


def _toml(text: str) -> str:
    """A basic string, https://toml.io/en/v1.0.0#string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
