"""What carries a job's tags, told apart by all of them and by the owner, of whom AWS is asked only where it matters."""

from collections.abc import Collection, Mapping, Sequence

from launch.core.aws import Aws
from launch.core.names import JOB_TAG, OWNER_TAG, tag_values
from launch.ec2.ownership import Described, Foreign, disputed, of_others, owned

Key = tuple[str, str]
Apart = tuple[list[Described], list[Foreign]]


def told_apart(aws: Aws, found: Mapping[Key, Sequence[Described]]) -> list[Apart]:
    """Of each kind what is the toolkit's, and what only looks like it.  found: by kind and the key of its id.

    A launcher may write any job into the tags of its own machines, and AWS lets nobody else end these: it refuses a
    whole request because of one.  So, where the caller has things of a job, those of other owners are not the job's.
    """
    apart = {key: owned(*key, described) for key, described in found.items()}
    tags = [tag_values(row) for ours, _ in apart.values() for row in ours]
    jobs = disputed(tags)
    if not jobs:
        return list(apart.values())
    me = str(aws.call("sts", "GetCallerIdentity")["UserId"])
    mine = {values[JOB_TAG] for values in tags if values.get(OWNER_TAG) == me} & jobs
    return [_without_others(key, *pair, me, mine) for key, pair in apart.items()]


def _without_others(key: Key, ours: list[Described], others: list[Foreign], me: str, mine: Collection[str]) -> Apart:
    strange = {row[key[1]]: of_others(*key, row, me, mine) for row in ours}
    kept = [row for row in ours if strange[row[key[1]]] is None]
    return kept, [*others, *(thing for thing in strange.values() if thing)]
