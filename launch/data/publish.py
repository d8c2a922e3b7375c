"""Perform a publication: files to S3, then the snapshot, then the record.  Every step is idempotent.

The record is written first, as unfinished, and again at the end; the manifest once all files are in S3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launch.aws.client import Aws
from launch.aws.names import TIME
from launch.core.clock import Clock
from launch.core.manifest import MANIFEST
from launch.core.perform import perform
from launch.core.plan import Plan
from launch.core.terminal import Say
from launch.data import image, snapshot, upload
from launch.data.image import Blocks, Tools
from launch.data.options import PublishOptions
from launch.data.planner import PUBLISHED, Publication, put_record
from launch.data.pool import Pool
from launch.data.prepared import File, check_digest
from launch.data.snapshot import Started, State
from launch.data.upload import Counter, progress

GONE = ("", "error")


@dataclass(frozen=True)
class Publisher:
    """Publishes a data set.  env: of mke2fs; tools: None without a snapshot."""

    aws: Aws
    pool: Pool
    clock: Clock
    say: Say
    env: Mapping[str, str]
    state: State
    tools: Tools | None

    def publish(self, plan: Plan[Publication], options: PublishOptions, earlier: Mapping[str, Any]) -> str:
        """Publish; return the snapshot's id, "" without one.  earlier: the record of the same content, if any."""
        publication = plan.payload
        self._check_files(publication)
        perform(plan.steps, self.aws.call, self.say, self.clock.sleep)
        if publication.puts_manifest:
            self._to_s3(publication)
        more: Mapping[str, Any] = {
            key: earlier[key] for key in ("snapshot", "region", "blocks", "verified") if key in earlier
        }
        if publication.wants_snapshot:
            more = self._to_snapshot(publication, options)
        record = put_record(publication, PUBLISHED, self.clock.utc(), more)
        self.pool.call(record.service, record.operation, record.params)
        for old in (*publication.older, *publication.failed):
            why = "which has different content" if old in publication.older else "failed"
            self.say(f"delete {old.id}, {why}")
            snapshot.delete_snapshot(self.pool, old.id)
        self.state.clear()
        return str(more.get("snapshot", ""))

    def _check_files(self, publication: Publication) -> None:
        """Raise DataError for damaged files, before any is uploaded."""
        prepared = publication.prepared
        self.say(f"check {len(prepared.files)} files against the manifest")
        for file in prepared.files:
            check_digest(prepared.path(file), file)

    # ---- S3

    def _to_s3(self, publication: Publication) -> None:
        files, place = publication.uploads, publication.place
        if files:
            self.say(f"upload {len(files)} files to {place.uri}")
        counter = Counter(sum(file.bytes for file in files), progress(self.clock, self.say, "in S3"))
        uploader = upload.Uploader(self.pool, place, counter)

        def send(file: File) -> None:
            uploader.upload(publication.prepared.path(file), file)

        self.pool.each(files, send)
        for name in publication.extra:
            self.pool.call("s3", "DeleteObject", place.of(name))
        upload.put(self.pool, place, MANIFEST, publication.prepared.manifest)

    # ---- the snapshot

    def _to_snapshot(self, publication: Publication, options: PublishOptions) -> Mapping[str, Any]:
        """Write and verify the snapshot; return its fields of the record."""
        blocks: Blocks | None = None
        if publication.finished is None or not (publication.is_verified or options.verify == "none"):
            blocks = self._image(publication)
        name = publication.finished.id if publication.finished else self._write(publication, options, blocks)
        verified = options.verify
        if blocks is not None and verified != "none":
            self.say(f"read {name} back, and compare it")
            shown = progress(self.clock, self.say, "compared")
            count = snapshot.compare(self.pool, name, blocks, verified, shown)
            self.say(f"{count} of {len(blocks.digests)} blocks are as they were written")
        tag = publication.finished.blocks if publication.finished else blocks.tag if blocks else ""
        return {"snapshot": name, "region": self.aws.region, "blocks": tag, "verified": verified}

    def _image(self, publication: Publication) -> Blocks:
        """The blocks of the file system, made unless an earlier run has made it."""
        digest, prepared = publication.prepared.digest, publication.prepared
        self.state.prepare()
        if (known := self.state.blocks(digest)) is not None:
            return known
        assert self.tools is not None
        self.say(f"make the file system of {publication.gib} GiB in {self.state.image}")
        image.make(self.tools, prepared.folder, self.state.image, publication.gib, digest, self.env)
        blocks = image.scan(self.state.image)
        self.state.keep_blocks(digest, blocks)
        return blocks

    def _write(self, publication: Publication, options: PublishOptions, blocks: Blocks | None) -> str:
        assert blocks is not None
        name = self._begun(publication, options, blocks)
        writer = snapshot.Writer(self.pool, self.state, progress(self.clock, self.say, f"in {name}"))
        self.say(f"write {len(blocks.digests)} blocks to {name}; if interrupted, the same command continues")
        writer.put_all(name, blocks)
        snapshot.seal(self.pool, self.aws, self.clock, name, blocks)
        self.say(f"wait until {name} is completed")
        snapshot.wait_until_completed(self.aws, self.clock, name)
        return name

    def _begun(self, publication: Publication, options: PublishOptions, blocks: Blocks) -> str:
        """The snapshot to write: an earlier run's, or a new one."""
        digest, region = publication.prepared.digest, self.aws.region
        known = self._known(digest, blocks)
        if publication.pending and publication.pending.blocks == blocks.tag and not (known and known.snapshot):
            return publication.pending.id  # of another machine, or of this one with its work folder removed
        started = self.state.begin(digest, region, self.clock.utc().strftime(TIME), blocks.tag)
        if started.snapshot:
            return started.snapshot
        tags = publication.tags(started.started, blocks.tag)
        request = snapshot.start_request(started, publication.gib, publication.name, tags, options.kms_key)
        answer = self.pool.call(request.service, request.operation, request.params)
        return self.state.answered(started, str(answer["SnapshotId"])).snapshot

    def _known(self, digest: str, blocks: Blocks) -> Started | None:
        """The snapshot that an earlier run has begun, if it can be continued."""
        known = self.state.begun()
        if known is None:
            return None
        is_gone = known.snapshot and snapshot.state_of(self.aws, known.snapshot) in GONE and not self._is_new(known)
        # The file system has been made again, perhaps by another mke2fs: the blocks of two cannot be mixed.
        is_another = known.digest == digest and known.blocks not in ("", blocks.tag)
        if is_another and known.snapshot:
            self.say(f"delete {known.snapshot}, of another file system of the same files")
            snapshot.delete_snapshot(self.pool, known.snapshot)
        if is_gone or is_another:  # failed, or deleted
            self.state.forget_snapshot()
            return None
        return known

    def _is_new(self, started: Started) -> bool:
        """Whether EC2 may not list it yet, as none of its blocks is written."""
        return not self.state.put(started.snapshot)
