"""Copy a published data set to another region: its snapshot by EC2, its objects by S3.  Every step is idempotent."""

from dataclasses import dataclass, replace
from typing import Any

from launch.aws.client import Aws
from launch.aws.names import BUCKET_TAG, DATA_TAG, OWNER_TAG
from launch.core.clock import Clock
from launch.core.manifest import MANIFEST, RECORD
from launch.core.plan import Fact, Plan, Request
from launch.core.terminal import Say
from launch.data import costs
from launch.data.lookup import COMPLETED, ERROR, Facts, Snapshot, find_snapshots, place_of
from launch.data.planner import PUBLISHED, SOME_ACCOUNT
from launch.data.pool import Pool
from launch.data.show import content_in
from launch.data.snapshot import delete_snapshot, wait_until_completed
from launch.data.upload import SHA256, Place
from trainer.errors import SettingsError, TrainerError

# The limit of one CopyObject: https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html
LARGEST = 5 * 2**30
LAST = (MANIFEST, RECORD)


@dataclass(frozen=True)
class Copy:
    """What performing the copy needs."""

    source: Place
    target: Place
    objects: tuple[str, ...]  # names to copy
    snapshot: Snapshot | None  # the source
    begun: Snapshot | None  # an existing copy
    request: Request | None
    manifest: bool = False  # whether the target has one of other content
    extra: tuple[str, ...] = ()  # names of the target's other objects
    older: tuple[str, ...] = ()  # the target's snapshots of other content


def plan_copy(name: str, here: Facts, there: Facts, kms_key: str | None) -> Plan[Copy]:
    """The plan of a copy.  here, there: facts of the source and the target region."""
    copy = _with_earlier(_copy(name, here, there, kms_key), here, there)
    objects, snapshot, target = copy.objects, copy.snapshot, copy.target
    each = ("for each object, the manifest last:", (_object_request(copy.source, target, "<object>"),))
    size = _size(here, snapshot)
    return Plan(
        title=f"copy data set {name} from {here.region} to {there.region}",
        payload=copy,
        facts=(
            Fact("objects", len(objects), f"{len(objects)} of {len(here.there)} to copy to {target.uri}"),
            Fact("snapshot", snapshot.id if snapshot else None, _words(snapshot, copy.begun)),
            *_earlier_words(copy),
        ),
        steps=(copy.request,) if copy.request else (),
        rates=(costs.copying(size, in_s3=bool(objects), in_snapshot=copy.request is not None),),
        problems=(*here.problems, *there.problems, *_problems(name, here, there, snapshot)),
        later=(each,) if objects else (),
    )


def _copy(name: str, here: Facts, there: Facts, kms_key: str | None) -> Copy:
    account = here.account or SOME_ACCOUNT
    source, target = place_of(name, account, here.region), place_of(name, account, there.region)
    objects = _objects(here, there)
    snapshot = next((one for one in here.snapshots if not one.by_hand and one.state == COMPLETED), None)
    if snapshot is None:
        return Copy(source, target, objects, None, None, None)
    begun = next((one for one in there.of_digest(snapshot.digest) if one.state != ERROR), None)
    request = None if begun else _copy_request(name, snapshot, here, target, kms_key)
    return Copy(source, target, objects, snapshot, begun, request)


def _with_earlier(copy: Copy, here: Facts, there: Facts) -> Copy:
    """Add what the target has with other content under the same name, as it would be billed for ever."""
    digest = str((here.record or {}).get("digest") or (copy.snapshot.digest if copy.snapshot else ""))
    older = tuple(one.id for one in there.ours if digest and one.digest != digest)
    if not _replaces(here, there):
        return replace(copy, older=older)
    extra = tuple(sorted(there.there.keys() - here.there.keys() - {*LAST}))
    return replace(copy, manifest=MANIFEST in there.there, extra=extra, older=older)


def _earlier_words(copy: Copy) -> tuple[Fact, ...]:
    if not copy.extra and not copy.older:
        return ()
    value = [*copy.older, *copy.extra]
    words = f"with different content there, deleted at the end: {len(copy.extra)} objects"
    return (Fact("earlier", value, ", ".join((words, *copy.older))),)


def _size(here: Facts, snapshot: Snapshot | None) -> int:
    content = content_in(here.record) or (snapshot.content if snapshot else None)
    return content.bytes if content else 0


def _objects(here: Facts, there: Facts) -> tuple[str, ...]:
    """Names of the objects that differ in size, or of all if the contents differ; those that complete it last."""
    is_same = (there.record or {}).get("digest") == (here.record or {}).get("digest")
    differ = [name for name, size in here.there.items() if not is_same or there.there.get(name) != size]
    return (*sorted(set(differ) - {*LAST}), *(name for name in LAST if name in differ))


def _words(snapshot: Snapshot | None, begun: Snapshot | None) -> str:
    if snapshot is None:
        return "none"
    return f"{snapshot.id}, as {begun.id} there: {begun.state}" if begun else snapshot.id


def _problems(name: str, here: Facts, there: Facts, snapshot: Snapshot | None) -> list[TrainerError]:
    """The first reason why it cannot be copied, if there is one."""
    large = next((one for one, size in here.there.items() if size > LARGEST), "")
    is_there = here.record is not None or snapshot is not None
    reasons = (
        (here.region == there.region, f"{name} is in {here.region} already; give another --to-region."),
        (
            here.is_looked_up and not is_there,
            f"there is no data set {name} in {here.region}; see python -m launch.data list.",
        ),
        (
            here.record is not None and here.record.get("state") != PUBLISHED,
            f"{name} is not completely published in {here.region}; publish it again first.",
        ),
        (bool(large), f"{large} is larger than 5 GiB, which S3 does not copy at once; publish it there."),
        (
            bool(there.there) and there.record is None,
            f"{there.region} has files of that name that launch.data did not publish; remove them.",
        ),
        (
            _replaces(here, there) and bool(there.users),
            f"{name} is in use by {', '.join(there.users)} in {there.region}; wait until they end.",
        ),
    )
    first: list[TrainerError] = [SettingsError(words) for applies, words in reasons if applies]
    return first[:1]


def _replaces(here: Facts, there: Facts) -> bool:
    """Whether the target region has other content under this name."""
    return there.record is not None and there.record.get("digest") != (here.record or {}).get("digest")


def _copy_request(name: str, snapshot: Snapshot, here: Facts, target: Place, kms_key: str | None) -> Request:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CopySnapshot.html: sent to the region it goes to.

    The copy gets the caller as its owner, as IAM allows no other.
    """
    named = {**snapshot.tags, BUCKET_TAG: target.bucket, OWNER_TAG: here.owner}
    tags = [{"Key": key, "Value": value} for key, value in named.items() if not key.startswith("aws:")]
    params: dict[str, Any] = {
        "SourceRegion": here.region,
        "SourceSnapshotId": snapshot.id,
        "Description": f"data set {name}, of launch.data",
        "Encrypted": True,
        "TagSpecifications": [{"ResourceType": "snapshot", "Tags": tags}],
    }
    if kms_key:
        params["KmsKeyId"] = kms_key
    return Request("ec2", "CopySnapshot", params, "copy the snapshot", name="copy")


def _object_request(source: Place, target: Place, name: str) -> Request:
    params = {
        **target.of(name),
        "CopySource": {"Bucket": source.bucket, "Key": source.prefix + name},
        "ExpectedSourceBucketOwner": source.account,
        "ChecksumAlgorithm": "SHA256",
        "MetadataDirective": "COPY",  # with the digest
    }
    return Request("s3", "CopyObject", params, f"copy {name}, with its {SHA256}")


def carry_out(plan: Plan[Copy], aws: Aws, pool: Pool, clock: Clock, say: Say) -> None:
    """Perform the copy.  aws, pool: of the target region."""
    copy = plan.payload
    begun = copy.begun.id if copy.begun else ""
    if copy.request is not None:
        say(copy.request.why)
        begun = str(pool.call("ec2", "CopySnapshot", copy.request.params)["SnapshotId"])

    def one(name: str) -> None:
        request = _object_request(copy.source, copy.target, name)
        pool.call(request.service, request.operation, request.params)

    if copy.manifest:
        say("take the old content there out of use")
        pool.call("s3", "DeleteObject", copy.target.of(MANIFEST))
    files = [name for name in copy.objects if name not in LAST]
    say(f"copy {len(files)} files to {copy.target.uri}")
    pool.each(files, one)
    if begun:
        say(f"wait until {begun} is completed")
        wait_until_completed(aws, clock, begun)
        _remove_others(copy, begun, aws, pool, say)
    for name in copy.extra:  # before the record, by which a repeated command would find them
        pool.call("s3", "DeleteObject", copy.target.of(name))
    for name in copy.objects[len(files) :]:
        one(name)
    for old in copy.older:
        say(f"delete {old}, which has different content")
        delete_snapshot(pool, old)


def _remove_others(copy: Copy, kept: str, aws: Aws, pool: Pool, say: Say) -> None:
    """Delete duplicates: CopySnapshot has no client token, so a repeated request makes another copy."""
    assert copy.snapshot is not None
    for one in find_snapshots(aws, copy.snapshot.tags[DATA_TAG]):
        if one.id != kept and not one.by_hand and one.digest == copy.snapshot.digest:
            say(f"delete {one.id}, a second copy")
            delete_snapshot(pool, one.id)
