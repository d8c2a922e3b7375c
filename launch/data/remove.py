"""The plan that deletes a published data set: only what launch.data made, and never what a job reads.  Pure."""

from collections.abc import Iterable, Mapping, Sequence

from launch.aws.published import DIGEST_TAG
from launch.core.manifest import MANIFEST, RECORD
from launch.core.plan import Fact, Plan
from launch.core.steps import Request
from launch.data.facts import Facts, Snapshot
from launch.data.lookup import place_of
from launch.data.publication import SOME_ACCOUNT
from launch.data.upload import Place
from trainer.errors import SettingsError, TrainerError


def plan_removal(name: str, facts: Facts, reports: Sequence[Mapping[str, str]] = ()) -> Plan[None]:
    """The manifest goes first, so that nothing begins to read it, and the record last, so that it can be repeated.

    reports: objects that an instance has left which published it.
    """
    place = place_of(name, facts.account or SOME_ACCOUNT, facts.region)
    ours, left = facts.ours, facts.by_hand
    objects = sorted(facts.there) if facts.record else []
    size = sum(facts.there[name] for name in objects)
    return Plan(
        title=f"delete data set {name}, in {facts.region}",
        payload=None,
        facts=(
            Fact("snapshots", [one.id for one in ours], ", ".join(one.id for one in ours) or "none"),
            Fact("objects", len(objects), f"{len(objects)} in {place.uri}, {size / 1e9:,.2f} GB"),
        ),
        steps=_steps(place, facts, ours, objects, reports),
        warnings=tuple(f"{one.id} stays: it was made by hand (no tag {DIGEST_TAG})." for one in left),
        problems=(*facts.problems, *_problems(name, place.uri, facts, ours)),
    )


def _steps(
    place: Place, facts: Facts, ours: Sequence[Snapshot], objects: Sequence[str], reports: Sequence[Mapping[str, str]]
) -> tuple[Request, ...]:
    gone = ("InvalidSnapshot.NotFound",)
    snapshots = [Request("ec2", "DeleteSnapshot", {"SnapshotId": one.id}, f"delete {one.id}", gone) for one in ours]
    uploads = [
        Request("s3", "AbortMultipartUpload", place.begun(key, upload), "give up an upload", ("NoSuchUpload",))
        for key, upload in facts.open_uploads
    ]
    known = frozenset(objects)
    return (
        *_deletes(place, known & {MANIFEST}),
        *snapshots,
        *uploads,
        *_deletes(place, known - {MANIFEST, RECORD}),
        *(Request("s3", "DeleteObject", one, f"delete {one['Key']}, of its publication") for one in reports),
        *_deletes(place, known & {RECORD}),
    )


def _deletes(place: Place, names: Iterable[str]) -> list[Request]:
    return [Request("s3", "DeleteObject", place.of(name), f"delete {place.uri}/{name}") for name in sorted(names)]


def _problems(name: str, uri: str, facts: Facts, ours: Sequence[Snapshot]) -> list[TrainerError]:
    if facts.users:
        words = f"{name} is in use by {', '.join(facts.users)}; delete it once they have ended, or stop them."
        return [SettingsError(words)]
    if facts.record is None and facts.there:
        return [SettingsError(f"launch.data did not publish what is in {uri}; delete that by hand: aws s3 rm.")]
    if not ours and facts.record is None and not facts.problems:
        return [SettingsError(f"there is no data set {name} in {facts.region}; see python -m launch.data list.")]
    return []
