"""Where the nodes of a job have their data from, and what of it cannot work.  Pure."""

import re
from shlex import quote

from launch.core.estimate.volume import QUOTA, RANGE, rate_for
from launch.core.job import Job
from launch.core.published import check_name
from launch.core.s3 import parse_s3
from launch.core.training.base import Training
from launch.ec2.options import Ec2Options
from launch.ec2.resolved import DATA_DIR, Resolved
from trainer.errors import SettingsError

MULTI_ATTACH_LIMIT = 16  # https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volumes-multi.html


def data_volume_of(job: Job[Ec2Options]) -> str:
    """The kind of data volume; auto becomes per-node or none."""
    options = job.where
    if options.data_s3 is not None and parse_s3(options.data_s3) is None:
        raise SettingsError(f"--data-s3 {options.data_s3}: must have the form s3://bucket/folder.")
    _check_name(options)
    kind = options.data_volume
    if kind == "auto":
        kind = "per-node" if _wants_volume(job) else "none"
    if job.train.data_url is not None:
        _check_streamed(options, kind)
    elif kind == "none":
        _check_without_volume(job)
    else:
        _check_volume(job, kind)
    _check_filling(options, kind)
    return kind


def _wants_volume(job: Job[Ec2Options]) -> bool:
    """Whether the data come on one, unless --data-volume says otherwise."""
    options = job.where
    if options.data_s3 is not None or job.train.data_url is not None:
        return False
    return job.train.reads_folder or options.data_snapshot is not None or options.data is not None


def _check_name(options: Ec2Options) -> None:
    """Raises SettingsError for a name that no data set can have, and for data from two places."""
    if options.data is None:
        return
    if options.data.startswith("s3://"):
        raise SettingsError(f"--data {options.data}: takes the name of a published data set; give --data-s3 instead.")
    check_name(options.data)
    for other in ("data_snapshot", "data_s3"):
        if getattr(options, other) is not None:
            flag = f"--{other.replace('_', '-')}"
            raise SettingsError(f"--data and {flag} both provide the data; give one of them.")
    if options.data_volume == "none":
        raise SettingsError("--data needs a volume; omit --data-volume none.")


def _check_streamed(options: Ec2Options, kind: str) -> None:
    """Raises SettingsError for shards that are read from S3 while training, and data from another place as well."""
    given = [name for name in ("data", "data_snapshot", "data_s3") if getattr(options, name) is not None]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise SettingsError(f"--data-url and {flag} both provide the data; give one of them.")
    if kind != "none":
        raise SettingsError("--data-url needs no volume; omit --data-volume.")


def _check_without_volume(job: Job[Ec2Options]) -> None:
    options = job.where
    if options.data_snapshot is not None and options.data_s3 is not None:
        raise SettingsError("--data-s3 and --data-snapshot both provide the data; give one of them.")
    if options.data_snapshot is not None:
        raise SettingsError("--data-snapshot needs a volume; omit --data-volume none.")
    if options.data_s3 is None and job.train.needs_data:
        raise SettingsError(f"{job.train.dataset} cannot be downloaded; provide it with --data-snapshot or --data-s3.")


def _check_volume(job: Job[Ec2Options], kind: str) -> None:
    options = job.where
    if not (job.train.dataset or options.data or options.data_snapshot or options.data_s3):
        raise SettingsError(
            f"--data-volume {kind} is made of a snapshot, and a script of your own names none; give --data NAME or "
            "--data-snapshot."
        )
    if options.data_s3 is not None:
        raise SettingsError(f"--data-s3 and --data-volume {kind} both provide the data; give one of them.")
    if kind == "multi-attach" and options.nodes > MULTI_ATTACH_LIMIT:
        raise SettingsError(
            f"--data-volume multi-attach supports at most {MULTI_ATTACH_LIMIT} nodes; use per-node for {options.nodes}."
        )


def _check_filling(options: Ec2Options, kind: str) -> None:
    """Raises SettingsError where nothing can be filled at a rate, although that is asked for."""
    if options.fill_volumes != "always":
        return
    if kind != "per-node":
        raise SettingsError(
            f"--fill-volumes always is for a data volume per node, and --data-volume is {kind}; omit --fill-volumes."
        )
    if rate_for(options.nodes) is None:
        least, most = RANGE[0], QUOTA // RANGE[0]
        raise SettingsError(
            f"--fill-volumes always: {options.nodes} volumes at {least} MiB/s, the least, exceed the region's quota of "
            f"{QUOTA:,} MiB/s; give at most {most} --nodes, or omit it."
        )


def data_dir_warning(train: Training, resolved: Resolved) -> tuple[str, ...]:
    """A warning for a folder of this machine, which no node can read."""
    if train.data_dir in (None, DATA_DIR) or "data_dir" not in train.folders:
        return ()
    if resolved.brings_data:
        options = resolved.options
        place = options.data_s3 or options.data_snapshot or f"the newest snapshot of {options.data or train.dataset}"
        return (
            f"--data-dir {train.data_dir} is not used: nodes read {DATA_DIR}, which gets its data from {place}.  "
            f"{_publishing(train)}",
        )
    return (
        f"--data-dir {train.data_dir} is a folder in the nodes' containers, not on this machine.  {_publishing(train)}",
    )


def _publishing(train: Training) -> str:
    """What brings a folder of this machine to the nodes."""
    if not train.reads_folder or train.data_dir is None:
        return "To use your data, upload them and give --data-s3 s3://BUCKET/FOLDER."
    name = re.sub(r"[^a-z0-9]+", "-", train.data_dir.name.lower())[:48].strip("-") or "photos"
    publish = f"python -m launch.data publish {quote(str(train.data_dir))} --name {name}"
    return f"To use that folder, publish it ({publish}), and give --data {name}."
