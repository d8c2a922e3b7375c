"""Published data sets in words.  Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from launch.core.manifest import Content, read_content
from launch.core.terminal import columns, table
from launch.data.lookup import Facts, Snapshot
from launch.data.upload import Place

NOTHING = "no data set is published in {region}; publish one: python -m launch.data publish FOLDER --name NAME"


def content_in(record: Mapping[str, Any] | None) -> Content | None:
    """The content in a record; None if it is damaged."""
    try:
        return read_content(record["content"]) if record else None
    except (KeyError, TypeError, ValueError):
        return None


def listing(region: str, records: Mapping[str, Mapping[str, Any] | None], snapshots: Sequence[Snapshot]) -> str:
    """A table with a row per data set.  records: those in S3, by name."""
    names = sorted({*records, *map(_name, snapshots)})
    if not names:
        return NOTHING.format(region=region)
    rows = [_row(name, records.get(name), [s for s in snapshots if _name(s) == name]) for name in names]
    return table(("name", "images", "GB", "in S3", "snapshot", "changed"), rows, right=("images", "GB"))


def _name(snapshot: Snapshot) -> str:
    return snapshot.tags.get("aws-ddp-toolkit:dataset", "")


def _row(name: str, record: Mapping[str, Any] | None, snapshots: Sequence[Snapshot]) -> list[str]:
    content = content_in(record) or next((one.content for one in snapshots if one.content), None)
    named = [f"{one.id}{_state(one)}" for one in snapshots]
    images, size = (
        ("plain" if content.is_plain else f"{content.images:,}", f"{content.bytes / 1e9:,.2f}")
        if content
        else ("-", "-")
    )
    state = str((record or {}).get("state", "-"))
    return [name, images, size, state, ", ".join(named) or "-", str((record or {}).get("changed", "-"))]


def _state(snapshot: Snapshot) -> str:
    if snapshot.by_hand:
        return " (by hand)"
    return "" if snapshot.state == "completed" else f" ({snapshot.state})"


def details(name: str, place: Place, facts: Facts) -> str:
    """Everything about a data set, and the commands that use it."""
    record, content = facts.record or {}, content_in(facts.record)
    rows = [("name", name), ("state", str(record.get("state", "only a snapshot")))]
    if content and content.is_plain:
        rows += [
            ("content", "a plain folder, for scripts that read its files"),
            ("size", f"{content.bytes / 1e9:,.2f} GB"),
        ]
    elif content:
        rows.append(("images", f"{content.train:,} to train, {content.val:,} to evaluate, {content.classes:,} classes"))
        rows.append(("size", f"{content.bytes / 1e9:,.2f} GB, {content.image_bytes / 1e3:,.1f} kB an image"))
    if record:
        rows += [("digest", str(record.get("digest", ""))), ("verified", str(record.get("verified", "no")))]
    if "manifest.json" in facts.there:
        rows.append(("in S3", f"{place.uri}: {len(facts.there)} objects, {sum(facts.there.values()) / 1e9:,.2f} GB"))
    for one in facts.snapshots:
        rows.append(("snapshot", f"{one.id}: {one.state}, {one.gib} GiB{_state(one) if one.by_hand else ''}"))
    return "\n".join([f"data set {name}, in {facts.region}", *columns(rows), "", *_uses(name, place, facts, content)])


def _uses(name: str, place: Place, facts: Facts, content: Content | None) -> list[str]:
    """Commands that read it."""
    if content and content.is_plain:
        return _uses_by_scripts(name, facts)
    rows = []
    if any(one.state == "completed" for one in facts.snapshots):
        rows.append(("EC2", f"python -m launch.ec2 --nodes 2 {training(name)}"))
    if "manifest.json" in facts.there:
        rows.append(("EC2, read from S3", f"python -m launch.ec2 --dataset {dataset(name)} --data-url {place.uri}"))
        rows.append(("SageMaker", f"python -m launch.sagemaker --dataset {dataset(name)} --data {name}"))
        rows.append(("elsewhere", f"aws s3 sync {place.uri} FOLDER; then --dataset {dataset(name)} --data-dir FOLDER"))
    return ["use it:", *columns(rows)] if rows else []


def _uses_by_scripts(name: str, facts: Facts) -> list[str]:
    rows, script = [], "--script train.py -- --data-dir '{data_dir}'"
    if any(one.state == "completed" for one in facts.snapshots):
        rows.append(("EC2", f"python -m launch.ec2 --nodes 2 --data {name} {script}"))
    if "manifest.json" in facts.there:
        rows.append(("SageMaker", f"python -m launch.sagemaker --data {name} {script}"))
    return ["use it:", *columns(rows)] if rows else []


def dataset(name: str) -> str:
    return "imagenet" if name == "imagenet" else "imagefolder"


def training(name: str) -> str:
    """The flags of launch.ec2 for it; its snapshot is found by the name."""
    return "--dataset imagenet" if name == "imagenet" else f"--dataset imagefolder --data {name}"
