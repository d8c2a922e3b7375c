"""Training from shards in S3, which is moto over http: what is fetched, kept and dropped, and in which order."""

import hashlib
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import boto3
import pytest
import torch
from moto.server import ThreadedMotoServer

from tests.trainer.datasets.test_streaming import together
from tests.trainer.prepare.conftest import make_photos, prepare_here
from trainer.config import Batches
from trainer.datasets import bucket, imagefolder
from trainer.datasets.base import Data
from trainer.datasets.bucket import Bucket
from trainer.datasets.order import Order, positions
from trainer.errors import DataError, FullDisk, MachineError, SettingsError
from trainer.state import snapshot
from trainer.training import Progress

URL = "s3://shards/data/pets"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(autouse=True)
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client, and an environment as on a node."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setattr(bucket, "RETRIES", 0)
    return client(endpoint)


def client(endpoint: str) -> Any:
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=endpoint, **keys)


def upload(s3: Any, folder: Path, place: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            s3.put_object(Bucket="shards", Key=f"{place}/{path.relative_to(folder)}", Body=path.read_bytes())


@pytest.fixture(scope="module")
def published(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared folder whose copy lies at URL: nine shards to train on."""
    folder = tmp_path_factory.mktemp("published")
    prepare_here(make_photos(folder / "photos", train=24), folder / "prepared", shard_bytes=8_000)
    s3 = client(endpoint)
    s3.create_bucket(Bucket="shards")
    upload(s3, folder / "prepared", "data/pets")
    return folder / "prepared"


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is fetched from now on."""
    names: list[str] = []
    fetch = Bucket.fetch
    monkeypatch.setattr(Bucket, "fetch", lambda self, name, *to: names.append(name) or fetch(self, name, *to))
    return names


def seen(data: Data, epoch: int = 0, ranks: int = 1, rank: int = 0, done: int = 0, updates: int = 2) -> torch.Tensor:
    """What a rank trains on, 24 images an update."""
    order = Order(48, seed=0, epoch=epoch)
    places = positions(Batches(24 // ranks, 1, ranks), rank, 1, done, updates)
    return together(list(data.train.train_batches(order, places))).images


def load(ask, **changes: Any) -> Data:
    usual: dict[str, Any] = {"image_size": 16, "data_url": URL, "shuffle_shards": 3, "augment": False}
    return imagefolder.load_large(ask(**usual | changes))


def test_images_and_labels_are_those_of_the_folder(published: Path, ask) -> None:
    remote = load(ask)
    local = imagefolder.load_large(ask(published, image_size=16, augment=False))

    remote_all, local_all = (together(list(data.train.eval_batches(range(48), 10))) for data in (remote, local))
    assert torch.equal(remote_all.images, local_all.images)
    assert torch.equal(remote_all.labels, local_all.labels)
    assert remote.signature == local.signature


def test_what_fits_is_kept_and_fetched_once(published: Path, ask, fetched: list[str]) -> None:
    data = load(ask)

    seen(data, epoch=0)
    before = len(fetched)
    seen(data, epoch=1)
    seen(load(ask), epoch=2)

    assert before == len(fetched) == 2 + len(list((published / "train").glob("*.tar")))


def test_ranks_of_a_machine_fetch_each_shard_once_between_them(published: Path, ask, fetched: list[str]) -> None:
    ranks = [load(ask) for _ in range(3)]
    threads = [threading.Thread(target=seen, args=(data, 0, 3, rank)) for rank, data in enumerate(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(fetched) == len(set(fetched)) > 2


def test_the_cache_holds_no_more_than_it_may_and_is_empty_afterwards(
    published: Path, ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    fetch = Bucket.fetch
    shards = tmp_path / "cache/shards"

    def size_of(path: Path) -> int:
        """0 if it was renamed or deleted since it was listed, as other threads do."""
        with suppress(FileNotFoundError):
            return path.stat().st_size
        return 0

    def watched(self: Bucket, name: str, target: Path) -> None:
        fetch(self, name, target)
        if "index" not in name:
            sizes.append(sum(map(size_of, shards.iterdir())))

    monkeypatch.setattr(Bucket, "fetch", watched)
    limit_gb = 75_000 / 1e9
    data = load(ask, data_cache_gb=limit_gb, workers=1)

    whole = seen(data)

    assert torch.equal(whole, seen(load(ask, cache_dir=tmp_path / "other")))
    total = sum(path.stat().st_size for path in published.rglob("*.tar"))
    assert max(sizes) < 75_000 + 2_500 < total  # and both indexes
    assert sorted(path.stat().st_size for path in shards.glob("*.shard")) == [312, 1152]


def test_a_cache_that_is_too_small_for_the_mixing_is_refused(published: Path, ask) -> None:
    with pytest.raises(SettingsError, match=r"--data-cache-gb 2e-05 is less than the .* GB of shards that are read at"):
        seen(load(ask, data_cache_gb=20_000 / 1e9))


def test_stopping_early_leaves_no_thread_and_no_part(published: Path, ask, tmp_path: Path) -> None:
    data = load(ask, data_cache_gb=75_000 / 1e9)
    batches = data.train.train_batches(Order(48, 0, 0), positions(Batches(2, 1, 1), 0, 1, 0, 24))
    next(batches)

    batches.close()

    assert [t.name for t in threading.enumerate() if t.name.startswith(("decode", "fetch"))] == []
    assert list((tmp_path / "cache/shards").glob("*.part")) == []


def test_resuming_fetches_only_what_is_still_to_be_seen(published: Path, ask, fetched: list[str]) -> None:
    data = load(ask, shuffle_shards=1)
    order = Order(48, seed=0, epoch=0)

    seen(data, done=24, updates=1)

    source = data.train._source
    wanted = {source._index[number]["shard"].item() for number in source.permutation(order)[24:].tolist()}
    assert set(fetched[2:]) == {f"train/{shard:06d}.tar" for shard in wanted}
    assert len(wanted) < len(list((published / "train").glob("*.tar")))


@pytest.mark.parametrize("kind", ["shard", "index"])
def test_what_a_machine_cut_off_when_it_stopped_is_fetched_anew(
    kind: str, published: Path, ask, tmp_path: Path, fetched: list[str]
) -> None:
    """A file that was renamed is not yet on the disk: after a power cut it may be there, and empty."""
    whole = seen(load(ask))
    name = sorted((published / "train").glob("*.tar"))[0] if kind == "shard" else published / "train/index.npy"
    kept = tmp_path / "cache/shards" / f"{hashlib.sha256(name.read_bytes()).hexdigest()}.shard"
    kept.write_bytes(b"")
    fetched.clear()

    assert torch.equal(seen(load(ask)), whole)
    assert fetched == [f"train/{name.name}"]


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(("size", "limit"), [(16, 1e-4), (None, 50.0)], ids=["dropped", "small"])
def test_an_unreadable_image_from_s3_is_named(
    size: int | None, limit: float, s3, photos, ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that only the crop's decoder finds damaged.  Its shard may have been dropped: then by its place."""
    monkeypatch.setattr("trainer.prepare.shard.prepared", lambda data, recipe: (data, "jpg"))
    source = photos(train=24, width=20, height=20)
    (source / "train/cat/0003.jpg").write_bytes(b"no image")
    prepare_here(source, tmp_path / "prepared", shard_bytes=8_000)
    upload(s3, tmp_path / "prepared", place := f"bad/{size}-{limit}")
    load_any = imagefolder.load if size is None else imagefolder.load_large

    asked = {"image_size": size, "max_bad_images": 1, "data_cache_gb": limit, "shuffle_shards": 2}
    data = load_any(ask(data_url=f"s3://shards/{place}", **asked))
    order = Order(data.train.size, seed=0, epoch=0)
    list(data.train.train_batches(order, positions(Batches(24, 1, 1), 0, 1, 0, order.size // 24)))
    (name,) = data.train.bad_images
    assert re.fullmatch(r"train/\d{6}\.tar: (\d{8}-0003\.jpg|byte \d+)", name)


# ---- what goes wrong


def altered(s3) -> None:
    key = s3.list_objects_v2(Bucket="shards", Prefix="data/pets/train/0")["Contents"][0]["Key"]
    s3.put_object(Bucket="shards", Key=key, Body=b"something else")


def no_manifest(s3) -> None:
    s3.delete_object(Bucket="shards", Key="data/pets/manifest.json")


def no_shard(s3) -> None:
    s3.delete_object(Bucket="shards", Key="data/pets/train/000001.tar")


def other_manifest(s3) -> None:
    s3.put_object(Bucket="shards", Key="data/pets/manifest.json", Body=b"{")


@pytest.mark.parametrize(
    ("alter", "sentence"),
    [
        (altered, r"s3://shards/data/pets/train/000000\.tar does not match its digest"),
        (no_manifest, r"no s3://shards/data/pets/manifest\.json in S3"),
        (no_shard, r"no s3://shards/data/pets/train/000001\.tar in S3"),
        (other_manifest, r"s3://shards/data/pets/manifest\.json is damaged"),
    ],
)
def test_data_that_are_not_as_they_were_prepared_are_refused(alter, sentence: str, published: Path, ask, s3) -> None:
    alter(s3)

    try:
        with pytest.raises(DataError, match=sentence):
            seen(load(ask))
    finally:
        upload(s3, published, "data/pets")


def test_s3_that_cannot_be_reached_is_a_sentence_in_one_line(ask, s3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    with pytest.raises(MachineError, match=r"^cannot read s3://shards/data/pets/manifest\.json: .+$"):
        load(ask)


def test_a_full_disk_names_both_ways_out(published: Path, ask, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load(ask)

    def full(self: Bucket, name: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Bucket, "fetch", full)

    with pytest.raises(FullDisk, match=r"--data-cache-gb, .* --cache-dir"):
        seen(data)


def test_what_obstore_reads_from_the_environment_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "region_of", lambda name: {"shards": "eu-west-1"}[name])
    bare, local, chosen = dict[str, str](), {"AWS_ENDPOINT_URL": "http://localhost:1"}, {"AWS_REGION": "us-east-2"}

    for env in (bare, local, chosen):
        bucket.set_defaults(URL, env)

    assert bare == {"AWS_REGION": "eu-west-1"}
    assert local == {"AWS_ENDPOINT_URL": "http://localhost:1"}
    assert chosen == {"AWS_REGION": "us-east-2"}


@pytest.mark.parametrize(
    ("was", "now", "inside", "sentence"),
    [
        ({"data_url": URL, "shuffle_shards": 16}, {"data_url": URL, "shuffle_shards": 8}, 24, "--shuffle-shards 16;"),
        ({}, {"data_url": URL, "shuffle_shards": 8}, 24, "shuffled without --data-url;"),
        ({"data_url": URL, "shuffle_shards": 16}, {"data_url": URL, "shuffle_shards": 8}, 0, None),
        ({"shuffle_shards": 16}, {"data_url": None, "shuffle_shards": 8}, 24, None),
    ],
)
def test_resuming_inside_an_epoch_needs_its_mixing(
    was: dict[str, Any], now: dict[str, Any], inside: int, sentence: str | None
) -> None:
    with pytest.raises(SettingsError, match=sentence) if sentence else nullcontext():
        snapshot._check_order(was, now, Progress(images=inside))


def test_without_its_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)

    with pytest.raises(SettingsError, match="--data-url needs obstore"):
        Bucket(URL)
