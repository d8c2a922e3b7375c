"""What the folder of a job in S3 says: job.json, cluster.json and the exit records.

Every launcher may write all of them, and every training the records.  So what cannot be ours is damaged, as what is no
JSON: a job is still shown and stopped by its tags, which nobody else may change.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from launch.core import lookup
from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.names import Folder
from trainer.settings.hidden import without_secrets

Record = dict[str, Any]
Check = Callable[[Any], bool]
LATEST = 2**33  # seconds since 1970, in the year 2242
MOST_USD = 1e6
RECORD_BYTES = 2**16  # of an exit record, of which each node leaves one
MOST_REGIONS = 64  # AWS has some forty


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_word(value: Any) -> bool:
    """Whether it can be the name of a job, a node, a volume or a step, which stand in lines of a launcher's own."""
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,79}", value) is not None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < LATEST


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _object(fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    def check(value: Any) -> bool:
        if not isinstance(value, dict) or not value.keys() >= fields.keys():
            return False
        return all(is_right(value[name]) for name, is_right in {**(optional or {}), **fields}.items() if name in value)

    return check


def _is_price(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < MOST_USD


def _is_prices(value: Any) -> bool:
    """Whether it is price.Prices as JSON."""
    fields = {"usd_per_hour": _are_prices, "storage": _is_price, "source": _is_text,
              "are_known": lambda known: type(known) is bool, "spot": _are_prices}  # fmt: skip
    return _object({}, fields)(value) and value.keys() <= fields.keys()


def _are_prices(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_price, value.values()))


def is_region(value: Any) -> bool:
    """Whether it looks like the name of one."""
    return isinstance(value, str) and re.fullmatch(r"[a-z]{2}(-[a-z]{2,12}){1,3}-[0-9]{1,2}", value) is not None


def _are_regions(value: Any) -> bool:
    """Whether they are few and look like regions: a job is looked for in each of them, by requests to that place."""
    return isinstance(value, list) and len(value) <= MOST_REGIONS and all(map(is_region, value))


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


# What an earlier version left out may be missing.
SPEC = _object(
    {},
    {
        "job": _is_word, "region": _is_word, "train": _list_of(_is_text), "started": _is_time, "deadline": _is_time,
        "where": _object({}, {"nodes": _is_count, "root_gb": _is_count, "instance_type": _list_of(_is_text)}),
        "ended": _is_time, "stop_asked": _is_time, "regions": _are_regions, "prices": _is_prices,
    },
)  # fmt: skip
ROW = _object({"rank": _is_count, "instance": _is_word}, {"address": _is_text, "data_volume": _or_none(_is_text)})
MEMBERS = _object(
    {
        "nodes": _list_of(ROW), "job": _is_word, "started": _is_time, "deadline": _is_time,
    },
    {"generation": _is_count, "restarts": _is_count},
)  # fmt: skip
RECORD = _object(
    {
        "instance": _is_word, "step": _is_word, "reason": _is_text, "at": _is_time, "code": _is_count,
        "rank": _or_none(_is_count), "restarts": _or_none(_is_count),
    },
    {"generation": _or_none(_is_count)},
)  # fmt: skip


def spec_of(aws: Aws, folder: Folder, backend: str) -> Record | None:
    """The job.json of `folder`, or None if there is no such job.

    Raises AwsError, with the code NotJson if it cannot be ours, and SettingsError if it is another backend's.
    """
    return _fitting(lookup.spec_of(aws, folder, backend), SPEC, folder, folder.spec)


def members_of(aws: Aws, folder: Folder) -> Record | None:
    """The cluster.json of `folder`, or None if it has none.  Raises AwsError, as spec_of()."""
    return _fitting(lookup.read_json(aws, folder.bucket, folder.cluster), MEMBERS, folder, folder.cluster)


def record_at(aws: Aws, bucket: str, key: str) -> Record | None:
    """The exit record there; None for a damaged one: it says as little as a missing one.  Raises AwsError."""
    try:
        record = lookup.read_json(aws, bucket, key, RECORD_BYTES)
    except AwsError as error:
        if error.aws_code != "NotJson":
            raise
        return None
    if record is None or not RECORD(record):
        return None
    # A script that was killed may have said the last words itself, with a token in them.  On one line: further ones
    # would look like this launcher's own words, and every training may write a record.
    return {**record, "reason": " ".join(without_secrets(record["reason"]).split())}


def _fitting(content: Record | None, check: Check, folder: Folder, key: str) -> Record | None:
    if content is None or check(content):
        return content
    raise AwsError(f"s3://{folder.bucket}/{key} is damaged: no launcher writes what it says.", "NotJson")
