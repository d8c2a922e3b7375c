"""Shards in S3, read through a cache on this machine: `--data-url s3://BUCKET/FOLDER`."""

import hashlib
import json
from pathlib import Path

from trainer.datasets.base import Request
from trainer.datasets.bucket import Bucket
from trainer.datasets.cached_files import Cache
from trainer.datasets.entries import ENTRY
from trainer.datasets.fetching import FetchingShelf
from trainer.datasets.manifest import MANIFEST, Half, read_manifest
from trainer.datasets.shards import ShardSource, read_index
from trainer.datasets.source import Halves
from trainer.errors import DataError, one_line

GB = 1e9
HEADER_BYTES = 2**16  # at most, before the numbers of an index


def open_remote(request: Request, url: str) -> Halves:
    """Both halves of the prepared folder at `url`.  Raises TrainerError."""
    bucket = Bucket(url)
    try:
        manifest = read_manifest(json.loads(text := bucket.read(MANIFEST)), f"{bucket.url}/{MANIFEST}")
    except (ValueError, RecursionError) as error:
        raise DataError(f"{bucket.url}/{MANIFEST} is damaged ({one_line(error)}); publish the data again.") from error
    limit = request.data_cache_gb * GB
    both = (manifest.splits.train, manifest.splits.val)
    cache = Cache(bucket, request.cache_dir.expanduser() / "shards", max(map(_largest, both)))
    keeps = sum(half.bytes for half in both) <= limit

    def opened(half: Half) -> ShardSource:
        index = read_index(cache.fetch(half.index.file, half.index.sha256), half, len(manifest.classes))
        return ShardSource(half, index, FetchingShelf(cache, half.shards, limit, request.shuffle_shards, keeps))

    # Its digest names what is kept of decoded small images: the address may hold other data tomorrow.
    place = Path("/s3", hashlib.sha256(text).hexdigest())
    return Halves(opened(both[0]), opened(both[1]), manifest.classes, place, manifest.eval_split)


def _largest(half: Half) -> int:
    """Bytes of its largest file."""
    return max(HEADER_BYTES + half.images * ENTRY.itemsize, *(shard.bytes for shard in half.shards))
