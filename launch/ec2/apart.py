"""What carries a job's tags, told apart by all of them and by the owner, of whom AWS is asked only where it matters."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from launch.core.aws import Aws
from launch.core.names import JOB_TAG, OWNER_TAG, tag_values
from launch.ec2.ownership import Described, Foreign, disputed, of_others, owned

Key = tuple[str, str]
Apart = tuple[list[Described], list[Foreign]]


def told_apart(
    aws: Aws, found: Mapping[Key, Sequence[Described]], owner: str = "", known: Collection[str] = ()
) -> list[Apart]:
    """Of each kind what is the toolkit's, and what only looks like it.  found: by kind and the key of its id.

    A launcher may write any job into the tags of its own machines, and AWS lets nobody else end these: it refuses a
    whole request because of one.  So, where the caller has things of a job, those of other owners are not the job's.
    owner: who has things of it, listed or not.  Where none of them is listed, the ids in `known` are the job's, too.
    """
    apart = {key: owned(*key, described) for key, described in found.items()}
    tags = [tag_values(row) for ours, _ in apart.values() for row in ours]
    jobs = disputed(tags)
    if not jobs and not owner:
        return list(apart.values())
    me = owner or str(aws.call("sts", "GetCallerIdentity")["UserId"])
    mine = _jobs_of(me, tags)
    if owner and not mine:
        return _without_others(apart, me, {values[JOB_TAG] for values in tags}, known)
    return _without_others(apart, me, mine & jobs)


def _jobs_of(owner: str, tags: Iterable[Mapping[str, str]]) -> set[str]:
    return {values[JOB_TAG] for values in tags if values.get(OWNER_TAG) == owner}


def _without_others(
    apart: Mapping[Key, Apart], me: str, mine: Collection[str], known: Collection[str] = ()
) -> list[Apart]:
    """Each kind without what other owners than `me` have of the jobs `mine`, but for the ids in `known`."""
    return [_parted(key, *pair, me, mine, known) for key, pair in apart.items()]


def _parted(
    key: Key, ours: list[Described], others: list[Foreign], me: str, mine: Collection[str], known: Collection[str]
) -> Apart:
    rows = {row[key[1]]: row for row in ours}
    strange = {name: None if name in known else of_others(*key, row, me, mine) for name, row in rows.items()}
    kept = [row for row in ours if strange[row[key[1]]] is None]
    return kept, [*others, *(thing for thing in strange.values() if thing)]
