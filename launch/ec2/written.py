"""What the folder of a job in S3 says: job.json, cluster.json and the exit records.

A damaged file is one clear error: a job is still shown and stopped by its tags.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from launch.core import lookup
from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.names import Folder
from trainer.settings.hidden import without_secrets

Record = dict[str, Any]

# The name of a job, a node, a volume or a step, which stand in lines of a launcher's own.
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]{0,79}$")]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Time = Annotated[float, Field(ge=0, lt=2**33)]  # seconds since 1970


class _File(BaseModel):
    model_config = ConfigDict(strict=True)


class _Where(_File):
    nodes: Count = 0
    root_gb: Count = 0
    instance_type: list[str] = []


class _Prices(_File):
    model_config = ConfigDict(extra="forbid")
    usd_per_hour: dict[str, float] = {}
    storage: float = 0.0
    source: str = ""
    are_known: bool = True
    spot: dict[str, float] = {}


class _JobFile(_File):
    """What an earlier version left out may be missing."""

    job: Word = "-"
    region: Word = "-"
    regions: list[Word] = []
    train: list[str] = []
    where: _Where = _Where()
    prices: _Prices = _Prices()
    started: Time = 0
    deadline: Time = 0
    ended: Time = 0


class _Row(_File):
    rank: Count
    instance: Word
    address: str = ""
    data_volume: str | None = None


class _ClusterFile(_File):
    nodes: list[_Row]
    job: Word
    started: Time
    deadline: Time
    generation: Count = 0
    restarts: Count = 0


class _ExitRecord(_File):
    instance: Word
    step: Word
    reason: str
    at: Time
    code: Count
    rank: Count | None
    restarts: Count | None
    generation: Count | None = None


def spec_of(aws: Aws, folder: Folder, backend: str) -> Record | None:
    """The job.json of `folder`, or None if there is no such job.

    Raises AwsError, with the code NotJson if it is damaged, and SettingsError if it is another backend's.
    """
    return _checked(lookup.spec_of(aws, folder, backend), _JobFile, folder.bucket, folder.spec)


def start_of(spec: Mapping[str, Any]) -> datetime | None:
    """When the job was started, as its job.json says."""
    return datetime.fromtimestamp(spec["started"], UTC) if "started" in spec else None


def members_of(aws: Aws, folder: Folder) -> Record | None:
    """The cluster.json of `folder`, or None if it has none.  Raises AwsError, as spec_of()."""
    content = lookup.read_json(aws, folder.bucket, folder.cluster)
    return _checked(content, _ClusterFile, folder.bucket, folder.cluster)


def record_at(aws: Aws, bucket: str, key: str) -> Record | None:
    """The exit record there; None for a damaged one: it says as little as a missing one.  Raises AwsError."""
    try:
        record = _checked(lookup.read_json(aws, bucket, key), _ExitRecord, bucket, key)
    except AwsError as error:
        if error.aws_code != "NotJson":
            raise
        return None
    if record is None:
        return None
    # A script that was killed may have said the last words itself, with a token in them.  On one line: further ones
    # would look like this launcher's own words.
    return {**record, "reason": " ".join(without_secrets(record["reason"]).split())}


def _checked(content: Record | None, kind: type[_File], bucket: str, key: str) -> Record | None:
    try:
        if content is not None:
            kind.model_validate(content)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise AwsError(f"s3://{bucket}/{key} is damaged, at {place!a}: no launcher writes that.", "NotJson") from error
    return content
