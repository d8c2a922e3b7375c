"""Look-ups for launch.data, and their facts.  Reads only."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from launch.aws.client import Aws
from launch.aws.lookup import Lookups, check_bucket, read_json, region_or_some
from launch.aws.names import BUCKET_TAG, DATA_TAG, JOB_TAG, Folder, bucket_of, is_ours, read_bucket, tag_values
from launch.aws.published import BLOCKS_TAG, DIGEST_TAG, content_of, is_published, prefix_of
from launch.core.errors import AwsError
from launch.core.manifest import RECORD, Content
from launch.data.prepared import Prepared
from launch.data.upload import Place, is_same, open_uploads, sizes
from trainer.errors import TrainerError

PENDING, COMPLETED, ERROR = "pending", "completed", "error"


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that is tagged with a data set's name.  state: EC2's; tags: all."""

    id: str
    state: str
    gib: int
    tags: Mapping[str, str]
    started: Any = None
    kms_key: str = ""

    @property
    def digest(self) -> str:
        return self.tags.get(DIGEST_TAG, "")

    @property
    def blocks(self) -> str:
        return self.tags.get(BLOCKS_TAG, "")

    @property
    def content(self) -> Content | None:
        return content_of(self.tags)

    @property
    def by_hand(self) -> bool:
        """Whether it was not made by launch.data, which neither uses nor deletes such a snapshot."""
        return not is_published(self.tags)


def snapshot_of(row: Mapping[str, Any]) -> Snapshot:
    """A row of DescribeSnapshots."""
    key = str(row.get("KmsKeyId", ""))
    return Snapshot(row["SnapshotId"], row["State"], row["VolumeSize"], tag_values(row), row.get("StartTime"), key)


@dataclass(frozen=True)
class Facts:
    """The facts of a region about one data set."""

    region: str
    account: str = ""
    owner: str = ""
    there: Mapping[str, int] = field(default_factory=dict)  # {name: bytes} in the data set's folder in S3
    same: frozenset[str] = frozenset()  # those of them that equal the prepared files
    record: Mapping[str, Any] | None = None  # published.json
    snapshots: tuple[Snapshot, ...] = ()  # all of this name, newest first
    open_uploads: tuple[tuple[str, str], ...] = ()  # keys and ids of unfinished multipart uploads
    users: tuple[str, ...] = ()  # running jobs that read the data
    problems: tuple[TrainerError, ...] = ()  # why nothing can be done

    @property
    def is_looked_up(self) -> bool:
        return bool(self.account)

    @property
    def ours(self) -> tuple[Snapshot, ...]:
        return tuple(one for one in self.snapshots if not one.by_hand)

    @property
    def by_hand(self) -> tuple[Snapshot, ...]:
        return tuple(one for one in self.snapshots if one.by_hand)

    def of_digest(self, digest: str) -> tuple[Snapshot, ...]:
        """launch.data's own snapshots of this content."""
        return tuple(one for one in self.ours if one.digest == digest)


RUNNING = {"Name": "instance-state-name", "Values": ["pending", "running"]}


def look_up(aws: Aws, name: str, prepared: Prepared | None = None, *, with_users: bool = False) -> Facts:
    """Look up all facts; AWS's failures become problems.  prepared: what S3 is compared with."""
    try:
        region, caller = aws.region, aws.call("sts", "GetCallerIdentity")
    except TrainerError as problem:
        return Facts(region_or_some(aws), problems=(problem,))
    lookups, account = Lookups(), str(caller["Account"])
    place = place_of(name, account, region)
    lookups.required(partial(check_bucket, aws, place.bucket, account), None)
    none: tuple[Snapshot, ...] = ()
    snapshots = lookups.required(partial(find_snapshots, aws, name), none)
    facts = Facts(region, account, str(caller.get("UserId", "")), snapshots=snapshots)
    if lookups.problems:
        return replace(facts, problems=tuple(lookups.problems))
    nothing: dict[str, int] = {}
    there = lookups.required(partial(sizes, aws, place), nothing)
    no_uploads: list[tuple[str, str]] = []
    none_is: frozenset[str] = frozenset()
    facts = replace(
        facts,
        there=there,
        record=lookups.required(partial(read_json, aws, place.bucket, place.prefix + RECORD), None)
        if RECORD in there
        else None,
        same=lookups.required(partial(_same, aws, place, prepared, there), none_is),
        open_uploads=tuple(lookups.required(partial(open_uploads, aws, place), no_uploads)),
    )
    if with_users:
        no_users: tuple[str, ...] = ()
        facts = replace(facts, users=lookups.required(partial(users, aws, place, facts.snapshots), no_users))
    return replace(facts, problems=tuple(lookups.problems))


def place_of(name: str, account: str, region: str) -> Place:
    """The data set's folder in the bucket that launch.infra makes, the only one that the roles may read."""
    return Place(bucket_of(account, region), prefix_of(name), account)


def _same(aws: Aws, place: Place, prepared: Prepared | None, there: dict[str, int]) -> frozenset[str]:
    files = prepared.files if prepared else ()
    return frozenset(file.name for file in files if is_same(aws, place, file, there))


def find_snapshots(aws: Aws, name: str | None = None) -> tuple[Snapshot, ...]:
    """The account's snapshots with a data set, or with this one; the newest first."""
    chosen = {"Name": f"tag:{DATA_TAG}", "Values": [name]} if name else {"Name": "tag-key", "Values": [DATA_TAG]}
    rows = aws.pages("ec2", "DescribeSnapshots", "Snapshots", {"OwnerIds": ["self"], "Filters": [chosen]})
    return tuple(snapshot_of(row) for row in sorted(rows, key=lambda row: str(row["StartTime"]), reverse=True))


# ---- jobs that read a data set


def users(aws: Aws, place: Place, snapshots: tuple[Snapshot, ...]) -> tuple[str, ...]:
    """Running jobs that read this data set, as NAME (EC2) or NAME (SageMaker)."""
    names = {one.id for one in snapshots}
    found = [f"{job} (EC2)" for job in _on_ec2(aws, place, names)]
    return (*found, *(f"{job} (SageMaker)" for job in _on_sagemaker(aws, place)))


def _on_ec2(aws: Aws, place: Place, snapshots: set[str]) -> Iterator[str]:
    filters = [{"Name": "tag-key", "Values": [JOB_TAG]}, RUNNING]
    rows = aws.pages("ec2", "DescribeInstances", "Reservations", {"Filters": filters})
    tags = [tag_values(node) for row in rows for node in row["Instances"]]
    jobs = {(one[JOB_TAG], read_bucket(one.get(BUCKET_TAG)) or place.bucket) for one in tags if is_ours(one)}
    for job, bucket in sorted(jobs):
        spec = _spec(aws, Folder(bucket, job))
        if str(spec.get("snapshot")) in snapshots or any(_is_inside(one, place) for one in _sources(spec)):
            yield job


def _spec(aws: Aws, folder: Folder) -> dict[str, Any]:
    """The job.json in `folder`, empty if there is none.  Raises AwsError, with a remedy, if it cannot be read."""
    try:
        return read_json(aws, folder.bucket, folder.spec) or {}
    except AwsError as error:
        raise AwsError(
            f"what job {folder.job}, which runs on EC2, reads is not known: {error}  Try again once it has ended, "
            f"or end it: python -m launch.ec2 stop {folder.job} --region {aws.region}",
            error.aws_code,
        ) from error


def _sources(spec: dict[str, Any]) -> Iterator[str]:
    """The folders in S3 that a job on EC2 copies from, or reads while it trains."""
    yield spec.get("where", {}).get("data_s3") or ""
    yield from spec.get("train", ())


def _on_sagemaker(aws: Aws, place: Place) -> Iterator[str]:
    rows = aws.pages("sagemaker", "ListTrainingJobs", "TrainingJobSummaries", {"StatusEquals": "InProgress"})
    for row in rows:
        job = aws.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": row["TrainingJobName"]})
        channels = job.get("InputDataConfig", ())
        sources = [channel.get("DataSource", {}).get("S3DataSource", {}).get("S3Uri", "") for channel in channels]
        read = str(job.get("HyperParameters", {}).get("data-url", "")).strip('"')
        if any(_is_inside(source, place) for source in (*sources, read)):
            yield str(row["TrainingJobName"])


def _is_inside(source: str, place: Place) -> bool:
    return f"{source.rstrip('/')}/".startswith(f"{place.uri}/")
